"""Rows that are discarded: jobs that no worker holds, and dead letters."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from django.db.models import Q

from ..core import states
from ..engines import database_for, engine_for
from .batches import change_in_batches
from .named_jobs import Named


def discard_jobs(job_ids: Named, *, using: str | None = None) -> list[UUID]:
    """Delete jobs, waiting or done, unless a worker holds them; see control.run_now. Return the ids of those gone.

    Dead letters are left as they are.
    """
    from ..models import DeadLetter, Job  # this module is imported before the apps are ready
    from ..models.jobs import RESERVED

    database = database_for(using)
    held = Q(lease_until__gt=engine_for(database).now()) | Q(state=states.RUNNING, copies__isnull=False)

    def discard_some(ids: Sequence[UUID]) -> Iterable[UUID]:
        jobs = Job.objects.using(database).filter(pk__in=ids)
        # Not delete(): where a project listens to that, it reads first.
        jobs.exclude(held | RESERVED)._raw_delete(database)
        letters = DeadLetter.objects.using(database).filter(pk__in=ids)
        return set(ids).difference(jobs.values_list("pk", flat=True), letters.values_list("pk", flat=True))

    return change_in_batches(job_ids, Job, database, discard_some)


def discard_letters(letters: Named, *, using: str | None = None) -> list[UUID]:
    """Delete dead letters; see dead_letters.requeue. Return the ids of those gone; jobs are left as they are."""
    from ..models import DeadLetter, Job

    database = database_for(using)

    def discard_some(ids: Sequence[UUID]) -> Iterable[UUID]:
        found = DeadLetter.objects.using(database).filter(pk__in=ids)
        found._raw_delete(database)
        jobs = Job.objects.using(database).filter(pk__in=ids)  # one may have been requeued
        return set(ids).difference(found.values_list("pk", flat=True), jobs.values_list("pk", flat=True))

    return change_in_batches(letters, DeadLetter, database, discard_some)
