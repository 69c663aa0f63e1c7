"""Rows as tests of moves store them."""

from typing import Any

from django_vtqueue import Lease
from django_vtqueue.core import clock
from django_vtqueue.models import DeadLetter, Job

HOUR_AGO = clock.now() - 2 * 3_600_000_000
TASK: dict[str, Any] = {"queue_name": "emails", "task_path": "shop.tasks.send", "max_attempts": 3}
RUNS: dict[str, Any] = {"state": "RUNNING", "worker_id": "web1:7:ab", "claims": 1, "attempts": 1}
HAS_ENDED: dict[str, Any] = {"state": "SUCCESSFUL", "worker_id": "web1:7:ab", "finished_at": HOUR_AGO + 5}


def unsaved_job(**values: Any) -> Job:
    given = {"lease_us": 60_000_000, "enqueued_at": HOUR_AGO, "due_at": HOUR_AGO + 1, "payload": {"args": []}}
    return Job(**{**TASK, **given, **values})


def job(alias: str, **values: Any) -> Job:
    row = unsaved_job(**values)
    row.save(using=alias, force_insert=True)
    return row


def letter(alias: str, **values: Any) -> DeadLetter:
    given = {"lease_us": 60_000_000, "enqueued_at": HOUR_AGO, "died_at": HOUR_AGO, "payload": {"args": []}}
    died = {"exception_class": "builtins.ValueError", "fingerprint": "a"}
    row = DeadLetter(**{**TASK, **given, **died, **values})
    row.save(using=alias, force_insert=True)
    return row


def held(alias: str) -> Lease:
    """Return a lease that is held."""
    lease = Lease("nightly", using=alias, ttl=30)
    assert lease.acquire()
    return lease
