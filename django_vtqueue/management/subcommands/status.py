"""``vtqueue status``: how the queues stand, which workers are there, and what they run."""

from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from ...backend import VTQueueBackend
from ...core.clock import to_instant
from ...core.humanize import duration
from ...core.ids import dashed, shown_worker
from ...engines import Engine, engine_for, named_queues
from ...queue import pauses
from ...queue.workers import live_workers
from ..output import add_json, ago, as_json, iso, table

HELP = "Shows how the queues stand, which workers are there, and what they run."
MOST = 10_000  # jobs of a kind that are counted
NAMES = 1000  # queues that are looked for
EACH = 100  # running jobs of a worker
NUMBERS = ("due", "scheduled", "retrying", "running", "expired", "dead")


def add_arguments(parser: ArgumentParser) -> None:
    add_json(parser)


def run(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Show three tables, or one JSON object with the same."""
    engine = engine_for(backend.database)
    now = engine.now()
    found = {"queues": queues(engine, now), "workers": workers(engine, now), "running": running(engine, now)}
    if options["json"]:
        yield as_json(found)
        return
    yield from table([("queue", *NUMBERS, ""), *map(queue_row, found["queues"])])
    yield ""
    if found["workers"]:
        rows = [worker_row(each, now) for each in found["workers"]]
        yield from table([("worker", "queues", "slots", "running", "heard of", ""), *rows])
    else:
        yield "No worker is there. Start one: python manage.py vtworker"
    if found["running"]:
        yield ""
        yield from table([("job", "id", "queue", "worker", "for", "progress"), *map(running_row, found["running"])])


def queues(engine: Engine, now: int) -> list[dict[str, Any]]:
    """Return the queues that have jobs, that the settings name, or that are paused; numbers stop above 10,000."""
    letters, paused = engine.inspection.letters(NAMES, MOST + 1), pauses.paused(engine.alias, now)
    names = sorted({*engine.inspection.sizes(NAMES, 1), *letters, *paused, *named_queues(engine.alias)})
    rows: dict[str, dict[str, Any]] = {
        name: {"queue": name, **dict.fromkeys((*NUMBERS, "later"), 0), "dead": letters.get(name, 0), "paused": None}
        for name in names
    }
    for backlog in engine.inspection.backlogs(names, now, MOST + 1):
        row = rows[backlog.queue_name]
        row["due"] += backlog.due
        row["scheduled"] += backlog.read - backlog.retrying
        row["retrying"] += backlog.retrying
        row["later"] += backlog.later - backlog.read
    for held in engine.inspection.held(MOST, now):
        if row := rows.get(held.queue_name, {}):
            row["running"] += held.running
            row["expired"] += held.expired
    for name, state in paused.items():
        rows[name]["paused"] = pauses.sentence(state)
    return list(rows.values())


def workers(engine: Engine, now: int) -> list[dict[str, Any]]:
    """Return the workers that are alive."""
    held = engine.inspection.held(MOST, now)
    return [
        {
            "worker": shown_worker(worker.pk),
            "queues": worker.queues or "all",
            "slots": worker.slots,
            "running": sum(each.running for each in held if each.worker_id == worker.pk),
            "heartbeat_at": iso(to_instant(worker.heartbeat_at)),
            "asked_to": worker.asked_to,
        }
        for worker in live_workers(engine.alias, now)
    ]


def running(engine: Engine, now: int) -> list[dict[str, Any]]:
    """Return the jobs that live workers have begun, up to 100 of each."""
    return [
        {
            "id": dashed(job.id),
            "task": job.task_path,
            "queue": job.queue_name,
            "worker": shown_worker(job.worker_id),
            "seconds": None if job.started_at is None else max(now - job.started_at, 0) / 1_000_000,
            "progress": job.progress,
            "progress_text": job.progress_text,
        }
        for job in engine.inspection.running([worker.pk for worker in live_workers(engine.alias, now)], EACH)
    ]


def queue_row(queue: dict[str, Any]) -> list[str]:
    """Return the columns of a queue; of many that wait for a later time it is not told which are retried."""
    more = {name: "+" for name in ("scheduled", "retrying") if queue["later"]}
    numbers = ["10,000+" if queue[name] > MOST else f"{queue[name]:,}{more.get(name, '')}" for name in NUMBERS]
    return [queue["queue"], *numbers, queue["paused"] or ""]


def worker_row(worker: dict[str, Any], now: int) -> list[Any]:
    heard = ago(to_instant(datetime.fromisoformat(worker["heartbeat_at"])), now)
    asked = f"asked to {worker['asked_to']}" if worker["asked_to"] else ""
    return [worker["worker"], worker["queues"], worker["slots"], worker["running"], heard, asked]


def running_row(job: dict[str, Any]) -> list[str]:
    done = "" if job["progress"] is None else f"{job['progress']:.0%}"
    length = "" if job["seconds"] is None else duration(round(job["seconds"] * 1_000_000))
    told = " ".join(filter(None, [done, job["progress_text"]]))
    return [job["task"] or "(raw payload)", f"…{job['id'][-8:]}", job["queue"], job["worker"], length, told]
