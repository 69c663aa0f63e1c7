"""The contract of a database for the queue. A new engine is one folder, and ``tests/conformance`` green on it.

Every instant is passed in; ``now()`` is the clock that all holders of leases in this database share. No method
decides anything: which jobs are due, and what becomes of one, is said by the caller, or by the statement's WHERE.
What only some databases need has a default here: a file, a clock of each process, values of any kind in any column.
A row is named by its handle, which only its engine understands; of two rows the later one has the greater handle.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from enum import Enum
from typing import TypeVar

from django.db import connections, transaction

from ..core.expiry import Patience
from ..core.job import Due, Expired, Handle, HeldJob, Key, NewJobs, Progress, Scope, Settlement, StoredJob

T = TypeVar("T")


class Trouble(Enum):
    """Errors of a database that pass, or that only people can end; either way the worker waits and goes on."""

    BUSY = "the database is locked by another process"
    DISK = "the database cannot be written"
    SCHEMA = "the queue's tables are missing or of another version"
    DAMAGED = "the database is damaged"
    GONE = "the database cannot be reached"


class Engine(ABC):
    """The statements of the queue on one database alias.

    ``traced``: statements go through Django's cursor where it is watched, so that query counting, logging and
    tracing see them. A worker's control loop asks for False: it repeats itself all day.
    ``last_hold``, ``longest_hold``: the seconds for which others had to wait for a transaction begun inside
    ``without_lock_waits()``, at the most.
    """

    def __init__(self, alias: str, *, traced: bool = True) -> None:
        self.alias = alias
        self.traced = traced
        self.last_hold = self.longest_hold = 0.0

    @abstractmethod
    def now(self) -> int:
        """Return the present instant, in microseconds."""

    @abstractmethod
    def describe(self) -> str:
        """Return the database in a few words, for the log."""

    def path(self) -> str:
        """Return the real path of the file that holds the database; "" if none does: there is no file to copy."""
        return ""

    def private(self) -> bool:
        """Return whether this thread alone sees the database: it is in memory, or inside a transaction."""
        return connections[self.alias].in_atomic_block

    @abstractmethod
    def transaction(self) -> AbstractContextManager[object]:
        """Hold the right to write until the block ends: all of it is committed, or nothing.

        Inside the caller's own transaction it adds nothing: that one commits or rolls back. It waits for its turn as
        long as the connection's own timeout says (inside ``without_lock_waits()``: not at all), then raises.
        """

    def atomic(self) -> AbstractContextManager[None]:
        """Return Django's atomic block, which begins to write also where the caller has a cursor open."""
        return transaction.atomic(using=self.alias)

    def beside_cursors(self, act: Callable[[], T]) -> T:
        """Return what ``act`` does, on another connection where an open cursor of the caller's forbids its transaction.

        It is for a ``transaction_if`` and what is read after it; the other transactions do so themselves.
        """
        return act()

    @abstractmethod
    def transaction_if(self, look: Callable[[float], T]) -> AbstractContextManager[T]:
        """Hold the right to write if a look at the database finds something; give the block what it found.

        The look is told for how many seconds that right was waited for, 0 before it is asked for. If another connection
        has written between the look and the right, the look is repeated: the block is given what holds at its
        beginning. Where the look finds nothing (an empty list) there is no wait, and the block is no transaction; only
        inside ``without_lock_waits()`` the right is taken before the look.
        """

    @abstractmethod
    def effects(self, seconds: float) -> AbstractContextManager[None]:
        """Hold the right to write, in a transaction of Django's for a task's own writes, for ``seconds`` at the most.

        Then it is rolled back, whatever the block does, and TaskTimeout is raised at the latest when the block ends.
        Raise RuntimeError inside a transaction of the caller's (that of a TestCase does not count).
        """

    def without_lock_waits(self) -> AbstractContextManager[None]:
        """For a control loop: during the block no statement of this thread's connection waits for a lock, it raises.

        That holds for every connection that replaces it, too. At both ends of the block it is closed.
        """
        return nullcontext()

    def replaced(self) -> bool:
        """Return, inside ``without_lock_waits()``, whether since the last call the connection was opened to another
        database.

        As when a file is exchanged for a backup; while that goes on, and the connection leads to what is no longer
        there, it raises. Cheap enough for 10 a second. A database for which that cannot be returns False.
        """
        return False

    def disconnect(self) -> None:
        """Close this thread's connection, however broken it is; what needs it next opens a new one."""
        with suppress(Exception):
            connections[self.alias].close()

    @abstractmethod
    def insert(self, new: NewJobs) -> bool:
        """Store new jobs, in the order given; return False if that waits for the end of the caller's atomic block."""

    @abstractmethod
    def earliest(self, scopes: Iterable[Scope]) -> int | None:
        """Return from when on, past or future, the earliest of the unfinished jobs in scope may be claimed.

        That is its ``due_at``, or, of one that is held, a moment after the end of its lease (see ``expired``); or the
        end of its queue's pause if that is later. None if there is no such job.
        """

    @abstractmethod
    def due(self, scope: Scope, limit: int, now: int) -> list[Due]:
        """Return the first ``limit`` waiting rows of a scope that are due, by priority, then by ``due_at``, then in the
        order of insertion.

        None of a queue that is paused at ``now``, as this transaction sees it, and none of its rows is looked at.
        """

    @abstractmethod
    def expired(self, scope: Scope, limit: int, now: int, patience: Patience) -> list[Expired]:
        """Return up to ``limit`` hidden rows of a scope that may be shown again, but of no paused queue.

        Of those that are held this is said by the end of the row's lease, its length, and the patience of who claims;
        see core/expiry.py.
        """

    @abstractmethod
    def show(self, handles: Sequence[Handle]) -> None:
        """Hide rows no longer that were given back."""

    @abstractmethod
    def lease(
        self, handles: Sequence[Handle], worker_id: str, now: int, lease_us: int | None, attempts: int = 1
    ) -> None:
        """Hand due rows to a worker: one more claim, hidden for their lease (or ``lease_us``), without progress.

        ``attempts``: 1, or 0 for what does not begin at once, but with ``begin``.
        """

    @abstractmethod
    def begin(self, jobs: Sequence[HeldJob], now: int, *, waited: bool = False) -> int:
        """Count an attempt of held rows that had not begun when they were claimed, each only for its holder.

        ``waited``: none that was asked to stop meanwhile, nor of a queue that was paused. Return how many have begun.
        """

    def mend(self, handles: Sequence[Handle], worker_id: str) -> None:
        """Give rows that are not sound values of the right kinds, and a holder, so that they can be settled."""
        return None

    @abstractmethod
    def read(self, handles: Sequence[Handle]) -> dict[Handle, HeldJob]:
        """Return rows by handle, as they are now."""

    @abstractmethod
    def renew(self, jobs: Sequence[HeldJob], now: int, *, afresh: bool = False) -> set[Key]:
        """Hide held rows for one lease more, from ``now``; return the keys of those no longer held.

        One that was extended beyond that stays hidden for so long; not with ``afresh``, after a step of the clock.
        """

    @abstractmethod
    def extend(self, job: HeldJob, now: int, until: int, *, lengthen: bool = False) -> bool:
        """Hide one held row until an instant, with ``lengthen`` at least until then; False if it is no longer held, or
        its lease has ended. Its visibility timeout stays what it is.
        """

    @abstractmethod
    def settle(self, settlements: Sequence[Settlement]) -> set[Key]:
        """Carry out settlements, each only for its holder; return the keys of those that were not carried out.

        One that gives a job back without a time gives it back to its place in the line.
        They were no longer held; or they would give a job back that was asked to stop (see ``asked``).
        """

    @abstractmethod
    def ask(self, job_ids: Sequence[str], now: int, by: str) -> tuple[set[str], list[HeldJob]]:
        """Write into unfinished jobs that they shall stop, unless that was done before.

        Return the ids of those in which it was written, and which of these are not held; what becomes of them must be
        said in the same transaction, by ``bury_waiting``.
        """

    @abstractmethod
    def bury_waiting(self, settlements: Sequence[Settlement]) -> None:
        """Move jobs that wait to the dead letters."""

    @abstractmethod
    def asked(self, jobs: Sequence[HeldJob]) -> dict[Key, str]:
        """Return which held rows are asked to stop, and by whom ("": not known)."""

    @abstractmethod
    def note_progress(self, said: Sequence[tuple[HeldJob, Progress]]) -> None:
        """Write into held rows how far their jobs are, each only for its holder."""

    @abstractmethod
    def find(self, job_id: str) -> StoredJob | None:
        """Return a job or dead letter, in one statement (two could miss a job that is being requeued)."""

    @abstractmethod
    def held_by(self, worker_id: str) -> list[HeldJob]:
        """Return the rows that a worker holds."""

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
        """Move dead letters back into their queue (or into ``queue_name``) with a fresh budget, and write into their
        histories who did it; return the ids that could be moved.
        """

    @abstractmethod
    def purge(self, queue_name: str, now: int) -> int:
        """Delete the jobs of a queue that are not held; return how many."""

    @abstractmethod
    def prunable(self, now: int) -> bool:
        """Return whether ``prune`` would find something."""

    @abstractmethod
    def prune(self, now: int, limit: int) -> int:
        """Delete up to ``limit`` finished jobs, and dead letters, that were kept for long enough, and the pauses that
        have ended; return how many rows.
        """

    def clock_was_ahead(self, now: int) -> bool:
        """Return whether something in the database bears a stamp of a clock that was ahead of ``now``; a few seeks."""
        return False

    def stamped_ahead(self, after: Handle, now: int, limit: int) -> tuple[list[Handle], Handle | None]:
        """Look, by a read, at the next ``limit`` rows; return the handles of those that wait for a time
        that a clock stamped while it was ahead, and behind which row to go on (None: that was all).
        """
        return [], None

    def set_right(self, handles: Sequence[Handle], now: int) -> int:
        """Make those of these rows due at once that wait for a clock that was ahead, and end leases one lease from now
        that it made longer; return how many.
        """
        return 0

    @abstractmethod
    def count(self, queue_name: str) -> int:
        """Return how many jobs of a queue are unfinished, whether they wait or are held."""

    def changed(self) -> bool:
        """Return whether another connection may have committed since the last call; cheap enough for 10 a second."""
        return True

    def tidy(self, *, early: bool) -> int | None:
        """Keep small what the database stores beside the tables; called after each turn, outside of transactions.

        ``early``: before a commit of others has to do it, for they wait for each other as it is.
        Return None if there is nothing more to do about it for now, else the bytes of it that another connection
        keeps from being taken away: 0 if that one only held a lock.
        """
        return None

    @abstractmethod
    def trouble(self, error: BaseException) -> Trouble | None:
        """Return what kind of passing error this is; None if it is none."""
