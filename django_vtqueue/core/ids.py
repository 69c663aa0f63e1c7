"""Job ids: UUIDs of version 7, so that the primary key grows with time (RFC 9562, section 5.7 and method 3 of 6.2)."""

import os
import re
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar
from uuid import UUID

T = TypeVar("T")

SHORTEST = 8  # digits by which people name an id, the last ones: the log has as many
SLICE = 500  # ids for which the write lock is held for some 50 ms at the most

VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))  # of four random bits two become those of the RFC


def new_id() -> str:
    """Return a new id as 32 hexadecimal digits."""
    return new_ids(1)[0]


def new_ids(count: int) -> list[str]:
    """Return new ids, each beyond the one before: milliseconds, then the fraction in 12 bits, then 62 random bits."""
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    first = (milliseconds << 12) + (rest << 12) // 1_000_000
    random = os.urandom(8 * count).hex()
    ids = []
    for number in range(count):
        stamp, tail = f"{first + number:015x}", random[16 * number : 16 * number + 16]
        ids.append(f"{stamp[:12]}7{stamp[12:]}{VARIANT[tail[0]]}{tail[1:]}")
    return ids


def first_id(instant: int) -> str:
    """Return the lower bound of the ids made from the millisecond of an instant on; earlier ids are below it."""
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


def slices(ids: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield ids, or other keys, a few at a time.

    A statement takes no number of them, and none shall hold the write lock for long.
    """
    return (ids[start : start + SLICE] for start in range(0, len(ids), SLICE))


def dashed(job_id: str) -> str:
    """Return 32 hexadecimal digits as people see an id, which is also the id of the task's result."""
    return f"{job_id[:8]}-{job_id[8:12]}-{job_id[12:16]}-{job_id[16:20]}-{job_id[20:]}"


def id_end(digits: str) -> str:
    """Return the last digits of an id with the dashes between them, as ``pk__endswith`` needs them on any database."""
    dashes = sum(len(digits) > behind for behind in (12, 16, 20, 24))
    return dashed(digits.zfill(32))[-len(digits) - dashes :]


def digits_in(text: str, shortest: int = SHORTEST) -> str:
    """Return the digits of a text that is the end of an id, with dashes or without, or all of one; "" if it is none."""
    end = re.sub(r"^(…|\.\.\.)?-?", "", text.strip().lower())
    digits = end.replace("-", "")
    there = re.fullmatch(rf"[0-9a-f]{{{shortest},32}}", digits) and end in (digits, id_end(digits))
    return digits if there else ""


def new_worker_id() -> str:
    """Return a name for a holder of leases: people know it by host and pid, the guard by its random end."""
    return f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"


def shown_worker(worker_id: str) -> str:
    """Return a worker's id without its random end."""
    return worker_id.rpartition(":")[0] or worker_id


def names_of_workers(worker_ids: Iterable[str]) -> dict[str, str]:
    """Return what people type for each of these workers: its id without the random end, if that is of one alone."""
    short = {worker_id: shown_worker(worker_id) for worker_id in worker_ids}
    times = Counter(short.values())
    return {worker_id: name if times[name] == 1 else worker_id for worker_id, name in short.items()}


_own: tuple[int, str] = (0, "")


def process_worker_id() -> str:
    """Return the id under which this process holds what it claims itself; a forked child has its own."""
    global _own
    if _own[0] != os.getpid():
        _own = (os.getpid(), new_worker_id())
    return _own[1]
