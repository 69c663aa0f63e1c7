"""The part of the contract of a database that is for limits: how many jobs run, in which order, and how often.

All of it is called in the transaction of a claim or a settlement. What a key has is counted from the rows themselves.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ..core.clock import LAST_INSTANT
from ..core.job import Handle

# As SQL: of a job that waits until another one of its key ends, and of one that waits for the moment booked for it.
IS_PARKED = f"""job.finished_at IS NULL AND job.lease_until IS NULL AND job.moved_from IS NOT NULL
      AND job.concurrency_key IS NOT NULL AND job.due_at = {LAST_INSTANT}"""
IS_BOOKED = f"""job.finished_at IS NULL AND job.lease_until IS NULL AND job.moved_from IS NOT NULL
      AND job.rate_key IS NOT NULL AND job.due_at < {LAST_INSTANT}"""


class Parked(NamedTuple):
    """A concurrency key with parked jobs, and one of these.

    ``stuck``: whether the unfinished job in order of the key that was stored first is parked, too; None if this one is
    not in order.
    """

    key: str
    queue_name: str
    task_path: str
    stuck: int | None


class RateState(NamedTuple):
    """A rate in use: when the next start is due under it, and the microseconds between two starts."""

    next_at: int
    interval: int


class Booked(NamedTuple):
    """The last moment that is booked for a job of a rate key, and the task of that job."""

    due_at: int
    task_path: str


class Known(NamedTuple):
    """What is known of queues and keys, as far as it was asked for.

    ``queues``, ``keys``: how many of their jobs are held or hidden; of a queue without raw jobs that have a concurrency
    key; a key that is not there has none. ``first``: of a concurrency key the unfinished job in order that was stored
    first. ``rates``: their states, of those that have one. ``booked``: of the rate keys for which moments are booked.
    """

    queues: dict[str, int]
    keys: dict[str, int]
    first: dict[str, Handle]
    rates: dict[str, RateState]
    booked: dict[str, Booked]


class Limiting(ABC):
    """See Engine. A parked job waits without an end, and knows its place in the line (``moved_from``)."""

    @abstractmethod
    def look_up(
        self,
        *,
        queues: Collection[str] = (),
        keys: Collection[str] = (),
        first: Collection[str] = (),
        rates: Collection[str] = (),
        booked: Collection[str] = (),
    ) -> Known:
        """Return what is known of these queues, concurrency keys, rates, and rate keys: all that a claim needs at once.

        Inside the transaction of a claim nothing of it is changed by others from then on, if the queues and their rates
        were locked before (``RowLocks.lock_queues``).
        """

    def held_of_keys(self, keys: Collection[str]) -> dict[str, int]:
        """Return how many jobs of each concurrency key are held or hidden."""
        return defaultdict(int, self.look_up(keys=keys).keys)

    def rates(self, keys: Collection[str]) -> dict[str, RateState]:
        """Return the states of those of these rates that have one."""
        return self.look_up(rates=keys).rates

    @abstractmethod
    def park(self, handles: Sequence[Handle]) -> None:
        """Have jobs that wait, and have a concurrency key, be due no more until they are unparked."""

    @abstractmethod
    def unpark(self, keys: Mapping[str, int], *, ordered: bool = False) -> int:
        """Put up to so many parked jobs of each concurrency key back to their places in the line; return how many.

        It is one of those in order, the first if that is parked, and so many of the others; with ``ordered`` so many of
        those in order, for the code that their order is from is gone. They are of the highest priority, and of these
        the ones that were due first. So many of each queue: those of one queue cannot run while it is paused or full,
        or no worker serves it, and must not be in the way.
        """

    @abstractmethod
    def unpark_rows(self, handles: Sequence[Handle]) -> int:
        """Put those of these jobs that are parked back to their places in the line; return how many."""

    @abstractmethod
    def parked(self, after: str, limit: int) -> list[Parked]:
        """Return the first ``limit`` concurrency keys behind ``after`` that have parked jobs, in their order."""

    @abstractmethod
    def all_rates(self, after: str, limit: int) -> list[tuple[str, RateState]]:
        """Return the first ``limit`` rates behind the key ``after``, in the order of their keys."""

    @abstractmethod
    def set_rates(self, states: Mapping[str, RateState]) -> None:
        """Store the states of rates."""

    @abstractmethod
    def forget_rates(self, keys: Iterable[str]) -> None:
        """Remove the states of rates."""

    @abstractmethod
    def book(self, moments: Mapping[Handle, int]) -> None:
        """Have jobs that wait be due at the moments that are booked for them."""

    @abstractmethod
    def unbook(self, key: str, after: int, limit: int) -> int:
        """Put the last ``limit`` jobs of a rate key with a moment booked behind ``after`` back to their places."""
