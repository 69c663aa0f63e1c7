"""The part of the contract of a database that is for durable tasks: steps of jobs, events, and parents that wait."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import NamedTuple

from django.db.models.expressions import Expression

from ..core.job import HeldJob


class Noted(NamedTuple):
    """What a row says when steps were written: their bytes, and whether the job is wanted to stop."""

    size: int
    stopped: bool


class DurableSteps(ABC):
    """See Engine. ``steps`` has two writers, the holder and senders of events: each changes only its own paths."""

    @abstractmethod
    def steps(self, job: HeldJob) -> tuple[str | None] | None:
        """Return the stored steps of a held job, for its holder; None if it is no longer held."""

    @abstractmethod
    def note_steps(self, job: HeldJob, done: str, now: int, event: int | None = None) -> Noted | None:
        """Write what a held job has done, only for its holder: it waits for nothing now; None if it is not held.

        ``event``: the index of an event that this takes out. ``stopped``: it was asked to stop, or its queue is paused.
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
        """Return an expression of the ORM: what the task of a job waits for, as JSON, without the rest of its steps.

        ``children``: how many it has enqueued last. NULL for a job that is due at another time than that of its wait:
        a limit has moved it, or it is to be tried again.
        """

    @abstractmethod
    def wake_parents(self, job_ids: Collection[str], now: int) -> None:
        """Make those of these jobs due that wait for children, and have none any more that is unfinished.

        The settlement of children has gone before it, in the same transaction.
        """
