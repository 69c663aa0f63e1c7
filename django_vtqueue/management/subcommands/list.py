"""``vtqueue list``: the jobs of a state, a queue, a task, a time."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.core.management.base import CommandError

from ...backend import VTQueueBackend
from ...core.clock import LAST, microseconds, to_instant
from ...core.names import is_reserved
from ...core.states import WORDS
from ...core.text import printable
from ...engines import engine_for
from ...inspection.lists import ListQuery, Page, list_jobs, list_letters, list_newest
from ...inspection.state import count_children, state_word, waiting_sentence
from ...models import DeadLetter, Job
from ...tasks.lookup import find_task, import_task_modules, loaded_tasks
from ..arguments import duration_or_moment, not_empty, positive, remark_on
from ..output import add_json, ago, arguments, as_json, in_one_line, iso, table

HELP = "Lists jobs and dead letters, the newest first; of one state: those that are due as they are claimed."
LOOKED_AT = 100_000  # rows
MOMENTS = ("enqueued_at", "started_at", "due_at", "wake_at", "start_by", "finished_at", "died_at")


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--state", choices=WORDS, help="(default: any)")
    add("--queue", type=not_empty, metavar="QUEUE", help="of this queue")
    add("--task", type=not_empty, metavar="PATH", help="of this task: shop.tasks.charge")
    add(
        "--since",
        metavar="WHEN",
        help="enqueued (--state dead: died) in the last 30m, 2h, 1d, or since 2030-12-31 15:00",
    )
    add("--text", default="", help="in the id, the task or the arguments, but not in hidden values")
    add(
        "--limit",
        type=partial(positive, most=LOOKED_AT),
        default=50,
        metavar="N",
        help="no more than N jobs (default: 50)",
    )
    add_json(parser)


def run(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Show a line for each, or a JSON list."""
    if is_reserved(options["queue"] or ""):
        raise CommandError(f"Queue {options['queue']!r} has no jobs: see manage.py vtqueue leases, or vtqueue slots.")
    with engine_for(backend.database).snapshot() as now:
        query = ListQuery(
            word=options["state"] or "",
            queue_name=options["queue"],
            task_path=options["task"],
            since=since(options["since"], now),
            text=options["text"].strip("… "),
        )
        page = found(backend.database, query, options["limit"], now)
    if options["json"]:
        yield as_json([described(entry, now) for entry in page.rows])
    elif page.rows:
        yield from table([line(entry, now) for entry in page.rows])
    if not page.rows:
        for remark in remarks(backend, options):
            print(printable(remark), file=sys.stderr)
    if page.looked_to and len(page.rows) < options["limit"]:
        raise CommandError(f"Looked at {LOOKED_AT:,} jobs only; say the state, the queue, the task or the time too.")


def remarks(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Yield what to say of the names of a list without a row, which may be mistyped; see remark_on."""
    if name := options["queue"]:
        yield from filter(None, [remark_on(backend, name)])
    modules = tuple(backend.settings.task_modules)
    if path := options["task"]:
        try:
            find_task(path, modules)
        except Exception:  # or its module does not import
            with suppress(Exception):
                import_task_modules(modules)
            there = sorted({task.module_path for task in loaded_tasks(modules)})
            yield f"There is no task {path!r}. There are: {', '.join(there) or 'none'}."


def found(database: str, query: ListQuery, limit: int, now: int) -> Page:
    """Return the jobs and dead letters of a query, with their payloads."""
    jobs, letters = Job.objects.using(database), DeadLetter.objects.using(database)
    if query.word == "dead":
        return list_letters(letters, query, None, size=LOOKED_AT, limit=limit)
    if query.word:
        page = list_jobs(jobs, query, None, size=LOOKED_AT, limit=limit, now=now)
    else:
        page = list_newest(jobs, letters, query, size=LOOKED_AT, limit=limit, now=now)
    count_children(row for row in page.rows if isinstance(row, Job))
    return page


def since(given: str | None, now: int) -> int | None:
    """Return the instant that a command line means; raise CommandError for what is none."""
    if given is None:
        return None
    begin = duration_or_moment(given)
    if begin is None:
        raise CommandError(f"--since is {given!r}, but must be as 30m, 2h or 1d, or as 2030-12-31 15:00.")
    return now - microseconds(begin) if isinstance(begin, timedelta) else to_instant(begin)


def when(moment: datetime) -> str | None:
    """Return a moment as programs read it; None for one that never comes: of what waits without an end."""
    return None if moment == LAST else iso(to_instant(moment))


def line(entry: Job | DeadLetter, now: int) -> list[str]:
    """Return the columns of a line."""
    name = entry.task_path or "(raw payload)"
    age = ago(to_instant(entry.died_at if isinstance(entry, DeadLetter) else entry.enqueued_at), now)
    what = entry.exception_class if isinstance(entry, DeadLetter) else in_one_line(arguments(entry))
    waits = waiting_sentence(entry, now) if isinstance(entry, Job) else ""
    return [state_word(entry, now), name, str(entry.pk), entry.queue_name, age, what, waits]


def described(entry: Job | DeadLetter, now: int) -> dict[str, Any]:
    """Return what a program reads of an entry."""
    job = entry if isinstance(entry, Job) else None
    return {
        "id": str(entry.pk),
        "state": state_word(entry, now),
        "task": entry.task_path,
        "queue": entry.queue_name,
        "priority": entry.priority,
        "attempts": entry.attempts,
        "max_attempts": entry.max_attempts,
        "worker": entry.worker_id,
        **{name: when(moment) for name in MOMENTS if (moment := getattr(entry, name, None))},
        **({"waits_for": waits} if job and (waits := waiting_sentence(job, now)) else {}),
        **({"unique_key": entry.unique_key, "unique_until": entry.unique_until} if entry.unique_key else {}),
        **{name: key for name in ("concurrency_key", "rate_key") if (key := getattr(entry, name))},
        **({"parent": str(entry.parent_id)} if entry.parent_id else {}),
        "arguments": arguments(entry),
        **({"exception": entry.exception_class, "message": entry.message} if isinstance(entry, DeadLetter) else {}),
        **({"progress": job.progress, "progress_text": job.progress_text} if job else {}),
    }
