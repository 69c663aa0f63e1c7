"""The part of the contract of a database that is for locks of rows, which transactions of callers may hold for long.

A database that is locked as a whole has no such locks, and what is here.
"""

from abc import abstractmethod
from collections.abc import Collection, Sequence

from ..core.job import ClaimKey, HeldJob


class RowLocks:
    """See Engine. ``patience``: seconds for which a transaction waits for such a lock; None: as the database is set."""

    patience: float | None = None

    def waited_in_vain(self, error: BaseException) -> bool:
        """Return whether an error says that such a lock was waited for in vain; its transaction is rolled back."""
        return False

    def table_is_locked(self) -> bool:
        """Return whether a lock of the whole table keeps this process from writing to any job; it waits for nothing."""
        return False

    def await_table(self) -> None:
        """Wait, in a transaction, until no lock of the whole table keeps it from writing to jobs."""

    @abstractmethod
    def renew(self, jobs: Sequence[HeldJob], now: int, *, afresh: bool = False) -> set[ClaimKey]:
        """Hide held rows for one more lease, from ``now`` on; return the keys of those that are no longer held.

        A lease that was extended beyond that keeps its end; with ``afresh``, after a step of the clock, it does not.
        """

    def renew_unlocked(
        self, jobs: Sequence[HeldJob], now: int, *, afresh: bool = False
    ) -> tuple[set[ClaimKey], set[ClaimKey]]:
        """As renew, but pass over rows that another transaction has locked, and wait for none.

        Return the keys of the jobs that are no longer held, and of those that were passed over.
        """
        return self.renew(jobs, now, afresh=afresh), set()

    def locked_queues(self, queues: Collection[str], rates: Collection[str]) -> set[str]:
        """As lock_queues, but wait for none; return the queues and rates that another transaction has locked."""
        return set()
