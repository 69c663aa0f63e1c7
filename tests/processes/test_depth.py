"""Back-pressure among real processes: many that publish, and a worker that is too slow for them."""

import re
from collections.abc import Callable

import pytest

from django_vtqueue import Queue
from tests.project.tasks import again, nap

from ..conftest import ALIAS
from ..waiting import wait_until
from .database import Database
from .inside import WAITS
from .running import Running, Start

PUBLISHERS = 4
REFUSALS, MANY = 100, 1_000_000  # of each of them
# How many jobs wait after each insert, as the database itself sees it.
DEPTHS = "CREATE TABLE depths (depth INTEGER)"
COUNT = f"INSERT INTO depths SELECT count(*) FROM vtqueue_job WHERE queue_name = NEW.queue_name AND {WAITS}"


@pytest.fixture
def limit(database: Database) -> Callable[..., None]:
    """Return a function that gives the default queue options, and has its depth written down."""

    def limit(**options: object) -> None:
        database.options |= {"queue_options": {"default": options}}
        database.write(DEPTHS)
        database.on("counted", "INSERT ON vtqueue_job", "NEW.finished_at IS NULL", COUNT, at_commit=True)

    return limit


def flood(start: Start, most: int) -> list[Running]:
    """Have several processes publish at once."""
    return [start("-m", "tests.processes.flood", str(most), str(REFUSALS)) for _ in range(PUBLISHERS)]


def flooded(publishers: list[Running]) -> tuple[int, int]:
    """Wait for the end of a flood; return how many jobs were stored, and how many were refused."""
    assert [publisher.wait() for publisher in publishers] == [0] * PUBLISHERS, [each.log for each in publishers]
    said = [re.search(r"stored (\d+), refused (\d+)", publisher.log) for publisher in publishers]
    stored, refused = (sum(int(found[place]) for found in said if found) for place in (1, 2))
    return stored, refused


def deepest(database: Database) -> int:
    return int(database.rows("SELECT max(depth) FROM depths")[0][0] or 0)


@pytest.mark.parametrize(("max_depth", "overshoot"), [(5, 1), (100, 10), (1500, 15)])
def test_a_flood(
    database: Database,
    start: Start,
    start_worker: Start,
    limit: Callable[..., None],
    max_depth: int,
    overshoot: int,
) -> None:
    """The depth comes to the limit, and above it by no more than what the other processes may store without a count.

    What was accepted is there, and what was refused is not. A worker, too slow for it, runs all the time.
    """
    before = max_depth - max_depth // 4
    database.enqueue_many(nap, [(0.002,)] * before)
    limit(max_depth=max_depth)
    start_worker("--threads", "1", "--max-jobs", str(MANY))  # so it claims nothing ahead, which it might give back
    stored, refused = flooded(flood(start, MANY))
    assert refused == PUBLISHERS * REFUSALS
    assert database.rows("SELECT count(*) FROM vtqueue_job")[0][0] == before + stored
    assert max_depth <= deepest(database) <= max_depth + (PUBLISHERS - 1) * overshoot


def test_publishers_wait(database: Database, start: Start, start_worker: Start, limit: Callable[..., None]) -> None:
    """With on_full="wait" none is refused while a worker drains; all that they publish is done."""
    limit(max_depth=20, on_full="wait", full_timeout=600)
    publishers = flood(start, 100)
    wait_until(lambda: deepest(database) >= 20)
    start_worker("--threads", "2")
    assert flooded(publishers) == (PUBLISHERS * 100, 0)
    assert 20 <= deepest(database) <= 20 + (PUBLISHERS - 1) * 10
    wait_until(lambda: database.unfinished() == 0)
    assert database.rows("SELECT count(*) FROM vtqueue_job WHERE state = 'SUCCESSFUL'")[0][0] == PUBLISHERS * 100


@pytest.fixture
def overfull(database: Database, limit: Callable[..., None]) -> Callable[..., str]:
    """Return a function that enqueues a task which publishes itself three times, in a queue that is and stays full."""

    def overfull(**options: object) -> str:
        job_id = database.enqueue(again, 3)
        Queue("default", using=ALIAS).publish_many(["payload of nobody"] * 5)
        limit(max_depth=3, **options)
        return job_id

    return overfull


@pytest.mark.parametrize("on_full", ["raise", "wait"])
def test_a_task_publishes_into_its_own_full_queue(
    database: Database, drain: Callable[..., Running], overfull: Callable[..., str], on_full: str
) -> None:
    """It is exempt: one worker with one slot runs it and all that it publishes, and waits for nothing."""
    overfull(on_full=on_full, full_timeout=600)
    drain("--threads", "1")
    assert database.rows("SELECT count(*) FROM vtqueue_job WHERE state = 'SUCCESSFUL'")[0][0] == 4
    assert deepest(database) == 6
    assert database.rows("SELECT count(*) FROM vtqueue_job WHERE history != '[]'")[0][0] == 0


def test_a_task_that_is_not_exempt_is_retried(
    database: Database, start_worker: Start, overfull: Callable[..., str]
) -> None:
    """Its attempt fails with QueueFull; when there is room again it succeeds."""
    job_id = overfull(exempt_workers=False)
    start_worker("--threads", "1")
    wait_until(lambda: database.outcomes(job_id))
    assert database.history(job_id)[0]["exception_class"].endswith("QueueFull")
    Queue("default", using=ALIAS).purge()
    wait_until(lambda: database.unfinished() == 0)
