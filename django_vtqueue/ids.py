"""Job ids: UUIDs of version 7, so that the primary key grows with time (RFC 9562, section 5.7 and method 3 of 6.2)."""

import os
import socket
import time
from uuid import UUID


def new_id() -> str:
    """Return a new id as 32 hexadecimal digits: milliseconds, then the fraction in 12 bits, then 62 random bits."""
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    tail = int.from_bytes(os.urandom(8), "big") & 0x3FFF_FFFF_FFFF_FFFF | 0x8000_0000_0000_0000
    return f"{milliseconds:012x}7{fraction:03x}{tail:016x}"


def first_id(instant: int) -> str:
    """Return what no id made before the millisecond of an instant reaches, and every one made from it on exceeds."""
    return f"{max(instant, 0) // 1000:012x}".ljust(32, "0")


def new_uuid() -> UUID:
    """Return a new id as the models have it."""
    return UUID(new_id())


def instant_of(job_id: str) -> int:
    """Return when an id was made, to the millisecond, in microseconds."""
    return int(job_id[:12], 16) * 1000


def parse_id(value: object) -> UUID | None:
    """Return what people pass as a job id (UUID or its text) as a UUID; None if it is none."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, AttributeError):
        return None


def dashed(job_id: str) -> str:
    """Return 32 hexadecimal digits as people see an id, which is also the id of the task's result."""
    return f"{job_id[:8]}-{job_id[8:12]}-{job_id[12:16]}-{job_id[16:20]}-{job_id[20:]}"


def new_worker_id() -> str:
    """Return a name for a holder of leases: people know it by host and pid, the guard by its random end."""
    return f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"


def shown_worker(worker_id: str) -> str:
    """Return a worker's id without its random end."""
    return worker_id.rpartition(":")[0] or worker_id


_own: tuple[int, str] = (0, "")


def process_worker_id() -> str:
    """Return the id under which this process holds what it claims itself; a forked child has its own."""
    global _own
    if _own[0] != os.getpid():
        _own = (os.getpid(), new_worker_id())
    return _own[1]
