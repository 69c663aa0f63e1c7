"""Workers and the tables that they need."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.project import tasks

from ..waiting import wait_until
from . import inside
from .database import Database
from .running import MANAGE, Start

if TYPE_CHECKING:
    from .server_database import ServerDatabase


def test_without_tables_a_worker_says_what_to_do_and_waits(
    database: Database, start: Start, start_worker: Start
) -> None:
    """A worker that is started before ``migrate`` names the command, once, and goes on by itself when it was run."""
    assert start(MANAGE, "migrate", "vtqueue", "zero").wait() == 0
    worker = start_worker(ready=False)
    worker.wait_for("the queue's tables are missing; run: python manage.py migrate vtqueue. Waiting for it.")
    assert start(MANAGE, "migrate", "vtqueue").wait() == 0
    worker.wait_ready()
    job_id = database.enqueue(tasks.add, 1, 2)
    database.wait_for(job_id)
    assert worker.log.count("Waiting for it.") == 1
    assert "Traceback" not in worker.log


def test_without_tables_a_drain_does_not_wait(database: Database, start: Start, start_worker: Start) -> None:
    """The next one comes anyway, where cron starts them: they would all wait side by side."""
    assert start(MANAGE, "migrate", "vtqueue", "zero").wait() == 0
    worker = start_worker("--drain", ready=False)
    assert worker.wait() == 1
    assert "the queue's tables are missing; run: python manage.py migrate vtqueue." in worker.log


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_database_that_is_not_there(database: "ServerDatabase", start_worker: Start) -> None:
    """A worker waits for it, for it may be restored; a drain does so for a while, then says why it ends."""
    missing = {"VTQUEUE_TEST_CONNECTION": json.dumps({**database.settings(), "NAME": "nowhere"})}
    worker = start_worker(ready=False, **missing)
    soon = inside.tuned(reached=0.2, tables_look=0.05)
    drain = start_worker("--drain", ready=False, constants=soon, **missing)
    assert drain.wait() == 1
    assert re.fullmatch(r"CommandError: Database 'default': .*\"nowhere\" does not exist", drain.log.splitlines()[-1])
    assert "Traceback" not in drain.log
    worker.wait_for('"nowhere" does not exist); waiting.')
    assert not worker.ended()


def test_a_file_that_cannot_be_opened(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """That of SQLite may be in a folder that is not there yet: a drain waits no longer for it than for a server."""
    soon = inside.tuned(reached=0.2, tables_look=0.05)
    missing = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "none" / "db.sqlite3")}
    drain = start_worker("--drain", ready=False, constants=soon, VTQUEUE_TEST_CONNECTION=json.dumps(missing))
    assert drain.wait() == 1
    assert drain.log.splitlines()[-1] == "CommandError: Database 'default': unable to open database file"


def test_with_tables_of_a_newer_version_a_worker_says_so_and_waits(database: Database, start_worker: Start) -> None:
    """A worker that is older than the tables says how to upgrade it, and does not touch them."""
    database.write("INSERT INTO django_migrations (app, name, applied) VALUES ('vtqueue', '9999_future', '2030-01-01')")
    job_id = database.enqueue(tasks.add, 1, 2)
    worker = start_worker(ready=False)
    worker.wait_for("the queue's tables are ahead of this code (9999_future)")
    assert database.job(job_id)["claims"] == 0
    database.write("DELETE FROM django_migrations WHERE name = '9999_future'")
    database.wait_for(job_id)


def test_tables_that_vanish_are_waited_for(database: Database, start_worker: Start) -> None:
    """Tables that are gone for a while, as in the middle of a restore, cost a line in the log, not the worker."""
    worker = start_worker()
    wait_until(database.workers)
    database.write("ALTER TABLE vtqueue_job RENAME TO elsewhere")
    worker.wait_for("the queue's tables are missing or of another version")
    database.write("ALTER TABLE elsewhere RENAME TO vtqueue_job")
    job_id = database.enqueue(tasks.add, 1, 2)
    database.wait_for(job_id)
    assert worker.log.count("the queue's tables") == 1
    assert "Traceback" not in worker.log
