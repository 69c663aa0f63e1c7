"""Leases that end while their holders are alive: a lock, a standstill, an extension, and what may be taken when."""

import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from django_vtqueue import Queue
from tests.project import tasks

from ..conftest import ALIAS
from ..waiting import wait_until
from .database import Database
from .held import begin, executions
from .inside import SECOND, lease_taken, now
from .running import PATIENCE, Start

LEASE = 5.0  # seconds: a holder has a third of it after a lock, which is enough on a busy machine too


def lock_around_the_end(database: Database, job_id: str, after: float) -> None:
    """Hold the write lock from just after a renewal until ``after`` seconds beyond the end of the lease."""
    before = database.job(job_id)["visible_at"]
    wait_until(lambda: database.job(job_id)["visible_at"] != before, PATIENCE, every=0.002)
    with database.locked():
        ends_at = database.job(job_id)["visible_at"] / SECOND
        time.sleep(max(ends_at + after - time.time(), 0))


def wait_until_renewed(database: Database, job_id: str) -> None:
    wait_until(lambda: database.job(job_id)["visible_at"] > now())


def test_a_lock_that_ends_around_the_end_of_a_lease(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """Its holder renews it before an idle worker may take the job, which had its only attempt.

    Also where the idle worker comes just when it may take the job, and gets the lock at its first try.
    """
    database.options |= {"visibility_timeout": LEASE, "max_attempts": 1}
    workers = [start_worker("--threads", "1") for _ in range(2)]
    job_id = begin(database, tmp_path)
    for after in (0.03, LEASE / 10 - 0.001, 0.5):
        lock_around_the_end(database, job_id, after)
        wait_until_renewed(database, job_id)
    (tmp_path / "go").touch()
    database.wait_for(job_id)
    assert database.job(job_id)["claims"] == 1
    assert not any(worker.lines("lost") for worker in workers)


def test_moments_between_locks_after_the_end_of_a_lease(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """However long a lock has lasted beyond the end of a lease, its holder renews it in the first moment after it."""
    database.options["visibility_timeout"] = LEASE
    start_worker("--threads", "1")
    job_id = begin(database, tmp_path)
    for _ in range(12):  # a machine with much to do may miss some
        lock_around_the_end(database, job_id, 2.1)
        time.sleep(0.05)
        with database.locked():
            renewed = database.job(job_id)["visible_at"] > now()
        wait_until_renewed(database, job_id)
        if renewed:
            break
    (tmp_path / "go").touch()
    database.wait_for(job_id)
    assert renewed


def test_a_lock_around_the_end_of_a_consumers_lease(database: Database, start: Start, tmp_path: Path) -> None:
    """The same holds between two processes that handle raw jobs by ``Queue.run``."""
    database.options["visibility_timeout"] = LEASE
    for _ in range(2):
        start("-m", "tests.processes.consumer", str(tmp_path)).wait_for("ready")
    job_id = Queue("raw", using=ALIAS, visibility_timeout=LEASE).publish("held").hex
    wait_until((tmp_path / "held-1").exists)
    for after in (0.03, 0.5):
        lock_around_the_end(database, job_id, after)
        wait_until_renewed(database, job_id)
    (tmp_path / "go").touch()
    database.wait_for(job_id)
    assert database.job(job_id)["claims"] == 1


@pytest.mark.parametrize("first", [0, 1], ids=["holder-first", "idle-first"])
def test_a_standstill_beside_a_lease_that_its_task_has_given(
    database: Database, start_worker: Start, tmp_path: Path, first: int
) -> None:
    """By the row's own lease: it does not matter that the settings know no queue with one as short."""
    workers = [start_worker("--threads", "1") for _ in range(2)]
    job_id = database.enqueue(tasks.hold_on_a_short_lease, str(tmp_path))
    [holder] = wait_until(lambda: executions(tmp_path))
    workers.sort(key=lambda worker: (worker.pid != holder) ^ bool(first))
    for worker in workers:
        worker.stop()
    wait_until(lambda: database.job(job_id)["visible_at"] + SECOND < now())
    for worker in workers:
        worker.go_on()
        time.sleep(0.3)  # so long the other one is late, which is no wait for it
    wait_until_renewed(database, job_id)
    (tmp_path / "go").touch()
    database.wait_for(job_id)
    assert database.job(job_id)["claims"] == 1


def run_consumers(start: Start, start_worker: Start, folder: Path) -> None:
    for _ in range(2):
        start("-m", "tests.processes.consumer", str(folder), "tests.project.tasks.extend_and_hold").wait_for("ready")


def run_workers(start: Start, start_worker: Start, folder: Path) -> None:
    for _ in range(2):
        start_worker("--threads", "1")


@pytest.mark.parametrize("run", [run_consumers, run_workers])
def test_an_extension_in_a_handler_is_never_shorter(
    database: Database,
    start: Start,
    start_worker: Start,
    tmp_path: Path,
    run: Callable[[Start, Start, Path], None],
) -> None:
    """Where the lease is kept up, ``extend`` only makes it longer, and the visibility timeout stays what it is."""
    database.options["queue_options"] = {"raw": {"handler": "tests.project.tasks.extend_and_hold"}}
    run(start, start_worker, tmp_path)
    job_id = Queue("raw", using=ALIAS, visibility_timeout=60).publish([str(tmp_path), 0.5]).hex
    wait_until((tmp_path / "1started").exists)
    assert database.job(job_id)["visible_at"] > now() + 30 * SECOND
    assert database.job(job_id)["lease_us"] == 60 * SECOND
    (tmp_path / "go").touch()
    database.wait_for(job_id)
    assert database.job(job_id)["claims"] == 1


def test_a_delay_survives_the_start_of_workers(
    database: Database, start: Start, start_worker: Start, drain: Start, tmp_path: Path
) -> None:
    """What asked to be tried again in an hour, many of them claimed ahead, is not due because another worker starts."""
    ids = database.enqueue_many(tasks.come_again, [(3600.0,)] * 300)
    drain()
    drain()
    consumer = start("-m", "tests.processes.consumer", str(tmp_path))
    consumer.wait_for("ready")
    other = Queue("raw", using=ALIAS).publish("other").hex
    (tmp_path / "go").touch()
    database.wait_for(other)
    rows = database.rows("SELECT attempts, due_at > ? AS later FROM vtqueue_job WHERE id <> ?", now(), other)
    assert Counter((row["attempts"], row["later"]) for row in rows) == {(1, 1): len(ids)}


def test_an_interrupted_job_keeps_its_place_in_the_line(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """A worker that is killed, or stopped, in mid-job costs that job no place: it runs before all that came later."""
    order = tmp_path / "order"
    worker = start_worker("--threads", "1", "--shutdown-timeout", "0")
    first = begin(database, tmp_path)
    later = database.enqueue_many(tasks.note, [(str(order), str(number)) for number in range(20)])
    for times, stop in enumerate((signal.SIGKILL, signal.SIGTERM), start=2):
        worker.signal(stop)
        worker.wait()
        if stop == signal.SIGTERM:
            wait_until(lambda: database.job(first)["visible_at"] < now())
        worker = start_worker("--threads", "1", "--shutdown-timeout", "0", "--queues", "default", ready=False)
        wait_until(lambda: len(executions(tmp_path)) == times)  # noqa: B023
        assert not order.exists()
    (tmp_path / "go").touch()
    database.wait_for(first, *later)


def test_a_standstill_while_the_other_consumer_works(database: Database, start: Start, tmp_path: Path) -> None:
    """A pause of all processes is noticed by one whose handler ran through it, too, before it claims the next job."""
    database.options["visibility_timeout"] = lease = 12.0  # the other one leaves a third of it to the holder
    consumers = [start("-m", "tests.processes.consumer", str(tmp_path)) for _ in range(2)]
    for consumer in consumers:
        consumer.wait_for("ready")
    queue = Queue("raw", using=ALIAS, visibility_timeout=lease)
    jobs = []
    for payload in ("a", "b"):
        jobs.append(queue.publish(payload).hex)
        wait_until((tmp_path / f"{payload}-1").exists)
    holder = next(each for each in consumers if f":{each.pid}:" in database.job(jobs[0])["worker_id"])
    other = next(each for each in consumers if each is not holder)
    database.stop(*consumers)
    wait_until(lambda: all(database.job(job)["visible_at"] + SECOND < now() for job in jobs))
    (tmp_path / "go").touch()
    other.go_on()
    database.wait_for(jobs[1])
    time.sleep(0.5)  # it looks for the next job meanwhile
    holder.go_on()
    database.wait_for(*jobs)
    assert [database.job(job)["claims"] for job in jobs] == [1, 1]


@pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
def test_a_worker_that_claims_what_it_runs_does_not_begin_it_again(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """A job whose lease has ended, and comes back to the worker that runs it still, is held again, and runs once.

    So it is where no renewal was possible for a while, and another worker has ended the lease. What comes of the one
    run is the outcome.
    """
    worker = start_worker("--threads", "2")
    job_id = begin(database, tmp_path)
    lease_taken(database)
    wait_until(lambda: database.job(job_id)["claims"] == 2)
    (tmp_path / "go").touch()
    database.wait_for(job_id)
    assert (database.result(job_id), executions(tmp_path)) == ("go", [worker.pid])
    assert worker.terminate() == 0
    assert not worker.lines("lost")
