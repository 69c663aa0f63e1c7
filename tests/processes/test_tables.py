"""Workers and the tables that they need."""

from tests.project import tasks

from ..waiting import wait_until
from .conftest import MANAGE, Start
from .database import Database


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
