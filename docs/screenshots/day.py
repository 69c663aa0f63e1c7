"""A day of the shop until now: what was done, what failed and when, what waits."""

import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from math import sin
from pathlib import Path
from random import Random
from typing import Any

from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from shop import tasks

from django_vtqueue.core import clock
from django_vtqueue.models import Job, QueueState, Throughput, WorkerProcess

from .processes import Processes
from .settings import FOLDER

HERE = Path(__file__).resolve().parent
PASSWORD = "a day in the life of a shop"
MINUTE, HOUR = 60_000_000, 3_600_000_000  # microseconds
MOMENTS = ("enqueued_at", "started_at", "finished_at", "kept_until", "died_at")
PAUSED = 25  # minutes ago
# What a queue does in a minute at its best, and how long its jobs take: the bucket of their histogram, see histograms.
FLOWS = {"emails": (42, 66), "images": (24, 76), "payments": (15, 70), "reports": (2, 92)}


def spend(processes: Processes) -> None:
    """Fill a fresh database; the workers that go on with it are left running."""
    random = Random(5)
    call_command("migrate", verbosity=0)
    User.objects.create_superuser("anna", password=PASSWORD)
    enqueue_past()
    processes.run("vtworker", "--drain", "--drain-retries", "10", "--no-reload")
    connection.close()
    with closing(sqlite3.connect(FOLDER("db.sqlite3"), isolation_level=None)) as raw:
        spread(raw, random)
        move(raw)
    pause()
    enqueue_present()
    processes.start_worker("--queues", "images,reports", "--threads", "4")
    processes.start_worker("--queues", "emails,payments", "--threads", "8")
    processes.start_worker("--queues", "payments", "--threads", "2").kill()
    count(random)


def move(raw: sqlite3.Connection) -> None:
    """Have the tracebacks come from where a shop would be installed, wherever the pictures are made."""
    for here, there in ((HERE, "/srv"), (HERE.parent.parent, "/srv/venv/lib/python3.13/site-packages")):
        raw.execute("UPDATE vtqueue_deadletter SET history = replace(history, ?, ?)", (str(here), there))


def enqueue_past() -> None:
    """Enqueue what has been done by now."""
    people = ("ada", "grace", "alan", "edsger", "barbara", "donald", "frances", "tony")
    for order in range(48_100, 48_260):
        domain = "b2b.example" if order % 7 == 0 else "mail.example"
        tasks.send_receipt.enqueue(order, f"{people[order % 8]}@{domain}")
        tasks.charge.enqueue(order, f"{order % 90}.{order % 10}9", card_token=f"tok_{order * 7919}")
    for number in range(70):
        tasks.make_thumbnail.enqueue(f"products/{'draft' if number % 11 == 0 else 'photo'}-{number:04}.jpg")
    for country in ("DE", "FR", "IT", "AT", "CH"):
        tasks.vat_summary.enqueue("2026-10", country)


def enqueue_present() -> None:
    """Enqueue what runs, waits for a slot, for its time, for the end of the pause, or for a worker."""
    for month in ("2026-09", "2026-10"):
        tasks.monthly_report.using(priority=5).enqueue(month)
    for season in ("winter", "spring"):
        tasks.make_catalogue.using(priority=5).enqueue(season)
    for number in range(70, 82):
        tasks.make_thumbnail.enqueue(f"products/photo-{number:04}.jpg")
    for delay in range(1, 15):
        later = timezone.now() + timedelta(hours=delay)
        tasks.send_newsletter.using(run_after=later, priority=-10).enqueue("winter sale", f"list-{delay}@mail.example")
    for order in range(48_260, 48_290):
        tasks.send_receipt.enqueue(order, "ada@mail.example")
    waiting = tasks.export_orders.using(priority=10).enqueue("2026-11-20")
    since = clock.now() - 12 * MINUTE
    Job.objects.filter(pk=waiting.id).update(enqueued_at=since, due_at=since)
    tasks.vat_summary.using(run_after=timezone.now() + timedelta(days=10)).enqueue("2026-11", "DE")


def pause() -> None:
    QueueState.objects.create(
        queue_name="emails",
        paused_at=clock.now() - PAUSED * MINUTE,
        paused_until=clock.now() + 40 * MINUTE,
        paused_by="anna",
        reason="mx.b2b.example does not answer, OPS-231",
    )


def spread(raw: sqlite3.Connection, random: Random) -> None:
    """Move what has ended back in time, its id and its history too."""
    raw.row_factory = sqlite3.Row
    raw.execute("BEGIN")
    for table in ("vtqueue_job", "vtqueue_deadletter"):
        for row in raw.execute(f"SELECT * FROM {table} ORDER BY enqueued_at").fetchall():
            if table == "vtqueue_deadletter" or row["finished_at"]:
                changed = moved(row, int(random.triangular(0, 6, 0.5) * HOUR))
                setting = ", ".join(f"{name} = :{name}" for name in changed)
                raw.execute(f"UPDATE {table} SET {setting} WHERE id = :old", {**changed, "old": row["id"]})
    raw.execute("COMMIT")


def moved(row: sqlite3.Row, back: int) -> dict[str, Any]:
    changed: dict[str, Any] = {name: row[name] - back for name in MOMENTS if name in row.keys() and row[name]}  # noqa: SIM118
    attempts = json.loads(row["history"])
    for attempt in attempts:
        for name in {"started", "ended", "at"} & attempt.keys():
            attempt[name] -= back
    return {**changed, "id": f"{changed['enqueued_at'] // 1000:012x}{row['id'][12:]}", "history": json.dumps(attempts)}


def count(random: Random) -> None:
    """Store what the workers have done in each minute of the last hours."""
    this_minute = clock.now() // MINUTE * MINUTE
    workers = list(WorkerProcess.objects.order_by("started_at").values_list("pk", flat=True))
    Throughput.objects.all().delete()
    Throughput.objects.bulk_create(
        minute_of(random, queue, this_minute, minute, workers[number % 2])
        for number, queue in enumerate(FLOWS)
        for minute in range(PAUSED if queue == "emails" else 1, 360)
    )


def minute_of(random: Random, queue: str, this_minute: int, minute: int, worker: str) -> Throughput:
    """Return what was done so many minutes ago: more at noon, and less of it well when the mail failed."""
    most, bucket = FLOWS[queue]
    done = round(most * (0.6 + 0.2 * sin(minute / 45 + bucket) + random.gauss(0, 0.08)))
    failed = round(done * random.uniform(0.2, 0.4)) if queue == "emails" and minute < 80 else random.random() < 0.04
    return Throughput(
        starts_at=this_minute - minute * MINUTE,
        queue_name=queue,
        worker_id=worker,
        succeeded=max(done - failed, 0),
        failed=failed,
        dead=failed // 3,
        run_times=json.dumps({bucket - 6: done // 2, bucket: done // 3, bucket + 5: done // 6 + 1}),
        wait_times=json.dumps({40: done // 2, 52: done // 3, 74: done // 6 + 1}),
    )
