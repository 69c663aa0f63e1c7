"""Requeues of many dead letters, carried out by workers: exactly those that are meant, each once."""

from pathlib import Path
from threading import Thread
from typing import Any

from django.db import connections

from django_vtqueue import requeue
from django_vtqueue.control import requeue_matching
from django_vtqueue.models import DeadLetter, Requeue
from tests.project import tasks

from ..conftest import ALIAS
from ..waiting import wait_until
from .database import Database
from .inside import dead_letters
from .running import Start


def bury(number: int, path: Path) -> list[str]:
    """Store dead letters of a task that notes each of its executions; return what each of them notes."""
    return dead_letters(ALIAS, tasks.note, number, str(path))


def noted(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def now_again(run: Requeue) -> Requeue:
    run.refresh_from_db(using=ALIAS)
    return run


def test_canary_and_rate(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """A worker requeues one, waits for its success, and then the others, so many each minute."""
    path = tmp_path / "noted"
    ids = bury(150, path)
    run = requeue_matching(rate=3000, canary=True, using=ALIAS)
    start_worker()
    wait_until(lambda: now_again(run).ended_at)
    wait_until(lambda: len(noted(path)) == 150)
    assert (run.state, run.matched, run.requeued, run.skipped) == ("done", 150, 150, 0)
    assert noted(path)[0] == ids[0]
    assert sorted(noted(path)) == sorted(ids)
    assert run.ended_at
    assert (run.ended_at - run.created_at).total_seconds() > 2  # 100, and two seconds later the others


def test_workers_killed_in_the_middle(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """Workers are killed in the middle of a run: what is meant is requeued once each, and nothing else is."""
    path = tmp_path / "noted"
    ids = bury(500, path)
    [other] = bury(1, path)
    DeadLetter.objects.using(ALIAS).filter(pk=other).update(queue_name="other")
    run = requeue_matching(queue_name="default", by="anna", using=ALIAS)
    for share in (0, 200):
        worker = start_worker(ready=False)
        wait_until(lambda share=share: now_again(run).requeued > share)  # type: ignore[misc]
        worker.kill()
    start_worker()
    wait_until(lambda: now_again(run).state == "done")
    assert (run.matched, run.requeued, run.skipped) == (500, 500, 0)
    wait_until(lambda: database.unfinished() == 0)
    assert {job_id for job_id in ids if database.succeeded(job_id)} == set(ids)
    for job_id in ids[::50]:
        assert database.outcomes(job_id).count("requeued") == 1
    assert [letter.pk.hex for letter in DeadLetter.objects.using(ALIAS)] == [other]


def test_two_people_at_once(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """While a worker claims, two people requeue the same letters: each goes once, and is counted for one of them."""
    path = tmp_path / "noted"
    ids = bury(100, path)
    start_worker()
    moved: list[list[Any]] = [[], []]

    def send(place: int) -> None:
        for start in range(0, len(ids), 20):
            moved[place] += requeue(ids[start : start + 20], using=ALIAS, by=str(place))
        connections[ALIAS].close()

    people = [Thread(target=send, args=[place]) for place in range(2)]
    run = requeue_matching(using=ALIAS)
    for person in people:
        person.start()
    for person in people:
        person.join()
    database.wait_for(*ids)
    wait_until(lambda: now_again(run).state == "done")
    assert sorted(noted(path)) == sorted(ids)
    assert len(moved[0]) + len(moved[1]) + run.requeued == 100
