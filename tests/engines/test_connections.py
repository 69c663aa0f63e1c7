"""The ways in which a project connects to PostgreSQL: on each a queue works as it does by default."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from pytest_django import DjangoDbBlocker

from django_vtqueue import ClaimedJob, Lease, Queue, throughput
from django_vtqueue.core.clock import to_instant
from django_vtqueue.engines import engine_for
from django_vtqueue.models import Job
from tests.conftest import reached
from tests.waiting import wait_until

from .projects import ServerProject, enqueue

JOBS = 80
BELLS = 'TASKS["default"]["OPTIONS"] = {}\n'  # they prove the death of a worker
ROUTER = """
    class Router:
        def db_for_read(self, model, **hints):
            return "replica"

        def db_for_write(self, model, **hints):
            return "default"
"""
REPLICA = """
    DATABASES["replica"] = {**DATABASES["default"], "OPTIONS": {"options": "-c search_path=nothing"}}
    DATABASE_ROUTERS = ["shop.router.Router"]
"""
SERIALIZABLE = {"isolation_level": 4, "options": "-c default_transaction_isolation=serializable"}
WAYS: dict[str, tuple[dict[str, Any], str]] = {
    "a pool, SERIALIZABLE": ({"OPTIONS": {"pool": {"min_size": 1, "max_size": 2}, **SERIALIZABLE}}, ""),
    "a schema, CONN_MAX_AGE=None": ({"OPTIONS": {"options": "-c search_path=jobs"}, "CONN_MAX_AGE": None}, ""),
    "prepared statements": ({"OPTIONS": {"server_side_binding": True, "prepare_threshold": 1}}, ""),
    "a replica, REPEATABLE READ": ({"OPTIONS": {"isolation_level": 3}}, REPLICA),
}


def require_pool() -> None:
    """Skip the test where psycopg has no pool; fail it where CI says that there is one."""
    if not find_spec("psycopg_pool"):
        (pytest.fail if os.environ.get("CI") else pytest.skip)("psycopg_pool is missing (pip install 'psycopg[pool]')")


@pytest.mark.parametrize("way", WAYS)
def test_two_workers_and_a_kill(
    tmp_path: Path,
    migrated: dict[str, Any],
    postgresql_database: str,
    django_db_blocker: DjangoDbBlocker,
    way: str,
) -> None:
    """Of two workers one is killed: all jobs end, also those that it held, and no more than two of a key at once.

    What the other one has counted is read.
    """
    options, settings = WAYS[way]
    database = {**migrated, **options}
    with connections[postgresql_database].cursor() as cursor:
        cursor.execute("DROP SCHEMA IF EXISTS jobs CASCADE; CREATE SCHEMA jobs")
    project = ServerProject(tmp_path, database, BELLS + dedent(settings))
    project.write("shop/router.py", ROUTER)
    with reached(database, "ours") as alias, ExitStack() as stack:
        if "pool" in way:
            require_pool()
            stack.callback(lambda: connections[alias].close_pool())  # type: ignore[attr-defined]
        if "schema" in way:
            call_command("migrate", database=alias, verbosity=0)
        jobs = Job.objects.using(alias)
        enqueue(alias, JOBS, "shop.tasks.limited", concurrency_keys="key")
        worker = ("-m", "django", "vtworker")
        with project.started(*worker, log="killed") as killed, project.started(*worker) as other:
            wait_until(lambda: jobs.filter(state="SUCCESSFUL").count() > 10 or killed.ended())
            killed.signal(signal.SIGKILL)
            wait_until(lambda: jobs.filter(state="SUCCESSFUL").count() == JOBS or other.ended())
            assert other.terminate() == 0, other.log
        [flow] = throughput.read(alias).values()
        assert 0 < sum(flow.succeeded) <= JOBS
        assert project.most_at_once() == 2
        assert "Traceback" not in killed.log + other.log


@contextmanager
def small_pool(migrated: dict[str, Any]) -> Iterator[str]:
    """Yield an alias that has one connection for all threads."""
    database = {**migrated, "OPTIONS": {**migrated["OPTIONS"], "pool": {"min_size": 1, "max_size": 1}}}
    with reached(database, "ours") as alias:
        try:
            yield alias
        finally:
            connections[alias].close_pool()  # type: ignore[attr-defined]


def test_a_leader_whose_pool_is_used_up(
    migrated: dict[str, Any], postgresql_database: str, django_db_blocker: DjangoDbBlocker
) -> None:
    """Its lease is renewed all the same, by a connection outside of the pool."""
    require_pool()
    with small_pool(migrated) as alias, Lease("nightly", ttl=1, using=alias) as lease:
        assert connections[alias].connection  # the only one of the pool
        time.sleep(2)
        assert lease.held


def test_a_handler_that_uses_the_pool_up(
    migrated: dict[str, Any], postgresql_database: str, django_db_blocker: DjangoDbBlocker
) -> None:
    """The lease of its job is renewed all the same, by a connection outside of the pool."""
    require_pool()
    stop, left = threading.Event(), list[int]()

    def handle(claimed: ClaimedJob) -> None:
        connections[alias].ensure_connection()  # the only one of the pool
        time.sleep(2)
        until = Job.objects.using(alias).values_list("lease_until", flat=True).get()
        left.append(to_instant(until) - engine_for(alias).now())
        stop.set()

    with small_pool(migrated) as alias:
        queue = Queue("sensors", using=alias, visibility_timeout=1)
        queue.publish(1)
        queue.run(handle, stop=stop)
        assert left[0] > 0
        assert Job.objects.using(alias).get().state == "SUCCESSFUL"
