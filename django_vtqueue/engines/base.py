"""The contract of a database for the queue. A new engine is one folder, and ``tests/conformance`` green on it.

Every instant is passed in; ``now()`` is the clock that all holders of leases in this database share. No method decides
what becomes of a job: the caller says it, and the statement's WHERE allows it or not. What only some databases need (a
file, a log beside it, a clock of each process) has a default here. A row is named by its handle, which only its engine
understands; of two rows the later one has the greater handle.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TypeVar

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Expression

from ..core.grace import GracePeriod
from ..core.job import ClaimKey, Due, Handle, HeldJob, NewJobs, Progress, Scope
from .contract_parts import DurableSteps, Limiting, Overflow, RowLocks, Settling
from .portable import Portable
from .trouble import Trouble

T = TypeVar("T")


class Listener:
    """What wakes a process when another one rings, on any host; this one never does.

    ``hears``: whether it would now; then a look at the database now and then is enough.
    """

    hears = False

    def close(self) -> None:
        """Wake the process no more."""


class Engine(Portable, Settling, RowLocks, Overflow, Limiting, DurableSteps, ABC):
    """The statements of the queue on one database alias.

    ``traced``: query counting, logging and tracing see the statements. For a worker's control loop it is False.
    ``last_hold``, ``longest_hold``: for how many seconds its last transaction, and the longest one, could write.
    """

    largest_result: int | None = None  # bytes
    countable = 300_000  # waiting jobs that the overview counts, of all queues, and as many that are due later
    shortest_wait = 0.1  # seconds for a lock: on a busy database it is never free at once
    looks_first = True  # a worker looks before it claims: a claim that finds nothing keeps other writers waiting
    kept_open = False  # with CONN_MAX_AGE = 0 (until the end of a request) a thread keeps its connection between jobs

    def __init__(self, alias: str, *, traced: bool = True) -> None:
        self.alias = alias
        self.traced = traced
        self.last_hold = self.longest_hold = 0.0

    @abstractmethod
    def now(self) -> int:
        """Return the present instant, in microseconds; later by ``clock.offset()``."""

    def clock_error(self) -> float:
        """Return by how many seconds this host's clock is ahead of the one that all hosts have; 0 if that is allowed.

        So it is where holders of leases read the clock of a server, or of one host.
        """
        return 0.0

    @abstractmethod
    def describe(self) -> str:
        """Return the database in a few words, for the log."""

    def path(self) -> str:
        """Return the real path of the file that holds the database; "" if there is no such file."""
        return ""

    def require_safe_file(self) -> None:
        """Raise ImproperlyConfigured if that file is where it may be destroyed."""

    def private(self) -> bool:
        """Return whether other threads do not see the same: it is in memory, or the caller is in a transaction."""
        return connections[self.alias].in_atomic_block

    @abstractmethod
    def transaction(self) -> AbstractContextManager[object]:
        """Hold the right to write until the block ends; then all of it is committed, or nothing.

        Inside the caller's own transaction the block is a part of that. The right is waited for as long as the
        connection's timeout says (inside ``without_lock_waits()``: not at all); then an error is raised.
        """

    def beside_cursors(self, act: Callable[[], T]) -> T:
        """Return what ``act`` returns, on a second connection if an open cursor of the caller's needs it."""
        return act()

    @abstractmethod
    def transaction_if(self, look: Callable[[float], T]) -> AbstractContextManager[T]:
        """Look at the database; if that finds something, hold the right to write for the block, which gets what it is.

        ``look`` gets the seconds for which the right was waited for, 0 at first. If another connection has written
        before the right was taken, it is called again: what it found is true when the block begins. If it finds nothing
        (None, an empty list), the right is not waited for, and the block is no transaction. Inside
        ``without_lock_waits()`` the right is taken before the look.
        """

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[int]:
        """Have all that is read in the block be what was committed at one instant, and give that instant to the block.

        Nothing is written in it, and nobody waits for it. Inside the caller's own transaction it sees what that sees.
        """

    @abstractmethod
    def task_transaction(
        self, seconds: float, first: Callable[[], None] = lambda: None
    ) -> AbstractContextManager[None]:
        """Hold the right to write in a transaction of Django's, for a task's own writes, for at most ``seconds``.

        They are counted from the end of ``first``, which is called in the transaction, and may wait as long for a lock.
        Then it is rolled back, whatever the block does, and TaskTimeout is raised when the block ends, or before. Raise
        RuntimeError inside a transaction of the caller's, except that of a TestCase.
        """

    def without_lock_waits(self, *, pooled: bool = True) -> AbstractContextManager[None]:
        """For a control loop: during the block no statement of this thread waits for a lock; it raises at once.

        The connection is closed at both ends of the block; one that is opened again inside waits for no lock either.
        ``pooled``: it may be one of Django's pool.
        """
        return nullcontext()

    def lock_timeout(self, seconds: float) -> AbstractContextManager[None]:
        """Wait for the right to write for ``seconds`` at the most in the block; for less where the settings say so."""
        return nullcontext()

    def replaced(self) -> bool:
        """Return, inside ``without_lock_waits()``, whether another database is there since the last call.

        That is so after the file was exchanged for a backup, say. While the file is being exchanged, it raises. It is
        cheap enough for 10 calls a second.
        """
        return False

    @staticmethod
    def begin_fairly(connection: BaseDatabaseWrapper) -> None:
        """Have transactions that Django begins on a connection wait fairly for the write lock, where there is one."""

    @staticmethod
    def has_open_cursor(connection: BaseDatabaseWrapper) -> bool:
        """Return whether a cursor is open that keeps a connection from writing; that cursor is interrupted then."""
        return False

    @staticmethod
    def outdated(connection: BaseDatabaseWrapper) -> bool:
        """Return whether another database is in the place of the one that a connection has opened, or none any more.

        The first call for a connection only notes which one that is. It is cheap enough for 10 calls a second.
        """
        return False

    def server(self) -> str:
        """Return what tells this run of the server from any other, such as that of a standby; "" for a file."""
        return ""

    def disconnect(self) -> None:
        """Close this thread's connection, also a broken one; the next statement opens a new one."""
        with suppress(Exception):
            connections[self.alias].close()

    @abstractmethod
    def insert(self, new: NewJobs) -> BaseDatabaseWrapper | None:
        """Store new jobs, in the order given; return the connection whose atomic block is to commit them, if any."""

    @abstractmethod
    def insert_with_keys(self, new: NewJobs) -> dict[int, tuple[str, str]]:
        """Store new jobs with keys, or of a parent; return the indexes of those that were not, for their key is taken.

        With each goes the id of the job that has the key, and the path of that job's task: one of another task is never
        replaced. The database's own constraint decides, also between two jobs of one call: the first of these is
        stored.
        """

    @abstractmethod
    def pauses(self) -> dict[str, int | None]:
        """Return the paused queues, each with the end of its pause (None: it has none); also pauses that have ended."""

    @abstractmethod
    def queue_names(self, limit: int | None = None) -> list[str]:
        """Return the queues that have unfinished jobs, sorted, without the reserved ones: the first ``limit``, or all.

        A claim needs all of them while another queue is paused.
        """

    @abstractmethod
    def first_due(self, scope: Scope) -> int | None:
        """Return the earliest moment at which an unfinished job of a scope is due, without a look at the pauses.

        For a job that waits that is ``due_at``, unless the quota of the scope is used up; for one that is held, a
        moment after the end of its lease (see ``ended``). None if there is no such job.
        """

    def search_all(self) -> None:
        """Forget where the last look at what is due has ended, in an engine whose looks go on from there."""

    @abstractmethod
    def wake(self, scope: Scope, now: int, limit: int) -> int:
        """Put up to ``limit`` jobs of a scope into the line whose ``wake_at`` has come; return how many."""

    @abstractmethod
    def to_wake(self, scope: Scope, now: int, limit: int) -> int:
        """Return 1 if there are any such jobs, else 0; a look, for those who may not write."""

    @abstractmethod
    def due(self, scope: Scope, limit: int, now: int, *, named: bool = False) -> list[Due]:
        """Return the first ``limit`` READY rows of a scope that are due, by priority, then by ``due_at``, then in the
        order of insertion. Overdue ones are among them: a claim does not lease these. ``named``: with their queues.
        """

    @abstractmethod
    def overdue(self, limit: int, now: int) -> list[Due]:
        """Return up to ``limit`` waiting rows of all queues that were to start by ``now``, the most overdue first."""

    @abstractmethod
    def overdue_among(self, job_ids: Sequence[str], now: int) -> list[Due]:
        """Return the overdue ones of these jobs, with those whose time to be hidden after their release is over."""

    @abstractmethod
    def ended(
        self, scope: Scope, limit: int, now: int, grace_period: GracePeriod, *, overflow: bool = False
    ) -> list[Handle]:
        """Return up to ``limit`` held rows of a scope whose lease has ended, and those that were given back.

        Whether a lease may be taken from its holder depends on its end, its length, and the grace period of the
        claimer; see core/grace.py. ``overflow``: without those that reappear instead (see ``reappeared``).
        """

    @abstractmethod
    def lease(
        self, handles: Sequence[Handle], worker_id: str, now: int, lease_us: int | None, attempts: int = 1
    ) -> dict[Handle, HeldJob]:
        """Hand rows to a worker: one more claim, hidden for their own lease (or ``lease_us``), without progress.

        ``attempts``: 1, or 0 if it is counted later, by ``start_attempts``. Return the rows as they are now, or none
        where that keeps other writers waiting: they are read after the commit.
        """

    @abstractmethod
    def start_attempts(self, jobs: Sequence[HeldJob], now: int) -> int:
        """Count an attempt of held rows, each only for its holder, and write that it starts now.

        Return how many rows that was: not those that were to start by ``now``, nor those that were counted before.
        """

    @abstractmethod
    def read(self, handles: Sequence[Handle]) -> dict[Handle, HeldJob]:
        """Return rows by handle, as they are now."""

    @abstractmethod
    def held_by(self, worker_id: str, *, lock: bool = False) -> list[HeldJob]:
        """Return what a worker holds: rows, and copies of rows, each of these under its own claim.

        ``lock``: the rows, until the end of the transaction; those that another one has locked are left out.
        """

    @abstractmethod
    def extend(self, job: HeldJob, now: int, until: int, *, lengthen: bool = False) -> bool:
        """Hide one held row until an instant (with ``lengthen``: at least until then); keep its visibility timeout.

        Return False if it is no longer held, or its lease has ended.
        """

    @abstractmethod
    def request_cancel(self, job_ids: Sequence[str], now: int, by: str) -> tuple[set[str], list[HeldJob]]:
        """Write a cancel request into unfinished jobs that have none, unless their queue is reserved.

        Return the ids of the jobs into which it was written now, and those of them that wait: the caller settles these
        in the same transaction (see ``cancelled``).
        """

    @abstractmethod
    def cancel_requests(self, jobs: Sequence[HeldJob]) -> dict[ClaimKey, str]:
        """Return which of these held rows have a cancel request, and by whom ("": not known)."""

    @abstractmethod
    def write_progress(self, unsaved: Sequence[tuple[HeldJob, Progress]]) -> None:
        """Write into held rows how far their jobs are, each only for its holder."""

    @abstractmethod
    def requeue(
        self,
        letter_ids: Sequence[str],
        now: int,
        by: str = "",
        *,
        queue_name: str | None = None,
        priority: int | None = None,
    ) -> set[str]:
        """Move dead letters back into their queue (or into ``queue_name``), with a fresh budget of attempts.

        Their histories say who did it. Return the ids that were moved.
        """

    @abstractmethod
    def handle(self) -> Expression:
        """Return the handle of a job as an expression of the ORM; each index of jobs ends with it."""

    def by_index(self, table: str, index: str) -> str:
        """Return what makes a query read a table by an index ("": that of its key); it follows the table's name."""
        return ""

    @abstractmethod
    def depth(self, queue_name: str, limit: int) -> int:
        """Return how many jobs of a queue wait, for whatever reason, and are not held, counted up to ``limit``."""

    @abstractmethod
    def prune(self, now: int, limit: int) -> int:
        """Delete ended pauses, and up to ``limit`` each of finished jobs and dead letters that were kept long enough.

        Return how many rows. If there are none, the right to write is not taken.
        """

    def changed(self) -> bool:
        """Return whether another connection may have committed since the last call; 10 calls a second are cheap."""
        return True

    def ring(self, *, workers: bool = False) -> None:
        """Wake those that listen, on any host, for what is committed; not in a transaction, and it never raises.

        A process need not ring each time: who is woken looks again soon. ``workers``: their rows have news for one.
        """

    def listen(self, rung: Callable[[bool], None]) -> Listener:
        """Have ``rung`` be called, from a thread, when another process has rung; with what it said of the workers."""
        return Listener()

    def tidy(self, *, early: bool) -> int | None:
        """Keep the log beside the database short; called after each turn, outside of transactions.

        ``early``: while other processes often want to write, do it before one of their commits has to.
        Return None if nothing is left to do for now. Else another connection is in the way: return the bytes of the
        log that it keeps, 0 if it only held a lock.
        """
        return None

    @staticmethod
    @abstractmethod
    def trouble(error: BaseException) -> Trouble | None:
        """Return what is wrong with the database if that is the cause of this error, else None."""
