"""What runs the pending tasks in tests of failures: what a task raises is in its result."""

from functools import partial

from django_vtqueue import testing

run_pending = partial(testing.run_pending, raise_errors=False)
