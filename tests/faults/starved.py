"""A module that a worker loads: the second of certain calls, all of which follow a commit, gets no memory."""

import os
from itertools import count
from typing import Any

from .inside import BEHIND_A_COMMIT


def starve(owner: Any, name: str) -> None:
    real, calls = getattr(owner, name), count(1)

    def call(*given: Any) -> Any:
        if next(calls) == 2:
            raise MemoryError
        return real(*given)

    setattr(owner, name, call)


if which := os.environ.get("VTQUEUE_TEST_STARVED_CALL"):
    starve(*BEHIND_A_COMMIT[which])
