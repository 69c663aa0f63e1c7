"""Wall clocks that are stepped under running workers, and workers that are stopped for longer than their leases."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from django_vtqueue import Queue
from tests.project import tasks

from ..conftest import ALIAS
from ..processes.database import Database
from ..processes.held import begin, executions
from ..processes.running import MANAGE, Start
from ..waiting import wait_until
from . import words
from .inside import LOOK_AT_CLOCKS, SILENCE
from .wall_clock import WallClock

HOUR, YEARS = 3600, 10 * 365 * 86_400
SHORT = 8  # seconds of a lease that a test waits for; a third of it is enough for a busy machine
AT_ONCE = 10  # seconds: a busy machine is slow, but a lease of a minute is not renewed so soon by itself
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler (cc) is needed to step a clock")


@pytest.fixture
def wall(tmp_path: Path) -> WallClock:
    return WallClock(tmp_path)


@pytest.fixture
def short_lease(database: Database) -> None:
    database.options["visibility_timeout"] = SHORT


def hold_many(database: Database, folder: Path, count: int) -> list[str]:
    """Have the workers begin jobs that run on, one after the other, so that more than one may get some."""
    return [begin(database, folder, f"{number}-") for number in range(count)]


def wait_until_renewed(database: Database, clock: Callable[[], int], jobs: list[str]) -> None:
    """Wait until the lease of each job ends within one lease from now, by this clock; it must happen at once."""

    def renewed() -> bool:
        now, rows = clock(), [database.job(job_id) for job_id in jobs]
        return all(now < row["visible_at"] <= now + row["lease_us"] for row in rows)

    wait_until(renewed, AT_ONCE)


def holders(database: Database, jobs: list[str]) -> set[str]:
    """Return the workers that hold these jobs; fail if one was claimed twice."""
    assert [database.job(job_id)["claims"] for job_id in jobs] == [1] * len(jobs)
    return {database.job(job_id)["worker_id"] for job_id in jobs}


def take_a_turn(database: Database) -> None:
    """Have each worker run a job of its own queue: then it knows what time it is."""
    jobs = [database.enqueue(tasks.add.using(queue_name=f"own{number}"), 1, number) for number in range(2)]
    database.write("UPDATE vtqueue_job SET due_at = 1 WHERE state = 'READY'")  # by any clock
    database.wait_for(*jobs)


def clock_of(database: Database, wall: WallClock) -> Callable[[], int]:
    """Return the clock of leases and heartbeats: that of the machine, which is stepped, or that of a server."""
    return wall.now if type(database) is Database else words.now


def present(database: Database, wall: WallClock) -> int:
    """Return how many workers have a heartbeat of this time."""
    now = clock_of(database, wall)
    return sum(abs(row["heartbeat_at"] - now()) < SILENCE * words.SECOND for row in database.workers())


def finish(database: Database, folder: Path, jobs: list[str]) -> None:
    """Let the jobs of ``hold_many`` end; fail unless each was executed once, and succeeded."""
    for number in range(len(jobs)):
        (folder / f"{number}-go").touch()
    database.wait_for(*jobs)
    assert [len(executions(folder, f"{number}-")) for number in range(len(jobs))] == [1] * len(jobs)
    assert [database.result(job_id) for job_id in jobs] == [f"{number}-go" for number in range(len(jobs))]
    holders(database, jobs)


@needs_compiler
@pytest.mark.parametrize("step", [HOUR, YEARS])
def test_a_step_of_the_clock_takes_no_job_from_its_holder(
    database: Database, start_worker: Start, wall: WallClock, tmp_path: Path, step: int
) -> None:
    """Forward all leases look expired, backward endless; each is renewed at once, by its holder, there and back."""
    workers = [
        start_worker("--threads", "7", "--queues", f"default,own{number}", ready=False, **wall.variables)
        for number in range(2)
    ]
    for worker in workers:
        worker.wait_ready()
    jobs = hold_many(database, tmp_path, 6)
    for offset in (step, 0, -step, 0):
        wall.set(offset)
        take_a_turn(database)
        wait_until_renewed(database, clock_of(database, wall), jobs)
        wait_until(lambda: present(database, wall) == 2)
        holders(database, jobs)
    finish(database, tmp_path, jobs)
    after = database.enqueue(tasks.add, 1, 2)
    database.wait_for(after)
    for worker in workers:
        assert not worker.lines("lost")
        assert "Traceback" not in worker.log


@pytest.mark.sqlite("its clock is the machine's, which was ahead; that of a server: test_several_machines.py")
@pytest.mark.usefixtures("short_lease")
@needs_compiler
def test_nothing_waits_for_the_time_of_a_clock_that_was_ahead(
    database: Database, start_worker: Start, start: Start, wall: WallClock, tmp_path: Path
) -> None:
    """A worker that starts with the right clock runs what was published, claimed and put off by one that was ahead."""
    database.options["doorbells"] = str(tmp_path / ("too long" * 20))  # a lease must end by itself
    wall.set(YEARS)
    killed = start_worker("--max-jobs", "2", **wall.variables)
    held = database.enqueue(tasks.hold, str(tmp_path))
    failed = database.enqueue(tasks.raise_later)
    wait_until(lambda: (tmp_path / "started").exists() and killed.lines("retry"))
    publish = f"from tests.project.tasks import note; note.enqueue({str(tmp_path / 'noted')!r}, 'done')"
    assert start(MANAGE, "shell", "-c", publish, **wall.variables).wait() == 0
    killed.kill()
    wall.set(0)
    (tmp_path / "go").touch()
    start_worker(**wall.variables)
    wait_until(lambda: database.succeeded(held) and (tmp_path / "noted").exists())
    assert database.outcomes(held) == ["lease expired"]
    wait_until(lambda: len(database.history(failed)) == 2)
    assert database.job(failed)["visible_at"] < wall.now() + 1_200_000_000  # by its own backoff
    [dead, _] = sorted(database.workers(), key=lambda row: -row["started_at"])
    assert (dead["pid"], dead["heartbeat_at"] < wall.now()) == (killed.pid, True)


@needs_compiler
def test_a_clock_that_comes_back_under_a_running_worker(
    database: Database, start_worker: Start, start: Start, wall: WallClock, tmp_path: Path
) -> None:
    """What was published while it was ahead runs as soon as the worker has room, and not an hour later."""
    wall.set(HOUR)
    start_worker("--threads", "1", **wall.variables)
    [held] = hold_many(database, tmp_path, 1)
    publish = f"from tests.project.tasks import note; note.enqueue({str(tmp_path / 'noted')!r}, 'done')"
    assert start(MANAGE, "shell", "-c", publish, **wall.variables).wait() == 0
    wall.set(0)
    wait_until(lambda: present(database, wall) == 1, AT_ONCE / 2)  # long before the next heartbeat
    wait_until_renewed(database, clock_of(database, wall), [held])
    finish(database, tmp_path, [held])
    wait_until((tmp_path / "noted").exists)


@needs_compiler
def test_a_step_of_the_clock_under_queue_run(database: Database, start: Start, wall: WallClock, tmp_path: Path) -> None:
    """An idle consumer takes no job from one that handles it; there and back its lease is renewed at once."""
    queue = Queue("raw", using=ALIAS)
    held = queue.publish("held").hex
    consumers = [start("-m", "tests.processes.consumer", str(tmp_path), **wall.variables) for _ in range(2)]
    for consumer in consumers:
        consumer.wait_for("ready")
    wait_until((tmp_path / "held-1").exists)
    for offset in (-HOUR, 0, YEARS, 0):
        wall.set(offset)
        time.sleep(1.2 * LOOK_AT_CLOCKS)  # a consumer looks at the clocks no later
        wait_until_renewed(database, clock_of(database, wall), [held])
        holders(database, [held])
    (tmp_path / "go").touch()
    after = queue.publish("after").hex
    database.wait_for(held, after)
    assert not any(consumer.ended() for consumer in consumers)
    holders(database, [held, after])


@pytest.mark.usefixtures("short_lease")
def test_a_worker_stopped_for_longer_than_its_lease_loses_its_job(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """Its job goes on elsewhere; its own outcome is dropped, though it comes before the other one."""
    first = start_worker()
    job_id = database.enqueue(tasks.hold_attempt, str(tmp_path))
    wait_until((tmp_path / "1started").exists)
    database.stop(first)
    start_worker()
    wait_until((tmp_path / "2started").exists)
    first.go_on()
    (tmp_path / "1go").touch()
    wait_until(lambda: first.lines("lost"))
    (tmp_path / "2go").touch()
    database.wait_for(job_id)
    assert (database.result(job_id), database.job(job_id)["claims"]) == (2, 2)
    assert database.outcomes(job_id) == ["lease expired"]
    assert first.lines("lost")[0].endswith("result dropped")
    after = database.enqueue(tasks.add, 1, 2)
    database.wait_for(after)


@pytest.mark.usefixtures("short_lease")
def test_a_machine_that_was_stopped_for_longer_than_the_leases(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """When all workers go on again no job is taken from its holder: each renews before the others take anything."""
    workers = [start_worker("--threads", "4", ready=False) for _ in range(3)]
    for worker in workers:
        worker.wait_ready()
    jobs = hold_many(database, tmp_path, 9)
    assert len(holders(database, jobs)) == 3
    for worker in workers:
        worker.stop()
    wait_until(lambda: all(database.job(job_id)["visible_at"] < words.now() for job_id in jobs))
    for worker in workers:
        worker.go_on()
    wait_until_renewed(database, words.now, jobs)
    finish(database, tmp_path, jobs)
    assert not any(worker.lines("lost") for worker in workers)
