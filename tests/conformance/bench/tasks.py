"""What tasks do beyond a call: steps, waits, events, and transactions with their own writes."""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from django_vtqueue.core import steps
from django_vtqueue.engines import Engine
from django_vtqueue.execution.connections import close_leftovers
from django_vtqueue.execution.transactional import Lost, settle_with
from django_vtqueue.models import Job
from django_vtqueue.queue.claims import start_attempt
from tests.fake_clock import at

from .endings import Ending, Held


class JobLost(Exception):
    """The task of a job was not called, or what it wrote was rolled back: another worker holds the job."""


class Tasks:
    """The part of a bench that is for durable and transactional tasks."""

    engine: Engine
    transaction: Callable[[], AbstractContextManager[None]]

    # Durable tasks

    def steps(self, job: Held) -> Any:
        """Return what its holder reads of the steps of a job, and of its earlier ones; None: it is not held."""
        return self.engine.steps(job)

    def note_steps(
        self, job: Held, done: Sequence[dict[str, Any]], event: int | None = None
    ) -> tuple[int, bool] | None:
        """Write what a job has done: its bytes, and whether it is to give its slot back; None: it is not held.

        ``event``: the index of an event that this takes out.
        """
        return self.engine.write_steps(job, json.dumps(done), at(1), event)

    def send_event(self, job_id: str, name: str, value: Any, now: float) -> str | None:
        """Send an event; return the queue of the job, None if there is no such job that could get it."""
        event = json.dumps({"name": name, "value": value})
        found = self.engine.send_event(name, event, at(now), job_id=job_id)
        return found and found[0]

    def wake_parents(self, *job_ids: str, now: float) -> None:
        """Make those of these jobs due that wait for children, of which none is unfinished."""
        with self.transaction():
            self.engine.wake_parents(job_ids, at(now))

    def all_that_wait(self) -> dict[str, bool]:
        """Return, of the jobs whose tasks wait, whether it can be read what for, as lists show it."""
        rows = Job.objects.using(self.engine.alias).annotate(waits=self.engine.waits()).exclude(waits=None)
        return {row.pk.hex: steps.said_to_wait(row.waits) is not None for row in rows}

    # Transactional tasks

    def settle_with(self, job: Held, seconds: float, call: Callable[[], Ending]) -> None:
        """Commit what ``call`` writes and the ending that it returns as one; raise JobLost."""
        try:
            settle_with(self.engine, job, seconds, call)
        except Lost as error:
            raise JobLost from error

    def task_transaction(self, seconds: float) -> AbstractContextManager[None]:
        """Hold the right to write in a transaction of a task; after so many seconds it is rolled back."""
        return self.engine.task_transaction(seconds)

    def in_transaction(self) -> bool:
        return self.engine.private()

    def tidy_connections(self) -> None:
        """Do what a worker does with its connections after each job."""
        close_leftovers(inline=False)

    def begin_in_turn(self, job: Held, now: float = 1) -> bool:
        """Begin an attempt that has waited for its turn; return whether it may."""
        return start_attempt(self.engine, job, at(now))
