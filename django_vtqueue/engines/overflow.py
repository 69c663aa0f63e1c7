"""The part of the contract of a database that is for queues with ``overflow``: jobs of which several copies may run."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from ..core.copies import Copy
from ..core.grace import GracePeriod
from ..core.job import ClaimKey, Due, Handle, HeldJob, Scope


class Overflow(ABC):
    """See Engine. A job with copies stays RUNNING under its last claim; any of its copies may be the first to end."""

    @abstractmethod
    def reappeared(self, scope: Scope, limit: int, now: int, grace_period: GracePeriod) -> list[Due]:
        """Return the first ``limit`` jobs of a scope with copies whose lease has ended, each at its place in the line.

        The last copy that may run keeps the lease up. If that lease ends too, a replacement is started. After as many
        replacements as copies may run the job is not returned any more: its lease ends as that of any other.

        Left out are those that were asked to stop, and those that the scope's worker runs itself. See ``ended``.
        """

    @abstractmethod
    def note_copies(self, handles: Sequence[Handle], now: int, runtimes: Mapping[str, tuple[int, int]]) -> None:
        """Note the present claims of rows that were just leased as copies; those which had one before have begun.

        ``runtimes``: see Options.overflowing.
        """

    @abstractmethod
    def copies(self, jobs: Sequence[HeldJob]) -> dict[ClaimKey, tuple[str, str | None]]:
        """Return, of these copies, those that may still be the first to end.

        With each go all copies of its job, as text, and who has asked the job to stop ("": not known, None: not asked).
        """

    @abstractmethod
    def pass_on(self, row: HeldJob, holder: Copy, copies: str, history: str, lease_until: int) -> None:
        """Make another copy the holder of a row that was read in this transaction; its claim number stays."""
