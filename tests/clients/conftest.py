"""Real clients, each as it is published: `make test-clients` makes their environment, and runs these tests."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("freezegun") else ["test_*.py"]
