"""How long the tests of faults last: seconds, or as many minutes as ``make faults MINUTES=15`` says."""

import os
import random
from typing import TypeVar

import pytest
from django.db import connections
from hypothesis import settings

from ..conftest import ENGINE

T = TypeVar("T", int, float, list[str])

MINUTES = float(os.environ.get("VTQUEUE_FAULT_MINUTES") or 0)
SEED = os.environ.get("VTQUEUE_SEED")
FIXED = 7  # a seed


def scaled(bounded: T, long: T) -> T:
    """Return the one value or the other."""
    return long if MINUTES else bounded


def chosen_seed() -> int:
    """Return the seed asked for; else one that is the same in every run; at length a new one. It is printed."""
    seed = int(SEED) if SEED else random.SystemRandom().randrange(1_000_000) if MINUTES else FIXED
    print(f"\nVTQUEUE_SEED={seed}")
    return seed


def of_engine(alias: str, bounded: settings) -> settings:
    """Return how many courses of events each run has: fewer on a server, where each statement takes longer."""
    return settings(bounded, max_examples=bounded.max_examples // (1 if connections[alias].vendor == "sqlite" else 5))


HELD = scaled(1.0, 60.0)  # seconds for which a lock is held or a disk is full

# On one of them, and at length on both: what a test does for so long is the same on both.
each_engine = pytest.mark.parametrize("database", scaled([ENGINE], ["sqlite", "postgresql"]), indirect=True)
