"""What is shown together was true together: figures add up, and each job is listed once, while jobs move."""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from io import StringIO
from threading import Event, Thread
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections, transaction
from django.utils import timezone

from django_vtqueue import LeaseLost, Queue, requeue
from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.control import run_now
from django_vtqueue.models import DeadLetter, Job

from .bench import Bench, shown_to_a_superuser

JOBS, MOVERS, LOOKS = 40, 3, 20
FIGURES = ("due", "scheduled", "retrying", "waiting", "running", "expired", "dead")


@pytest.fixture
def moving(alias: str, backend: VTQueueBackend) -> Iterator[Queue]:
    """Return a queue whose jobs are claimed, released, failed, buried, requeued and run at once, by several threads."""
    queue = Queue("moving", using=alias, max_attempts=2)
    queue.publish_many(range(JOBS))
    enough = Event()
    movers = [Thread(target=move, args=(queue, alias, enough, random.Random(seed))) for seed in range(MOVERS)]
    for mover in movers:
        mover.start()
    try:
        yield queue
    finally:
        enough.set()
        for mover in movers:
            mover.join()


def move(queue: Queue, alias: str, enough: Event, chance: random.Random) -> None:
    """Move jobs from one state to another, until it is enough; no job is ever published, acknowledged or deleted."""
    try:
        while not enough.is_set():
            for job in queue.claim_many(chance.randrange(1, 5)):
                ways: list[Callable[[], object]] = [job.release, job.nack, partial(job.nack, delay=600)]
                try:
                    chance.choice(ways)()
                except LeaseLost:
                    raise AssertionError("a lease of a minute was lost") from None
            retried = Job.objects.using(alias).filter(due_at__gt=timezone.now())
            run_now(list(retried.values_list("pk", flat=True)[:3]), using=alias)
            requeue(list(DeadLetter.objects.using(alias).values_list("pk", flat=True)[:3]), using=alias)
    finally:
        connections[alias].close()


def printed(*arguments: str) -> Any:
    """Return what a subcommand prints for programs."""
    out = StringIO()
    call_command("vtqueue", *arguments, "--json", stdout=out)
    return json.loads(out.getvalue())


def test_the_status_adds_up(moving: Queue) -> None:
    """Each job is in one of the figures of ``vtqueue status``, and none is counted in a state in which none ever is."""
    for _ in range(LOOKS):
        [row] = printed("status")["queues"]
        assert sum(row[name] for name in FIGURES) == JOBS, row
        assert (row["scheduled"], row["waiting"], row["expired"]) == (0, 0, 0), row


def test_the_list_has_each_job_once(moving: Queue) -> None:
    """``vtqueue list`` has each job and each dead letter, and none twice."""
    for _ in range(LOOKS):
        found = [row["id"] for row in printed("list", "--limit", "1000")]
        assert (len(found), len(set(found))) == (JOBS, JOBS)


def test_the_overview_adds_up(moving: Queue) -> None:
    """Each job is in one of the figures of the admin's first page."""
    for _ in range(LOOKS):
        [row] = shown_to_a_superuser()["queues"]
        figures = {name: getattr(row, name).value for name in FIGURES}
        assert sum(figures.values()) == JOBS, figures
        assert (figures["scheduled"], figures["waiting"], figures["expired"]) == (0, 0, 0), figures


def test_a_snapshot_is_of_one_instant(bench: Bench) -> None:
    """What others commit in the meantime is not seen in it, and is afterwards; its instant is that of what it sees."""
    queue = Queue("a", using=bench.alias)
    queue.publish(1)
    with bench.snapshot() as now:
        elsewhere(lambda: queue.publish(2))
        assert len(queue) == 1
        assert not Job.objects.using(bench.alias).filter(due_at__gt=now).exists()
    assert len(queue) == 2
    queue.publish(3)  # the connection is as it was
    assert len(queue) == 3


def test_nobody_waits_for_a_snapshot(bench: Bench) -> None:
    """Others claim and settle while it lasts."""
    queue = Queue("a", using=bench.alias)
    queue.publish(1)
    with bench.snapshot():
        elsewhere(lambda: queue.claim_many(1)[0].ack())
        assert len(queue) == 1
    assert len(queue) == 0


def test_a_snapshot_in_a_transaction(bench: Bench) -> None:
    """In the caller's own transaction it sees what that has written, and ends nothing of it."""
    queue = Queue("a", using=bench.alias)
    with transaction.atomic(using=bench.alias):
        queue.publish(1)
        with bench.snapshot():
            assert len(queue) == 1
        queue.publish(2)
        transaction.set_rollback(True, using=bench.alias)
    assert len(queue) == 0


def test_an_error_ends_a_snapshot(bench: Bench) -> None:
    """After it the connection is as before: it writes, and commits."""
    queue = Queue("a", using=bench.alias)
    with suppress(ZeroDivisionError), bench.snapshot():
        assert len(queue) // 0
    queue.publish(1)
    elsewhere(lambda: queue.claim_many(1)[0].ack())
    assert len(queue) == 0


def elsewhere(act: Callable[[], object]) -> None:
    """Do something on a connection of its own; fail if it waits."""
    failed: list[BaseException] = []

    def call() -> None:
        try:
            act()
        except BaseException as error:
            failed.append(error)
        finally:
            connections.close_all()

    thread = Thread(target=call)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert not failed, failed
