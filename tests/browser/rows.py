"""Rows for every page to show: jobs in each state, dead letters, workers, a pause, statistics."""

from typing import Any
from uuid import UUID

from django_vtqueue.core import clock, states
from django_vtqueue.core.history import Entry
from django_vtqueue.core.ids import new_id
from django_vtqueue.models import DeadLetter, Job, QueueState, Schedule, Throughput, WorkerProcess

from ..columns import in_columns

SECOND, MINUTE, HOUR = 1_000_000, 60_000_000, 3_600_000_000

TRACEBACK = 'Traceback (most recent call last):\n  File "shop/mail.py", line 7, in send\nConnectionRefusedError: {}\n'


def fill(alias: str, words: str) -> None:
    """Store rows of each kind, with ``words`` wherever a row can have text from outside."""
    for word in (*states.WORDS[:-1],):
        job(word, words).save(using=alias)
    lease = common(words) | {"queue_name": f"lease:{words}", "task_path": "", "unique_key": words, "max_attempts": 0}
    lease |= {"state": states.RUNNING, "claims": 7, "worker_id": f"web1:4711:{words}", "started_at": clock.now()}
    Job(**in_columns(lease | {"visible_at": clock.now() + MINUTE})).save(using=alias)
    for number in range(3):
        letter(number, words).save(using=alias)
    for silent in (0, HOUR):
        worker(silent, words).save(using=alias)
    QueueState(queue_name=f"mail {words}", paused_at=clock.now(), paused_by=words, reason=words).save(using=alias)
    schedule(words).save(using=alias)
    this_minute = clock.now() // MINUTE * MINUTE
    Throughput.objects.using(alias).bulk_create(throughput(this_minute, minute, words) for minute in range(60))


def common(words: str) -> dict[str, Any]:
    """Return what a job and a dead letter have in common."""
    now = clock.now()
    failed = Entry(
        number=1,
        worker=f"web1:4711:{words}",
        started=now - HOUR,
        ended=now - HOUR + SECOND,
        outcome="failed",
        exception_class="builtins.ConnectionRefusedError",
        message=words,
        traceback=TRACEBACK.format(words),
    )
    return {
        "id": UUID(new_id()),
        "queue_name": f"mail {words}",
        "task_path": f"shop.tasks.{words}",
        "payload": {"args": [words], "kwargs": {words: words}},
        "max_attempts": 10,
        "lease_us": MINUTE,
        "enqueued_at": now - HOUR,
        "history": [failed],
    }


def job(word: str, words: str) -> Job:
    """Return a job in the state that people call ``word``."""
    now = clock.now()
    row = common(words) | {"visible_at": now - MINUTE if word in ("due", "expired") else now + HOUR}
    row |= {"state": states.READY if word == "due" else states.SCHEDULED}
    if word not in ("due", "scheduled"):
        row |= {"attempts": 1, "claims": 1, "started_at": now - MINUTE}
    if word == "waiting":
        event = {"kind": "event", "name": words, "until": now + HOUR, "since": now - MINUTE}
        row |= {"state": states.WAITING, "steps": {"waiting": event}}
    if word == "blocked":
        row |= {"state": states.BLOCKED, "visible_at": clock.LAST_INSTANT, "concurrency_key": words}
    if word in ("running", "expired", "done"):
        row |= {"state": states.RUNNING, "worker_id": f"web1:4711:{words}", "progress": 0.4, "progress_text": words}
    if word == "done":
        row |= {"state": states.SUCCESSFUL, "finished_at": now, "result": words}
    return Job(**in_columns(row))


def letter(number: int, words: str) -> DeadLetter:
    """Return a dead letter; all of them died of the same."""
    died = {"died_at": clock.now() - number * MINUTE, "fingerprint": "f" * 32, "attempts": 10, "claims": 10}
    shown = {"exception_class": f"shop.{words}", "message": words, "note": words}
    return DeadLetter(**common(words) | died | shown)


def worker(silent: int, words: str) -> WorkerProcess:
    """Return a worker that was last heard of so many microseconds ago."""
    now = clock.now()
    return WorkerProcess(
        worker_id=f"web1:4711:{words}{silent or ''}",
        host=f"web1 {words}",
        pid=4711,
        queues=f"mail {words}",
        slots=4,
        started_at=now - HOUR - silent,
        heartbeat_at=now - silent,
        doorbell=f"/tmp/{words}",
        memory=88_000_000,
    )


def throughput(this_minute: int, minute: int, words: str) -> Throughput:
    """Return what a worker did so many minutes before this one."""
    return Throughput(
        starts_at=this_minute - minute * MINUTE,
        queue_name=f"mail {words}",
        worker_id=f"web1:4711:{words}",
        succeeded=60 - minute,
        failed=minute % 7,
        dead=minute % 3,
    )


def schedule(words: str) -> Schedule:
    """Return a schedule of the admin that is paused, with a run that succeeded and one that died."""
    now = clock.now()
    runs = [{"id": new_id(), "at": now - HOUR, "state": state, "ran": SECOND} for state in ("done", "dead")]
    return Schedule(
        name=words,
        task_path=f"shop.tasks.{words}",
        expression="*/5 9-17 * * MON-FRI",
        time_zone="Europe/Paris",
        payload={"args": [words], "kwargs": {words: words}},
        next_at=now + HOUR,
        paused_at=now,
        paused_by=words,
        recent=runs,
    )
