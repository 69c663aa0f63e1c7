"""The options of ``vtworker``, as they are read."""

import pytest
from django.core.management import CommandError

from django_vtqueue.management.worker_options import weighed


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        ("a,b", None),
        ("a:3,b", {"a": 3, "b": 1}),
        ("c:7,b", None),
        ("c:7:2,b", {"c:7": 2, "b": 1}),
        ("d:x,b", None),
        ("d:x:2,b", {"d:x": 2, "b": 1}),
        ("a:0", "--queues has a:0, but must have NAME or NAME:WEIGHT: a weight is a whole number from 1 to 1000"),
        ("a:1001", "--queues has a:1001, but must have"),
        ("a:x", "--queues has a:x, but .* A queue with a colon in its name must be in QUEUES or in OPTIONS"),
        ("a:-1", "--queues has a:-1, but must have"),
        ("a:", "--queues has a:, but must have"),
        (":3", "--queues has :3, but must have"),
    ],
)
def test_weights_of_names(queues: str, expected: object) -> None:
    """A name of the settings is a name, also with a colon; then only a further number is a weight. No other is one."""
    names = {"a", "b", "c:7", "d:x"}
    given = [*queues.split(",")]
    if isinstance(expected, str):
        with pytest.raises(CommandError, match=expected):
            weighed(given[0], names)
        return
    found = dict(weighed(text, names) for text in given)
    assert ({name: weight or 1 for name, weight in found.items()} if any(found.values()) else None) == expected
