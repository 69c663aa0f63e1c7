"""How an attempt ends: what a holder asks for, and when it says so, in seconds from the start."""

from dataclasses import replace
from typing import Any, TypeAlias

from django_vtqueue.core import history, steps
from django_vtqueue.core.clock import LAST_INSTANT
from django_vtqueue.core.failures import recorded
from django_vtqueue.core.job import ClaimKey, HeldJob, StoredJob
from django_vtqueue.core.settlement import (
    Settlement,
    abandoned,
    failed,
    released,
    released_unfinished,
    snoozed,
    succeeded,
    suspended,
)
from django_vtqueue.core.steps import Waiting
from django_vtqueue.exceptions import WorkerDied
from django_vtqueue.queue.ended_leases import end_lease
from tests.fake_clock import at

from .moments import SECOND, seconds_at

EVENT, GATHER, SLEEP, SNOOZE = "event", "gather", "sleep", "snooze"  # what a task waits for

Held: TypeAlias = HeldJob  # a claimed job as its holder knows it; its attributes are the columns of the model
Stored: TypeAlias = StoredJob  # a row of either table as it is; ``state`` is FAILED for a dead letter
Ending: TypeAlias = Settlement


PARENT_WENT_ON = history.PARENT_WENT_ON  # the remark of a requeue that its parent does not see


class Boom(Exception):
    """What the jobs of these tests fail with."""


def claim_of(job: Held) -> ClaimKey:
    """Return what makes this claim of a job another one than the next claim of it: its id and its claim number."""
    return job.id, job.claims


def altered(job: Held, **values: Any) -> Held:
    """Return a holder's job with other values, as one has it that has no right to it."""
    return replace(job, **values)


def success(job: Held, result: str = "null", now: float = 1, ttl: float | None = None) -> Ending:
    """Return the acknowledgement; ``result``: JSON; ``ttl``: for so many seconds the row is kept (None: for good)."""
    return succeeded(job, result, at(now), None if ttl is None else round(ttl * SECOND))


def failure(
    job: Held, now: float, delay: float | None = 0, error: type[BaseException] = Boom, text: str = "no luck"
) -> Ending:
    """Return the failure of an attempt: it is tried again after ``delay`` seconds (None: never)."""
    wait = None if delay is None else round(delay * SECOND)
    return failed(job, history.FAILED, recorded(error, text), at(now), wait)


def release(job: Held, hidden_until: float | None = None) -> Ending:
    """Return the release of a job: no attempt is used; ``hidden_until``: its code may run until then."""
    ending = released(job)
    ending.held_until = None if hidden_until is None else at(hidden_until)
    return ending


def interruption(job: Held, now: float, hidden_until: float) -> Ending:
    """Return the release of a job whose worker stops; its code may run until then."""
    return released_unfinished(job, at(now), at(hidden_until))


def put_off(job: Held, seconds: float, now: float) -> Ending:
    """Return the end of an attempt whose task has put the job off."""
    return snoozed(job, seconds, at(now))


def suspension(job: Held, kind: str, name: str, until: float | None, now: float) -> Ending:
    """Return the end of an attempt whose task waits (``kind``: EVENT ...); ``until`` None: without an end."""
    return suspended(job, Waiting(kind, name, LAST_INSTANT if until is None else at(until), at(now)))


def death(job: Held, now: float) -> Ending:
    """Return the end of an attempt whose worker has died."""
    return abandoned(job, history.WORKER_DIED, recorded(WorkerDied, "It died."), at(now))


def lease_ended(job: Held, now: float) -> Ending:
    """Return the end of an attempt whose lease has ended."""
    return end_lease(job, at(now), "")


def was_cancelled(ending: Ending) -> bool:
    """Return whether a job that would wait again was buried, for it was asked to stop."""
    return ending.cancelled


def goes_on(ending: Ending) -> bool:
    """Return whether the job is unfinished after this end."""
    return ending.state == "READY"


def waits_for(stored: Any) -> tuple[str, str, float, float] | None:
    """Return what stored steps say that a task waits for: kind, name, until when, and since when."""
    waiting = steps.read(stored).waiting
    if waiting is None:
        return None
    return waiting.kind, waiting.name, seconds_at(waiting.until), seconds_at(waiting.since)


def made_steps(stored: Any, earlier: Any = None) -> list[str]:
    """Return the names of the finished steps in what a row has of them."""
    return [str(record["name"]) for record in steps.read(stored, earlier).done]
