"""How long the tests of faults last: seconds, or as many minutes as ``make faults MINUTES=15`` says."""

import os
from typing import TypeVar

T = TypeVar("T", int, float)

MINUTES = float(os.environ.get("VTQUEUE_FAULT_MINUTES") or 0)


def scaled(bounded: T, long: T) -> T:
    """Return the one value or the other."""
    return long if MINUTES else bounded


HELD = scaled(1.0, 60.0)  # seconds for which a lock is held or a disk is full
