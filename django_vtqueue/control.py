"""What people do with jobs that nobody holds: run them now, delete them."""

from collections.abc import Iterable
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from . import states
from .bells import ring_after_commit
from .engines import backend_options, database_of, engine_for
from .ids import parse_id
from .models import Job


def run_now(job_ids: Iterable[UUID | str], using: str | None = None) -> list[UUID]:
    """Make jobs that wait for a later time, or for a retry, due at once, and wake the workers.

    ``using``: a database alias (default: the one of your settings). Returns the ids of those that were changed; one
    that is due already, held by a worker, or done is left out.
    """
    options = backend_options(using)
    database = using or database_of(options)
    now = engine_for(database).now()
    jobs = Job.objects.using(database).filter(pk__in=[job_id for given in job_ids if (job_id := parse_id(given))])
    with transaction.atomic(using=database):
        # The write comes first: on SQLite a transaction that has read is refused the lock instead of waiting for it.
        jobs.filter(state=states.READY, visible_at__gt=now).update(visible_at=now)
        changed = list(jobs.filter(state=states.READY, visible_at=now).values_list("pk", flat=True))
        ring_after_commit(database, options.doorbells)
    return changed


def delete(job_ids: Iterable[UUID | str], using: str | None = None) -> list[UUID]:
    """Delete jobs, waiting or done, unless a worker holds them; see run_now. Returns the ids of those that are gone."""
    database = using or database_of(backend_options())
    ids = [job_id for given in job_ids if (job_id := parse_id(given))]
    held = Q(state=states.RUNNING, visible_at__gt=engine_for(database).now())
    jobs = Job.objects.using(database).filter(pk__in=ids)
    with transaction.atomic(using=database):
        jobs.exclude(held).delete()
        left = set(jobs.values_list("pk", flat=True))
    return [job_id for job_id in ids if job_id not in left]
