"""A module that a worker loads: the second of certain calls, all of which follow a commit, gets no memory."""

import os
from itertools import count
from typing import Any

from django_vtqueue.worker.in_flight import InFlight
from django_vtqueue.worker.leases import Leases
from django_vtqueue.worker.statistics import Recorder
from django_vtqueue.worker.thread_pool import Pool

CALLS = {
    f"{owner.__name__}.{name}": (owner, name)
    for owner, name in (
        (InFlight, "add"),
        (InFlight, "remove"),
        (Leases, "add"),
        (Pool, "run"),
        (Pool, "announce"),
        (Recorder, "count"),
    )
}


def starve(owner: Any, name: str) -> None:
    real, calls = getattr(owner, name), count(1)

    def call(*given: Any) -> Any:
        if next(calls) == 2:
            raise MemoryError
        return real(*given)

    setattr(owner, name, call)


if which := os.environ.get("VTQUEUE_TEST_STARVED_CALL"):
    starve(*CALLS[which])
