"""Statements of PostgreSQL with a limit: they change no more rows, and mean the first ones, whatever is planned."""

import pytest
from django.db import connections

from django_vtqueue.core.clock import LAST_INSTANT
from django_vtqueue.core.ids import new_id
from django_vtqueue.core.job import NewJobs
from django_vtqueue.engines import Engine, engine_for
from django_vtqueue.models import DeadLetter, Job
from tests.fake_clock import at

LOOPS = [("hashjoin", "hashagg", "sort", "material"), ("sort", "material", "indexscan")]
COUNT, MANY = 8, 3000


@pytest.fixture(params=LOOPS, ids=["", "without indexes"])
def engine(request: pytest.FixtureRequest, postgresql_database: str) -> Engine:
    """Return an engine whose rows are joined by loops, as may be when few are left of many; it has some jobs."""
    engine = engine_for(postgresql_database)
    publish(engine, MANY)
    with connections[postgresql_database].cursor() as cursor:
        cursor.execute("VACUUM ANALYZE vtqueue_job")
        Job.objects.using(engine.alias).all().delete()
        cursor.execute("VACUUM vtqueue_job")
        for name in request.param:
            cursor.execute(f"SET enable_{name} = off")
    publish(engine, COUNT)
    return engine


def publish(engine: Engine, count: int) -> None:
    jobs = [(new_id(), "{}") for _ in range(count)]
    keys: list[str | None] = ["key"] * count
    new = NewJobs("q", "a.b", 0, 3, 60_000_000, at(0), at(0), jobs, concurrency_keys=keys, rate_keys=keys)
    engine.insert_with_keys(new)


@pytest.mark.parametrize("kind", [Job, DeadLetter])
def test_prune(engine: Engine, kind: type[Job] | type[DeadLetter]) -> None:
    jobs = Job.objects.using(engine.alias)
    if kind is Job:
        jobs.update(state="SUCCESSFUL", worker_id="w", finished_at=at(1), kept_until=at(2))
    else:
        for job_id in jobs.values_list("pk", flat=True):
            DeadLetter.objects.using(engine.alias).create(
                id=job_id, enqueued_at=at(0), died_at=at(1), kept_until=at(2), max_attempts=1, lease_us=1, payload="{}"
            )
    assert engine.prune(at(3), 2) == 2
    assert kind._default_manager.using(engine.alias).count() == COUNT - 2


def test_unbook(engine: Engine) -> None:
    Job.objects.using(engine.alias).update(state="SCHEDULED", moved_from=at(0), wake_at=at(9))
    assert engine.unbook("key", at(1), 2) == 2


def test_unpark(engine: Engine) -> None:
    Job.objects.using(engine.alias).update(state="BLOCKED", wake_at=LAST_INSTANT)
    assert engine.unpark({"key": 2}) == 2
