"""How long the tests of faults last: seconds, or as many minutes as ``make faults MINUTES=15`` says."""

import os
from typing import TypeVar

import pytest

T = TypeVar("T", int, float, list[str])

MINUTES = float(os.environ.get("VTQUEUE_FAULT_MINUTES") or 0)


def scaled(bounded: T, long: T) -> T:
    """Return the one value or the other."""
    return long if MINUTES else bounded


HELD = scaled(1.0, 60.0)  # seconds for which a lock is held or a disk is full

# On a file, and at length on a server too: what a test does for so long is the same on both.
each_engine = pytest.mark.parametrize("database", scaled(["sqlite"], ["sqlite", "postgresql"]), indirect=True)
