"""What people do with jobs, letters and queues while others write: it waits for its turn, and is not refused."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from typing import Any
from uuid import UUID

import pytest
from django.db import connections, transaction
from django.db.models.signals import post_delete

from django_vtqueue import Queue, control, requeueing
from django_vtqueue.models import Job
from django_vtqueue.queue import dead_letters
from django_vtqueue.queue.dead_letters import Criteria
from django_vtqueue.queue.discarding import discard_jobs, discard_letters

Verb = Callable[[str, UUID, UUID, UUID], Any]
VERBS: dict[str, Verb] = {
    "run now": lambda alias, job, letter, run: control.run_now([job], using=alias),
    "change priority": lambda alias, job, letter, run: control.change_priority([job], 5, using=alias),
    "move": lambda alias, job, letter, run: control.move([job], "other", using=alias),
    "delete": lambda alias, job, letter, run: discard_jobs([job], using=alias),
    "cancel": lambda alias, job, letter, run: control.cancel([job], using=alias),
    "requeue": lambda alias, job, letter, run: dead_letters.requeue(letter, using=alias),
    "review": lambda alias, job, letter, run: dead_letters.mark_reviewed(letter, using=alias, by="anna", note="seen"),
    "discard": lambda alias, job, letter, run: discard_letters(letter, using=alias),
    "pause": lambda alias, job, letter, run: Queue("q", alias).pause() is None,
    "resume": lambda alias, job, letter, run: Queue("paused", alias).resume(),
    "requeue many": lambda alias, job, letter, run: requeueing.start(Criteria(), using=alias),
    "stop that": lambda alias, job, letter, run: requeueing.stop(run, alias),
    "go on with that": lambda alias, job, letter, run: requeueing.resume(run, alias),
    "publish with the key of one that has expired": lambda alias, job, letter, run: Queue("keyed", alias).publish(
        "z", unique_key="k"
    ),
}


@pytest.fixture
def alias(sqlite_file: str) -> Iterator[str]:
    """Return a database of a project that has not set ``transaction_mode``, and that listens to every deletion."""

    def listen(**kwargs: Any) -> None:
        pass

    connections[sqlite_file].ensure_connection()
    connections[sqlite_file].transaction_mode = None  # type: ignore[attr-defined]
    post_delete.connect(listen)
    yield sqlite_file
    post_delete.disconnect(listen)


class Rival:
    """Commits something after whatever a transaction reads before it writes."""

    def __init__(self, alias: str, other: sqlite3.Connection) -> None:
        self.connection, self.other = connections[alias], other
        self.written = False

    def __call__(self, execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        outcome = execute(sql, *rest)
        verb = sql.split()[0]
        if verb == "SELECT" and self.connection.connection.in_transaction and not self.written:
            self.other.execute("UPDATE vtqueue_queuestate SET reason = reason || 'x'")
        self.written = verb != "BEGIN" and (self.written or verb in ("INSERT", "UPDATE", "DELETE"))
        return outcome


@pytest.mark.parametrize("around", [False, True], ids=["alone", "inside a transaction"])
@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_transaction_writes_before_it_reads(alias: str, verb: Verb, around: bool) -> None:
    """Others commit at any moment: a transaction that has read before it writes would be refused the lock at once."""
    if around and verb is VERBS["requeue many"]:
        pytest.skip("it looks first which letters there are")
    queue = Queue("q", alias, max_attempts=1)
    letter = queue.publish("x")
    queue.claim_many(1)[0].nack()
    job = queue.publish("y", delay=1000)
    Queue("paused", alias).pause()
    late = Queue("keyed", alias).publish("x", unique_key="k", expires=60)
    Job.objects.using(alias).filter(pk=late).update(start_by=1)
    run = requeueing.start(Criteria(), using=alias)
    if verb is VERBS["go on with that"]:
        assert run.step
        discard_jobs([run.step], using=alias)
    path = connections[alias].settings_dict["NAME"]
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as other,
        transaction.atomic(using=alias) if around else nullcontext(),
        connections[alias].execute_wrapper(Rival(alias, other)),
    ):
        assert verb(alias, job, letter, run.pk)
