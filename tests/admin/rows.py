"""Rows for the tests of the overview, and what people read on its page."""

import re
from typing import Any

from django.test import Client
from django.utils.html import strip_tags

from django_vtqueue.core import clock, states
from django_vtqueue.core.clock import SECOND, from_instant
from django_vtqueue.core.ids import new_uuid
from django_vtqueue.models import DeadLetter, Job, WorkerProcess

from ..columns import as_stored, in_columns

OVERVIEW = "/admin/vtqueue/"
WORKER = "web1:4711:abcd"


def job(queue_name: str = "default", due: float = -1, **values: Any) -> Job:
    """Store a job that is due so many seconds from now; with a ``worker_id`` it is held until then."""
    row: dict[str, Any] = {
        "id": new_uuid(),
        "queue_name": queue_name,
        "task_path": "shop.tasks.welcome",
        "payload": '{"args":[],"kwargs":{}}',
        "max_attempts": 10,
        "lease_us": 60 * SECOND,
        "enqueued_at": clock.now(),
        "visible_at": clock.now() + round(due * SECOND),
        "state": states.SCHEDULED if due > 0 else states.READY,
    }
    if "worker_id" in values:
        row |= {"state": states.RUNNING, "claims": 1, "attempts": 1, "started_at": clock.now()}
    return Job.objects.create(**in_columns(row | values))


def letter(queue_name: str = "default", **values: Any) -> DeadLetter:
    """Store a dead letter."""
    now = clock.now()
    row = {"max_attempts": 3, "lease_us": 1, "enqueued_at": now, "died_at": now, "payload": "{}"}
    return DeadLetter.objects.create(id=new_uuid(), queue_name=queue_name, **as_stored(row | values))


def worker(pid: int = 4711, silent: float = 0, **values: Any) -> WorkerProcess:
    """Store a worker that was heard of so many seconds ago."""
    row = {"worker_id": f"web1:{pid}:abcd", "host": "web1", "pid": pid, "slots": 4}
    moments = {"started_at": clock.now(), "heartbeat_at": clock.now() - round(silent * SECOND)}
    return WorkerProcess.objects.create(**row | moments | values)


def ago(seconds: float) -> Any:
    """Return a moment so long before now."""
    return from_instant(clock.now() - round(seconds * SECOND))


def html(client: Client, page: str = OVERVIEW) -> str:
    """Return a page as a browser gets it."""
    response = client.get(page)
    assert response.status_code == 200
    return response.content.decode()


def part(shown: str, beginning: str, end: str) -> str:
    """Return what people read between two marks of a page, in one line."""
    found = shown[shown.index(beginning) :]
    found = found[: found.index(end)]
    return re.sub(r"\s+", " ", strip_tags(re.sub("</(t[dh]|p|li|span|title)>", " ", found))).strip()


def row_of(client: Client, name: str, page: str = OVERVIEW) -> str:
    """Return what people read of a queue or of a worker."""
    return part(html(client, page), f'data-key="{name}"', "</tr>").partition(">")[2].strip()


def banners(client: Client) -> str:
    """Return what people read in the banners."""
    return part(html(client), 'id="vtq-banners"', "<section").partition(">")[2].strip()
