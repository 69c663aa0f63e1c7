"""``vtqueue status``: the state of the queues, which workers are there, and their running jobs."""

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from ...backend import VTQueueBackend
from ...core.clock import to_instant
from ...core.humanize import duration
from ...core.ids import names_of_workers, shown_worker
from ...engines import engine_for, named_queues, options_for
from ...inspection import overview
from ...inspection.overview import Held
from ...models import WorkerProcess
from ...queue import pauses
from ...queue.workers import QUIET, live_workers, start_command
from ..output import add_json, ago, as_json, iso, table

HELP = "Shows the state of the queues, which workers are there, and their running jobs."
MOST_COUNTED = 10_000  # jobs of a kind that are counted
NAMES = 1000  # queues that are looked for
LATER = ("scheduled", "retrying", "waiting")
EACH = 100  # running jobs of a worker
NUMBERS = ("due", "scheduled", "retrying", "waiting", "running", "expired", "dead")


def add_arguments(parser: ArgumentParser) -> None:
    add_json(parser)


def run(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Show three tables, or one JSON object with the same."""
    database = backend.database
    with engine_for(database).snapshot() as now:
        present, held = live_workers(database, now), overview.held(database, MOST_COUNTED, now)
        found = {
            "queues": queues(database, held, now),
            "workers": workers(present, held),
            "running": running(database, present, now),
        }
    if options["json"]:
        yield as_json(found)
        return
    yield from table([("queue", *NUMBERS, ""), *map(queue_row, found["queues"])])
    yield ""
    if found["workers"]:
        rows = [worker_row(each, now) for each in found["workers"]]
        yield from table([("worker", "queues", "slots", "running", "heard of", ""), *rows])
    else:
        due = [row["queue"] for row in found["queues"] if row["due"]]
        yield f"No worker is there. Start one: {start_command(database, due or sorted(backend.queues))}"
    if found["running"]:
        yield ""
        yield from table([("job", "id", "queue", "worker", "for", "progress"), *map(running_row, found["running"])])


def queues(database: str, held: Held, now: int) -> list[dict[str, Any]]:
    """Return the queues that have jobs, that the settings name, or that are paused; numbers stop above 10,000."""
    letters, paused = overview.letters(database, NAMES, MOST_COUNTED + 1), pauses.paused(database, now)
    names = {*engine_for(database).queue_names(NAMES), *letters, *paused, *named_queues(database)}
    backlogs, fills = overview.backlogs(database, names, now, MOST_COUNTED + 1), overview.fills(database, names)
    return [
        {
            "queue": name,
            "due": backlogs[name].due,
            "scheduled": backlogs[name].scheduled,
            "retrying": backlogs[name].retrying,
            "waiting": backlogs[name].waiting,
            "running": held.queues[name, "running"],
            "expired": held.queues[name, "expired"],
            "dead": letters.get(name, 0),
            "later": backlogs[name].later - backlogs[name].read,
            "depth": fills[name].depth if name in fills else None,
            "max_depth": fills[name].max_depth if name in fills else None,
            **limited(database, name, backlogs[name].parked),
            "paused": pauses.sentence(paused[name]) if name in paused else None,
        }
        for name in sorted(names)
    ]


def limited(database: str, name: str, blocked: int) -> dict[str, Any]:
    """Return the limits of a queue, and how many of its jobs are blocked, as far as there are any."""
    policy = options_for(name, database).policy(name)
    found = {"concurrency": policy.concurrency, "rate": policy.rate, "blocked": blocked}
    return {key: value for key, value in found.items() if value}


def limits_of(queue: dict[str, Any]) -> Iterator[str]:
    """Yield the limits of a queue for people."""
    if "concurrency" in queue:
        yield f"{queue['concurrency']} at once"
    if "rate" in queue:
        yield f"{queue['rate']} start"
    if "blocked" in queue:
        yield f"{queue['blocked']:,}{'+' * bool(queue['later'])} blocked by a limit"


def workers(present: Sequence[WorkerProcess], held: Held) -> list[dict[str, Any]]:
    """Return workers as programs read them; ``worker`` is what ``vtqueue quiet`` and ``stop`` take, as is ``id``."""
    names = names_of_workers(worker.pk for worker in present)
    return [
        {
            "worker": names[worker.pk],
            "id": worker.pk,
            "queues": worker.queues or "all",
            "slots": worker.slots,
            "running": held.workers[worker.pk, "begun"],
            "ahead": held.workers[worker.pk, "ahead"],
            "heartbeat_at": iso(to_instant(worker.heartbeat_at)),
            "asked_to": worker.asked_to,
        }
        for worker in present
    ]


def running(database: str, present: Sequence[WorkerProcess], now: int) -> list[dict[str, Any]]:
    """Return the jobs that workers have begun, up to 100 of each; each copy of a job that several run."""
    return [
        {
            "id": str(job.pk),
            "task": job.task_path,
            "queue": job.queue_name,
            "worker": shown_worker(job.worker_id),
            "seconds": max(now - to_instant(job.started_at), 0) / 1_000_000 if job.started_at else None,
            "progress": job.progress,
            "progress_text": job.progress_text,
        }
        for job in overview.begun(database, [worker.pk for worker in present], EACH, MOST_COUNTED, now)
    ]


def queue_row(queue: dict[str, Any]) -> list[str]:
    """Return the columns of a queue; a plus says that not all jobs that wait for a later time were looked at."""
    more = {name: "+" for name in LATER if queue["later"]}
    numbers = ["10,000+" if queue[name] > MOST_COUNTED else f"{queue[name]:,}{more.get(name, '')}" for name in NUMBERS]
    return [queue["queue"], *numbers, "; ".join(filter(None, [filled(queue), *limits_of(queue), queue["paused"]]))]


def filled(queue: dict[str, Any]) -> str:
    """Return how many jobs of a queue wait of those that may; "" where any number may."""
    depth, most = queue["depth"], queue["max_depth"]
    if most is None:
        return ""
    if depth >= most:
        return f"FULL: {'more than ' if depth > most else ''}{most:,} wait, max_depth is {most:,}"
    return f"{depth:,} of {most:,} wait ({depth * 100 // most} %)"


def worker_row(worker: dict[str, Any], now: int) -> list[Any]:
    heard = ago(to_instant(datetime.fromisoformat(worker["heartbeat_at"])), now)
    said = [f"{worker['ahead']:,} claimed ahead"] if worker["ahead"] else []
    said += [f"asked to {'be ' * (worker['asked_to'] == QUIET)}{worker['asked_to']}"] if worker["asked_to"] else []
    return [worker["worker"], worker["queues"], worker["slots"], worker["running"], heard, ", ".join(said)]


def running_row(job: dict[str, Any]) -> list[str]:
    done = "" if job["progress"] is None else f"{job['progress']:.0%}"
    length = "" if job["seconds"] is None else duration(round(job["seconds"] * 1_000_000))
    said = " ".join(filter(None, [done, job["progress_text"]]))
    return [job["task"] or "(raw payload)", f"…{job['id'][-8:]}", job["queue"], job["worker"], length, said]
