"""A user of a PostgreSQL server who lacks a right on a table of the queue."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, connections

from django_vtqueue.engines import Engine, new_engine
from django_vtqueue.models import DeadLetter, Job
from django_vtqueue.moving.move import PATIENCE

from ..waiting import wait_until
from .projects import ServerProject, enqueue

USER = "vtqueue_clerk"
MAY_DO_ALL = f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {USER}"
LACKED = "its user lacks SELECT, INSERT, UPDATE or DELETE on a table (permission denied for table vtqueue_deadletter)"
ONCE = """
from django_vtqueue import task

@task(max_attempts=1)
def once():
    with open("runs", "a") as runs:
        runs.write("x")
    raise KeyError("x")
"""

RECURRING = """
from django_vtqueue import recurring, task
from django_vtqueue.worker import schedules

schedules.MINUTE = 1.0

@task
def noop():
    pass

@recurring(every=1)
@task
def tick():
    pass
"""

OLD = """
DATABASES["old"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}
TASKS["default"]["OPTIONS"]["database"] = "old"
"""


@pytest.fixture
def engine(postgresql_database: str) -> Iterator[Engine]:
    """Return the engine of a user who may do all; another one may write no dead letters."""
    engine = new_engine(postgresql_database, traced=False)
    said(engine, f"CREATE ROLE {USER} LOGIN", MAY_DO_ALL, f"REVOKE INSERT ON vtqueue_deadletter FROM {USER}")
    yield engine
    said(engine, f"DROP OWNED BY {USER}", f"DROP ROLE {USER}")


def said(engine: Engine, *statements: str) -> None:
    with connections[engine.alias].cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def test_a_worker_waits_for_a_right(tmp_path: Path, migrated: dict[str, Any], engine: Engine) -> None:
    """It says once on which table a right is missing, runs nothing a second time, and goes on when it is granted."""
    project = ServerProject(tmp_path, {**migrated, "USER": USER}, tasks=ONCE)
    project.python("from shop.tasks import once; once.enqueue()")
    with project.started("-m", "django", "vtworker") as worker:
        wait_until(lambda: "waiting" in worker.log or worker.ended())
        said(engine, MAY_DO_ALL)
        wait_until(lambda: "dead  " in worker.log or worker.ended())
        assert worker.log.count(f"{LACKED}; waiting.") == worker.log.count("lacks") == 1
    assert (tmp_path / "runs").read_text() == "x"
    assert DeadLetter.objects.using(engine.alias).get().exception_class == "builtins.KeyError"


def test_jobs_go_on_without_a_right_on_schedules(tmp_path: Path, migrated: dict[str, Any], engine: Engine) -> None:
    """A worker runs jobs, says once on which table the right is missing, and looks after schedules when it has it."""
    said(engine, MAY_DO_ALL, f"REVOKE INSERT ON vtqueue_schedule FROM {USER}")
    project = ServerProject(tmp_path, {**migrated, "USER": USER}, tasks=RECURRING)
    with project.started("-m", "django", "vtworker") as worker:
        worker.wait_for("permission denied for table vtqueue_schedule")
        for _ in range(2):
            enqueue(engine.alias)
            wait_until(lambda: not Job.objects.using(engine.alias).filter(finished_at=None).exists())
            time.sleep(1.5)  # for it to look again
        assert worker.log.count("vtqueue_schedule") == 1
        assert "waiting" not in worker.log
        said(engine, MAY_DO_ALL)
        wait_until(lambda: Job.objects.using(engine.alias).filter(task_path="shop.tasks.tick").exists())


def test_what_is_overdue_is_buried_where_nothing_may_be_deleted(
    tmp_path: Path, migrated: dict[str, Any], engine: Engine
) -> None:
    """Without DELETE on the dead letters they are kept for ever, and the rest of the maintenance is done."""
    said(engine, MAY_DO_ALL, f"REVOKE DELETE ON vtqueue_deadletter FROM {USER}")
    enqueue(engine.alias)
    Job.objects.using(engine.alias).update(state="SUCCESSFUL", worker_id="w", finished_at=1, kept_until=1)
    enqueue(engine.alias)
    Job.objects.using(engine.alias).filter(finished_at=None).update(start_by=1)
    project = ServerProject(tmp_path, {**migrated, "USER": USER})
    with project.started("-m", "django", "vtworker", "--queues", "other") as worker:
        worker.wait_for("permission denied for table vtqueue_deadletter")
        assert DeadLetter.objects.using(engine.alias).exists()


def test_a_command_says_which_right_is_missing(tmp_path: Path, migrated: dict[str, Any], engine: Engine) -> None:
    """Its error names the table, without a traceback."""
    said(engine, f"REVOKE SELECT ON vtqueue_deadletter FROM {USER}")
    found = ServerProject(tmp_path, {**migrated, "USER": USER}).manage("vtqueue", "status")
    assert found.startswith("exit 1\nCommandError: Database 'default': permission denied for table vtqueue_deadletter")


def test_a_trigger_that_refuses_one_row_is_no_missing_right(engine: Engine) -> None:
    """The project's own trigger may say so of a row: other jobs go on."""
    said(
        engine,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " RAISE EXCEPTION 'not this one' USING ERRCODE = 'insufficient_privilege'; END $$",
        "CREATE TRIGGER refuse BEFORE INSERT ON vtqueue_rate FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    with pytest.raises(DatabaseError) as raised:
        said(engine, "INSERT INTO vtqueue_rate VALUES ('x', 1, 1)")
    said(engine, "DROP TRIGGER refuse ON vtqueue_rate", "DROP FUNCTION refuse")
    assert engine.trouble(raised.value) is None


def test_a_move_says_which_right_is_missing(tmp_path: Path, migrated: dict[str, Any], engine: Engine) -> None:
    """Its error names what the target refuses, without a traceback, whatever database the backend has: at once."""
    said(engine, f"REVOKE SELECT ON vtqueue_job FROM {USER}")
    project = ServerProject(tmp_path, {**migrated, "USER": USER}, settings=OLD)
    project.manage("migrate", "--database", "old")
    began = time.monotonic()
    for options in (["--dry-run"], []):
        if not options:
            said(engine, MAY_DO_ALL, f"REVOKE INSERT ON vtqueue_job FROM {USER}")
        found = project.manage("vtqueue", "move", "--from", "old", "--to", "default", *options)
        assert "CommandError: Stopped: its user lacks SELECT, INSERT, UPDATE or DELETE on a table (permission" in found
        assert "Traceback" not in found
    assert time.monotonic() - began < PATIENCE
