"""No statement of PostgreSQL changes more rows than its limit, however the planner joins them."""

import pytest
from django.db import connections

from django_vtqueue.core.clock import LAST_INSTANT
from django_vtqueue.core.ids import new_id
from django_vtqueue.core.job import NewJobs
from django_vtqueue.engines import Engine, engine_for
from django_vtqueue.models import DeadLetter, Job
from tests.fake_clock import at

OFF = ("hashjoin", "hashagg", "sort", "material")
COUNT = 8


@pytest.fixture
def engine(postgresql_database: str) -> Engine:
    """Return an engine whose rows are joined by loops, as may be when a table seems to be small; it has some jobs."""
    with connections[postgresql_database].cursor() as cursor:
        for name in OFF:
            cursor.execute(f"SET enable_{name} = off")
    engine, jobs = engine_for(postgresql_database), [(new_id(), "{}") for _ in range(COUNT)]
    keys: list[str | None] = ["key"] * COUNT
    new = NewJobs("q", "a.b", 0, 3, 60_000_000, at(0), at(0), jobs, concurrency_keys=keys, rate_keys=keys)
    engine.insert_with_keys(new)
    return engine


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
    Job.objects.using(engine.alias).update(moved_from=at(0), due_at=at(9))
    assert engine.unbook("key", at(1), 2) == 2


def test_unpark(engine: Engine) -> None:
    Job.objects.using(engine.alias).update(moved_from=at(0), due_at=LAST_INSTANT)
    assert engine.unpark({"key": 2}) == 2
