"""Locks, where several connections write at once: of single rows, queues, rates. Only PostgreSQL has them."""

from abc import abstractmethod
from collections.abc import Collection, Sequence

from ..core.job import ClaimKey, HeldJob


class RowLocks:
    """The part of an Engine that has such locks, and renews leases beside them; here it is as if there were none.

    A transaction of the project may hold the lock of a row for long.

    ``locks_rows``: whether a statement of a control loop may wait for a row while other rows can be written.
    """

    locks_rows = False

    @abstractmethod
    def renew(self, jobs: Sequence[HeldJob], now: int, *, afresh: bool = False) -> set[ClaimKey]:
        """Hide held rows for one more lease, from ``now`` on; return the keys of those that are no longer held.

        A lease that was extended beyond that keeps its end; with ``afresh``, after a step of the clock, it does not.
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

    def lock_copies(self, jobs: Sequence[HeldJob]) -> None:
        """Let no other transaction change the rows of these jobs before this one ends."""

    def lock_families(self, job_ids: Collection[str]) -> None:
        """Lock the unfinished children of jobs, and theirs, and then the jobs: the youngest generation first.

        Who settles a child locks its row, and then that of its parent, so whoever changes both does so as well.
        """
