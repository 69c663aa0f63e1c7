"""The context of a task (``takes_context=True``): Django's, with progress and cancellation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..core.failures import storable
from ..core.job import SHORT, HeldJob
from ..core.masks import replaced
from .compat import TaskContext
from .durable import DurableContext
from .ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext(DurableContext, TaskContext):  # type: ignore[misc]  # not frozen in its stubs
    """Django's context, and how a task learns that it shall stop, says how far it is, and proceeds in steps."""

    _job: HeldJob = field(repr=False, compare=False)
    _ledger: Ledger = field(default_factory=Ledger, repr=False, compare=False)
    _secrets: Callable[[], Sequence[str]] = field(default=tuple, repr=False, compare=False)

    @property
    def cancelled(self) -> bool:
        """Whether this job was asked to stop; known about a second later. Never asks the database."""
        return self._job.cancelled_by is not None

    def progress(self, fraction: float, text: str = "") -> None:
        """Say how far this job is: 0 to 1, and in words; stored within two seconds, with the end at the latest.

        Cheap enough to be called in every step. Raises ValueError if ``fraction`` is not a number from 0 to 1.
        """
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise ValueError(f"progress takes a number from 0 to 1 (0.4 for 40 %), not {fraction!r}.")
        said = replaced(str(text), self._secrets()) if text else ""
        self._job.progress = float(fraction), storable(said)[:SHORT]
