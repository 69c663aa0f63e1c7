"""The state of a job as pages and commands show it: its word, and what it waits for if it is not due."""

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

from django.db.models import Count
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..core import states, steps
from ..core.clock import LAST_INSTANT, from_instant, to_instant
from ..core.humanize import time_of
from ..core.text import printable
from ..engines import options_for
from ..models import DeadLetter, Job
from ..models.jobs import UNFINISHED
from ..queue.limits import NO_LIMITS, Limits
from ..tasks.lookup import find_task
from ..tasks.task import loaded_options


class Waits(NamedTuple):
    """What the task of a job waits for; see core/steps.py. ``children``: how many jobs a gather has enqueued."""

    kind: str
    name: str
    until: int
    since: int
    children: int


def state_word(entry: Job | DeadLetter, now: int) -> str:
    """Return the word of states.WORDS for a job or dead letter as it was read; ``now``: an instant.

    A job that was to start by now, and has not, is "expired" as one is whose lease has ended. What a worker gave back
    as it ended waits.
    """
    if isinstance(entry, DeadLetter):
        return "dead"
    if is_overdue(entry, now):
        return "expired"
    state = states.READY if entry.state == states.RUNNING and entry.queued else entry.state
    return states.word(state, to_instant(entry.visible_at), entry.attempts, now)


def is_overdue(entry: Job | DeadLetter, now: int) -> bool:
    """Return whether a job waits that was to start by now, so that it is never run."""
    if not isinstance(entry, Job) or not entry.queued or entry.start_by is None:
        return False
    return to_instant(entry.start_by) <= now


def is_parked(job: Job) -> bool:
    """Return whether a limit holds a job up until another one of its key ends."""
    return job.state == states.BLOCKED


def waits_of(job: Job) -> Waits | None:
    """Return what the task of a job waits for.

    The engine's ``waits`` says the same of rows that are read without their steps; with that as an annotation they are
    not read here.
    """
    if job.state != states.WAITING:
        return None
    if "waits" in vars(job):
        found = steps.said_to_wait(job.waits) if job.waits else None  # type: ignore[attr-defined]
    else:
        found = steps.waiting_of(job.steps) if job.steps else None
    if found is None:
        return None
    waiting, children = found
    return Waits(*waiting, children)


def waiting_sentence(job: Job, now: int, limits: Limits = NO_LIMITS) -> str:
    """Return what a job waits for and until when; "" for one that is due, held, done, or just scheduled."""
    if is_parked(job):
        return _("blocked by the limit '%(key)s'") % {"key": printable(job.concurrency_key or "")}
    if job.wake_at is None or to_instant(job.wake_at) <= now:
        return ""
    if job.moved_from is not None and job.rate_key:
        rate = (limits.task_options(job.task_path) or {}).get("rate", job.rate_key)
        return _("moved to %(time)s by the rate %(rate)s") % {"time": time_of(job.wake_at), "rate": rate}
    return task_waiting_sentence(job, waits) if (waits := waits_of(job)) else ""


def task_waiting_sentence(job: Job, waits: Waits) -> str:
    """Return what the task of a job waits for."""
    values = {"name": printable(waits.name), "time": time_of(from_instant(waits.until)), "all": waits.children}
    if waits.kind == steps.SLEEP:
        return _("sleeping until %(time)s ('%(name)s')") % values
    if waits.kind == steps.GATHER:
        values["left"] = min(unfinished(job), waits.children)
        text = ngettext(
            "waiting for %(left)s of %(all)s child ('%(name)s')",
            "waiting for %(left)s of %(all)s children ('%(name)s')",
            waits.children,
        )
        return text % values
    if waits.until == LAST_INSTANT:
        return _("waiting for '%(name)s'") % values
    return _("waiting for '%(name)s' until %(time)s") % values


def unfinished(job: Job) -> int:
    """Return how many children of a job have not ended."""
    if "unfinished" not in vars(job):
        count_children([job])
    return int(job.unfinished)  # type: ignore[attr-defined]


def count_children(jobs: Iterable[Job]) -> None:
    """Note for each of these jobs that wait for children how many have not ended, in one query for all."""
    parents = {job.pk: job for job in jobs if (waits := waits_of(job)) and waits.kind == steps.GATHER}
    if not parents:
        return
    database = next(iter(parents.values()))._state.db
    children = Job.objects.using(database).filter(UNFINISHED, parent_id__in=list(parents))
    counts: dict[UUID, int] = dict(children.values_list("parent_id").annotate(Count("pk")))
    for pk, job in parents.items():
        job.unfinished = counts.get(pk, 0)  # type: ignore[attr-defined]


def limits_for(queue_name: str, database: str | None = None, task_path: str = "") -> Limits:
    """Return the limits of the backend that serves a queue; ``database``: only of backends that use this alias.

    ``task_path``: a task whose limits are asked for, so that it is loaded.
    """
    limits = Limits(options_for(queue_name, database), loaded_options)
    if task_path:
        with suppress(Exception, SystemExit):  # what is wrong with it is told by its jobs, which fail
            find_task(task_path, limits.options.task_modules)
    return limits
