"""Behind PgBouncer in transaction mode, with fewer connections to the server than the worker has to it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pytest_django import DjangoDbBlocker

from django_vtqueue import Lease, Queue
from django_vtqueue.engines import engine_for
from django_vtqueue.models import Job
from tests import postgresql
from tests.conftest import reached
from tests.waiting import wait_until

from .projects import ServerProject, enqueue

SIZE = 2


@pytest.fixture
def pooled(
    postgresql_database: str, server: postgresql.Server, django_db_blocker: DjangoDbBlocker
) -> Iterator[dict[str, Any]]:
    postgresql.require_pgbouncer()
    with postgresql.pooled(server, SIZE) as settings:
        yield settings


def test_a_publisher_behind_a_pooler(pooled: dict[str, Any], postgresql_database: str) -> None:
    """It wakes those whose connection goes to the server itself."""
    rung: list[bool] = []
    with reached(pooled, "pooled") as alias, closing(engine_for(postgresql_database).listen(rung.append)) as listener:
        wait_until(lambda: listener.hears and rung)
        rung.clear()
        Queue("q", using=alias).publish({})
        wait_until(lambda: rung)


def test_a_worker_behind_a_pooler(tmp_path: Path, pooled: dict[str, Any], postgresql_database: str) -> None:
    """It says once that it cannot LISTEN, and finds by itself what is enqueued; limits and leases hold."""
    jobs = Job.objects.using(postgresql_database)
    project = ServerProject(tmp_path, pooled)
    with project.started("-m", "django", "vtworker", "--threads", "4") as worker, reached(pooled, "pooled") as alias:
        worker.wait_ready()
        enqueue(alias, 20, "shop.tasks.limited", concurrency_keys="key")
        wait_until(lambda: jobs.filter(state="SUCCESSFUL").count() == 20)
        assert project.most_at_once() == 2
        with Lease("nightly", ttl=30, using=alias) as lease:
            assert lease.token
            assert not Lease("nightly", ttl=30, using=postgresql_database).acquire(blocking=False)
        enqueue(alias, 1, "shop.tasks.limited", concurrency_keys="key")
        wait_until(lambda: jobs.filter(state="SUCCESSFUL").count() == 21)
        assert worker.terminate() == 0
    assert worker.log.count("it cannot LISTEN") == 1
