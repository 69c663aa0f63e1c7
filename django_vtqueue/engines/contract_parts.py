"""The parts of an engine's contract: ends of attempts, steps, copies of a job, row locks, clock repair, limits.

Each class is a base of ``Engine``. A method that only some databases need has a default here.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from django.db.models.expressions import Expression

from ..core.copies import Copy
from ..core.grace import GracePeriod
from ..core.job import ClaimKey, Due, Handle, HeldJob, Scope, StoredJob
from ..core.settlement import Settlement

# As SQL: of a job that waits until another one of its key ends, and of one that waits for the moment booked for it.
IS_BLOCKED = "job.state = 'BLOCKED'"
IS_BOOKED = "job.moved_from IS NOT NULL AND job.rate_key IS NOT NULL"  # until it is leased
BOOKED_FOR = "coalesce(job.wake_at, job.due_at)"  # its moment, also if that has come


class Noted(NamedTuple):
    """What a row says when steps were written: their bytes, and whether the job is to give its slot back."""

    size: int
    to_suspend: bool


class Settling(ABC):
    """How attempts end, and what is left of them."""

    @abstractmethod
    def settle(self, settlements: Sequence[Settlement]) -> set[ClaimKey]:
        """Carry out settlements, each only for its holder; return the keys of those that were not carried out.

        Such a job is no longer held, or it was cancelled and would wait again (see ``cancel_requests``). A job that
        waits has no holder, and can only be buried. Without ``due_at`` a job keeps its place in the line.
        """

    @abstractmethod
    def find_all(self, job_ids: Sequence[str]) -> dict[str, StoredJob]:
        """Return jobs and dead letters by id; by one statement, for two could miss a job that is being requeued."""

    def find(self, job_id: str) -> StoredJob | None:
        """Return a job or a dead letter; see find_all."""
        return next(iter(self.find_all([job_id]).values()), None)

    def not_carried_out(self, settlements: Sequence[Settlement]) -> set[ClaimKey]:
        """Return the keys of settlements whose rows are not as they leave them.

        A commit whose answer was lost may have carried them out before.
        """
        found = self.find_all([s.job.id for s in settlements])
        return {s.job.key for s in settlements if not s.left(found.get(s.job.id))}


class DurableSteps(ABC):
    """Steps of jobs, events, parents that wait.

    ``steps`` has two writers, the holder and senders of events: each changes only its own paths.
    """

    @abstractmethod
    def steps(self, job: HeldJob) -> tuple[str | None, str | None] | None:
        """Return the stored steps of a held job, and its earlier ones, for its holder; None if it is not held."""

    @abstractmethod
    def write_steps(
        self, job: HeldJob, done: str, now: int, event: int | None = None, earlier: str | None = None
    ) -> Noted | None:
        """Write what a held job has done, only for its holder: it waits for nothing now; None if it is not held.

        ``event``: the index of an event that this takes out. ``earlier``: what stands before ``done`` from now on, in a
        column of its own; "": nothing; None: what stands there now. ``to_suspend``: it was cancelled, or its queue is
        paused.
        """

    @abstractmethod
    def send_event(
        self, name: str, event: str, now: int, *, job_id: str = "", queue_name: str = "", unique_key: str = ""
    ) -> tuple[str, int] | None:
        """Add an event to an unfinished job, named by its id or its key; one that waits for it is due at once.

        Return its queue and the bytes of its steps; None if there is no such job.
        """

    @abstractmethod
    def waits(self) -> Expression:
        """Return an expression of the ORM: what the task of a job waits for, without the rest of its steps.

        As JSON: a list of that, and of how many children it has enqueued last. NULL for a job that is due at another
        time than that of its wait: a limit has moved it, or it is to be tried again.
        """

    @abstractmethod
    def wake_parents(self, job_ids: Collection[str], now: int) -> None:
        """Make those of these jobs due that wait for children, and have none any more that is unfinished.

        The settlement of children has gone before it, in the same transaction.
        """


class Overflow(ABC):
    """Queues with ``overflow``: several copies of a job may run.

    Such a job stays RUNNING under its last claim; any of its copies may be the first to end.
    """

    @abstractmethod
    def reappeared(self, scope: Scope, limit: int, now: int, grace_period: GracePeriod) -> list[Due]:
        """Return the first ``limit`` jobs of a scope with copies whose lease has ended, each at its place in the line.

        The last copy that may run keeps the lease up. If that lease ends too, a replacement is started. After as many
        replacements as copies may run the job is not returned any more: its lease ends as that of any other.

        Left out are those that were cancelled, and those that the scope's worker runs itself. See ``ended``.
        """

    @abstractmethod
    def write_copies(self, handles: Sequence[Handle], now: int, runtimes: Mapping[str, tuple[int, int]]) -> None:
        """Note the present claims of rows that were just leased as copies; those which had one before have begun.

        ``runtimes``: see Options.overflowing.
        """

    @abstractmethod
    def copies(self, jobs: Sequence[HeldJob]) -> dict[ClaimKey, tuple[str, str | None]]:
        """Return, of these copies, those that may still be the first to end.

        With each go all copies of its job, as text, and who has cancelled the job ("": not known, None: no one).
        """

    @abstractmethod
    def pass_on(self, row: HeldJob, holder: Copy, copies: str, history: str, lease_until: int) -> None:
        """Make another copy the holder of a row that was read in this transaction; its claim number stays."""


class RowLocks:
    """Locks of single rows, queues, rates, and the renewal of leases beside them. Only PostgreSQL has such locks.

    A transaction of the project may hold the lock of a row for long.

    ``locks_rows``: whether a statement of a control loop may wait for a row while other rows can be written.
    """

    locks_rows = False

    @abstractmethod
    def renew(self, jobs: Sequence[HeldJob], now: int, *, afresh: bool = False) -> set[ClaimKey]:
        """Hide held rows for one more lease, from ``now`` on; return the keys of those that are no longer held.

        The end of each lease grows, whatever ``now`` is, so that a renewal is recognised by it, and a lease that was
        extended keeps what it has; with ``afresh``, after a step of the clock, it ends one lease from ``now``.
        """

    def renew_unlocked(
        self, jobs: Sequence[HeldJob], now: int, *, afresh: bool = False
    ) -> tuple[set[ClaimKey], list[HeldJob]]:
        """Renew, but wait for no row; return the keys of those no longer held, and the jobs whose rows are locked."""
        return self.renew(jobs, now, afresh=afresh), []

    def wait_in_line(self, job: HeldJob, seconds: float) -> None:
        """Lock a row, in a transaction; wait for ``seconds`` at the most in the line of those who want it, or raise."""

    def lock_queue(self, queue_name: str) -> None:
        """Let no other transaction that calls this for the queue go on before this one ends."""

    def lock_queues(self, queues: Collection[str], rates: Collection[str]) -> None:
        """Keep other claims from counting jobs of these queues, and from using these rates, until the transaction ends.

        A claim does so before it looks for what is due in them.
        """

    def lock_keys(self, keys: Collection[str]) -> None:
        """Keep claims from parking jobs of these concurrency keys until the transaction ends.

        A settlement does so before it unparks: who parks one now could not be told that there is a place.
        """

    def lock_copies(self, jobs: Sequence[HeldJob]) -> None:
        """Let no other transaction change the rows of these jobs before this one ends."""

    def lock_families(self, job_ids: Collection[str]) -> None:
        """Lock the unfinished children of jobs, and theirs, and then the jobs: the youngest generation first.

        A settlement of a child locks its row, and then that of its parent: each change of both has this order.
        """


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
    """Limits: how many jobs run, in which order, and how often.

    All of it is called in the transaction of a claim or a settlement. What a key has is counted from the rows
    themselves. A blocked job keeps its place in the line (``due_at``).

    ``line``: the columns that order the jobs of an ordered key; behind them the handle does.
    """

    line: tuple[str, ...] = ()

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
        """Return how many jobs of each concurrency key are held or hidden, without a lock."""
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
