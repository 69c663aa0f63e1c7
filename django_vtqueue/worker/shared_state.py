"""What a worker reports to its supervisor: numbers in memory that both share.

The supervisor can read them while a task keeps the interpreter to itself, and after the worker's end. A worker that has
no supervisor writes them as well.
"""

import ctypes
import mmap
import os
from enum import IntEnum
from tempfile import TemporaryFile
from typing import Self


class Departure(IntEnum):
    """Whether a worker leaves, and whether another one is to take its place."""

    NONE = 0
    REPLACED = 1
    FOR_GOOD = 2


class SharedState(ctypes.Structure):
    """The state of one worker. ``held``, ``started``, ``ended``: numbers of jobs. ``worker_id``: "" until it is ready.

    ``ends_at``: when the first of its jobs exceeds its time limit; ``renew_by``: when half of its shortest lease is
    over (both monotonic). ``departure``: a Departure. ``has_left``: 1 once all that it held is released.
    """

    ends_at: float
    renew_by: float
    longest_hold: float
    held: int
    started: int
    ended: int
    departure: int
    has_left: int
    worker_id: bytes

    _fields_ = (
        ("ends_at", ctypes.c_double),
        ("renew_by", ctypes.c_double),
        ("longest_hold", ctypes.c_double),
        ("held", ctypes.c_int64),
        ("started", ctypes.c_int64),
        ("ended", ctypes.c_int64),
        ("departure", ctypes.c_int64),
        ("has_left", ctypes.c_int64),
        ("worker_id", ctypes.c_char * 256),
    )

    @classmethod
    def in_memory(cls, descriptor: int) -> Self:
        """Return the report in the memory behind a file descriptor."""
        return cls.from_buffer(mmap.mmap(descriptor, ctypes.sizeof(cls)))


def new_memory() -> int:
    """Return a file descriptor of new memory for the state of one worker; a child process may inherit it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("vtqueue-shared")
    else:  # not on Linux
        with TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, ctypes.sizeof(SharedState))
    return descriptor
