"""Limits under real workers: never more at once, nothing is forgotten, and strictly in order."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pytest_django import Settings

from django_vtqueue import Queue
from tests.project import limited, tasks

from ..conftest import ALIAS
from ..waiting import wait_until
from . import inside
from .conftest import both_engines
from .database import Database
from .inside import NEVER_LOOKS, NEVER_LOOKS_NOR_HEARS
from .limits import Journal
from .running import Start
from .test_drain import Drain


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


def test_never_above(database: Database, start_worker: Start, journal: Journal, settings: Settings) -> None:
    """Four workers with sixteen threads: a queue, a task, keys of a task, keys of payloads and an order.

    What waits is woken when there is room again: no look for it is needed. How much of a limit is used: tests/faults.
    """
    raw = {"concurrency": 2, "handler": "tests.project.limited.handle"}
    database.options["queue_options"] = {"narrow": {"concurrency": 3}, "raw": raw}
    path, each = str(journal.path), 0.4
    database.enqueue_many(limited.of_tenant, [(path, each, 1)] * 30)
    database.enqueue_many(limited.of_tenant, [(path, each, 2)] * 30)
    database.enqueue_many(limited.two, [(path, each)] * 20)
    database.enqueue_many(limited.in_queue.using(queue_name="narrow"), [(path, each)] * 30)
    database.enqueue_many(limited.in_order, [(path, each, 1, number) for number in range(10)])
    settings.TASKS = database.tasks
    queue = Queue("raw", using=ALIAS)
    queue.publish_many([[path, "raw", each]] * 20)
    queue.publish_many([[path, "raw:9", each]] * 20, concurrency_key=lambda payload: payload[1])
    for _ in range(4):
        start_worker("--threads", "16", ready=False, constants=NEVER_LOOKS)
    wait_until(lambda: not database.unfinished())
    limits = {"tenant:1": 3, "tenant:2": 3, "two": 2, "queue": 3, "customer:1": 1, "raw": 2, "raw:9": 2}
    assert journal.most() == limits
    assert journal.order("customer:1") == list(range(10))


def test_order_with_retries(database: Database, start_worker: Start, journal: Journal) -> None:
    """A job that waits for its retry keeps those behind it waiting, and is the next one of its key."""
    database.enqueue_many(limited.in_order, [(str(journal.path), 0.01, n % 2, n, True) for n in range(20)])
    for _ in range(2):
        start_worker("--threads", "4", ready=False)
    wait_until(lambda: not database.unfinished())
    for customer in (0, 1):
        expected = [n for n in range(20) if n % 2 == customer for _ in range(2 if n % 3 == 0 else 1)]
        assert journal.order(f"customer:{customer}") == expected
    assert max(journal.most().values()) == 1


def test_a_killed_holder(database: Database, start_worker: Start, journal: Journal) -> None:
    """What was parked for it goes on when its death is noticed; of an order it is the same job again."""
    path = str(journal.path)
    first = start_worker("--threads", "4")
    database.enqueue_many(limited.two, [(path, None), (path, 0.0), (path, None)])
    database.enqueue_many(limited.in_order, [(path, None, 1, 0), (path, 0.0, 1, 1)])
    wait_until(lambda: len(journal.starts("two")) == 3 and journal.starts("customer:1"))
    first.process.kill()
    journal.killed(first.pid)
    start_worker("--threads", "4")
    wait_until(lambda: len(journal.starts("two")) == 5 and len(journal.starts("customer:1")) == 2)
    Path(f"{path}.go").touch()
    wait_until(lambda: not database.unfinished())
    assert journal.order("customer:1") == [0, 0, 1]
    assert journal.most() == {"two": 2, "customer:1": 1, "-": 0}


def held_long_ago(database: Database) -> None:
    inside.held(database, "elsewhere", inside.LONG_AGO)


@pytest.mark.parametrize("leave", [inside.given_back, held_long_ago], ids=["given back", "lease ended"])
@both_engines
def test_a_key_of_a_queue_without_a_worker(
    database: Database, start_worker: Start, journal: Journal, leave: Callable[[Database], None]
) -> None:
    """What was given back there, and what is held there no more, occupies no place of its key elsewhere."""
    path = str(journal.path)
    database.enqueue_many(limited.two.using(queue_name="unserved"), [(path, 0.0)] * 2)
    database.add_worker("elsewhere", inside.now(), "elsewhere:1:x")
    leave(database)
    start_worker("--queues", "default")
    database.wait_for(database.enqueue(limited.two, path, 0.0))


@both_engines
def test_the_next_job_of_a_key_in_another_worker(database: Database, start_worker: Start, journal: Journal) -> None:
    """The end of a job wakes the worker of the next one, which serves another queue."""
    database.options["task_modules"] = ["tests.project.limited"]
    path, never = str(journal.path), NEVER_LOOKS_NOR_HEARS
    first = database.enqueue(limited.in_order.using(queue_name="a"), path, None, 1, 1)
    second = database.enqueue(limited.in_order.using(queue_name="b"), path, 0.0, 1, 2)
    start_worker("--queues", "a", constants=never)
    wait_until(lambda: journal.starts("customer:1"))
    start_worker("--queues", "b", constants=never)
    wait_until(lambda: inside.parked(database) == [second])
    Path(f"{path}.go").touch()
    database.wait_for(first, second)


@both_engines
def test_what_an_expired_job_has_held_up(database: Database, start_worker: Start, journal: Journal) -> None:
    """It runs as soon as the other one is buried, also in a worker that has buried it itself, and hears of nothing."""
    path = str(journal.path)
    first = database.enqueue(limited.in_order.using(queue_name="unserved"), path, 0.0, 1, 1)
    second = database.enqueue(limited.in_order, path, 0.0, 1, 2)
    database.write("UPDATE vtqueue_job SET start_by = ? WHERE id = ?", inside.now() + 1_500_000, first)
    start_worker("--queues", "default", constants=NEVER_LOOKS_NOR_HEARS)
    database.wait_for(second)
    assert database.letter(first)


@both_engines
def test_a_limit_of_many_keys(database: Database, start_worker: Start, journal: Journal) -> None:
    """What is held up without a reason is put back for all keys at once: a worker does not rest between two parts."""
    constants = inside.tuned(share_of_pruning=1e-9, share_of_sweeping=1e-9)
    database.enqueue_many(limited.of_tenant, [(str(journal.path), None, tenant) for tenant in range(600)])
    inside.park(database)
    start_worker("--threads", "2", constants=constants)
    wait_until(lambda: not inside.parked(database))


@pytest.mark.parametrize("how", [["--threads", "4"], ["--processes", "2", "--threads", "2"]])
def test_a_module_that_is_not_loaded(database: Database, drain: Drain, journal: Journal, how: list[str]) -> None:
    """Its limits hold from its first job on, a job for later keeps no other waiting, and --drain waits for its import.

    No worker loads tests.project.limited at its start.
    """
    path = str(journal.path)
    later = database.enqueue(limited.two, path, 0.2, run_after=timedelta(hours=1))
    database.enqueue_many(limited.two, [(path, 0.2)] * 6)
    database.enqueue_many(limited.at_rate, [(path,)] * 3)
    drain(*how)
    assert (journal.most()["two"], len(journal.starts("two")), len(journal.starts("rate"))) == (2, 6, 3)
    assert database.job(later)["claims"] == 0


@pytest.mark.parametrize("how", [["--threads", "4"], ["--processes", "2", "--threads", "2"]])
def test_max_jobs_of_a_module_that_is_not_loaded(
    database: Database, start_worker: Start, journal: Journal, how: list[str]
) -> None:
    """A job that was held to load its task, and was given back, is none of those that are begun."""
    database.enqueue_many(limited.two, [(str(journal.path), 0.0)] * 6)
    assert start_worker("--max-jobs", "3", *how).wait() == 0
    assert len(journal.starts("two")) == 3


@pytest.mark.parametrize("of", ["task", "queue"])
def test_rates(database: Database, start_worker: Start, journal: Journal, of: str) -> None:
    """Four workers: the starts that the rows tell are never more than the burst and the rate allow in any time.

    Each worker knows when the next one may start.
    """
    database.options["queue_options"] = {"slow": {"rate": "20/s", "burst": 3}}
    task = limited.at_rate if of == "task" else limited.in_queue.using(queue_name="slow")
    calls = [(str(journal.path),) if of == "task" else (str(journal.path), 0.0)] * 60
    for _ in range(4):
        start_worker("--threads", "2", constants=NEVER_LOOKS)
    database.enqueue_many(task, calls)
    wait_until(lambda: not database.unfinished())
    starts = [row["started_at"] for row in database.rows("SELECT started_at FROM vtqueue_job ORDER BY started_at")]
    for first in range(60):
        for last in range(first, 60):
            assert last - first + 1 <= 3 + (starts[last] - starts[first]) / 50_000


@pytest.mark.parametrize(
    "how", [["--threads", "1"], ["--processes", "2", "--threads", "1"]], ids=["threads", "processes"]
)
def test_weights(database: Database, start_worker: Start, how: list[str]) -> None:
    """``--queues emails:3,default:1``: also of very short jobs, which are claimed ahead, 3 of 4 are emails."""
    # So many that no process can claim all emails ahead, and leave only the others to its neighbour.
    for queue, count, priority in (("default", 2000, 90), ("emails", 2000, 0)):
        database.enqueue_many(tasks.add.using(queue_name=queue, priority=priority), [(1, 2)] * count)
    worker = start_worker("--queues", "emails:3,default:1", *how)
    assert "queues default:1,emails:3;" in worker.log
    wait_until(lambda: not database.unfinished())
    rows = database.rows("SELECT queue_name FROM vtqueue_job ORDER BY started_at, id LIMIT 240")
    emails = sum(row["queue_name"] == "emails" for row in rows)
    assert 160 <= emails <= 200, emails
    workers = database.rows("SELECT queues FROM vtqueue_workerprocess")
    assert {row["queues"] for row in workers} == {"default,emails"}


@both_engines
def test_weights_of_short_jobs(database: Database, start_worker: Start, journal: Journal) -> None:
    """Of jobs of some milliseconds 3 of 4 are emails, too, as long as jobs of both queues wait."""
    for queue in ("default", "emails"):
        database.enqueue_many(limited.in_queue.using(queue_name=queue), [(str(journal.path), 0.004)] * 400)
    start_worker("--queues", "emails:3,default:1", "--threads", "2")
    wait_until(lambda: not database.unfinished())
    rows = database.rows("SELECT queue_name FROM vtqueue_job ORDER BY started_at, id LIMIT 400")
    emails = sum(row["queue_name"] == "emails" for row in rows)
    assert 290 <= emails <= 310, emails
