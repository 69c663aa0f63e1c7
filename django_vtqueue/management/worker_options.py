"""From the command line of ``vtworker`` to the options of a worker."""

from collections.abc import Collection
from typing import Any

from django.core.management.base import CommandError

from ..backend import VTQueueBackend
from ..worker.options import WorkerOptions

HEAVIEST = 1000


def worker_options_of(options: dict[str, Any], backend: VTQueueBackend, owns_process: bool) -> WorkerOptions:
    """Return what the command line says; raise CommandError for queues that the backend does not have."""
    names = backend.settings.queues | set(backend.settings.queue_options)
    given = [weighed(text.strip(), names) for text in (options["queues"] or "").split(",") if text.strip()]
    queues = tuple(dict.fromkeys(name for name, _ in given)) or None
    if queues is None and options["queues"] is not None:  # a variable of a shell that is empty, say
        raise CommandError(f"--queues {options['queues']!r} names no queue; leave it out to serve all.")
    if len(set(given)) > len(queues or ()):
        raise CommandError(f"--queues {options['queues']} gives a queue two weights; give each queue once.")
    weights = {name: weight or 1 for name, weight in given} if any(weight for _, weight in given) else None
    allowed = backend.settings.queues | set(backend.settings.handler_queues())
    if queues and backend.settings.queues and (unknown := sorted(set(queues) - allowed)):
        raise CommandError(
            f"TASKS[{backend.alias!r}] has no queue {', '.join(unknown)}; its queues are {', '.join(sorted(allowed))}."
        )
    processes = (options["processes"] or backend.settings.processes) if owns_process else 1
    if owns_process and processes == 1 and (options["max_jobs_per_process"] or options["max_memory"]):
        raise CommandError(
            "--max-jobs-per-process and --max-memory replace child processes; give --processes 2 or more."
        )
    if options["drain_retries"] and not options["drain"]:
        raise CommandError("--drain-retries says how long --drain waits; give both.")
    return WorkerOptions(
        queues=queues,
        weights=weights,
        processes=processes,
        threads=options["threads"] or backend.settings.threads,
        drain=options["drain"],
        drain_retries=options["drain_retries"],
        adopt=options["adopt"],
        max_jobs=options["max_jobs"],
        max_jobs_per_process=options["max_jobs_per_process"],
        max_memory=options["max_memory"],
        shutdown_timeout=options["shutdown_timeout"],
        owns_process=owns_process,
    )


def weighed(text: str, names: Collection[str]) -> tuple[str, int | None]:
    """Return a queue of ``--queues`` and its weight; with a colon it is a name only if the settings have that name."""
    name, colon, weight = text.rpartition(":")
    if text in names or not colon:
        return text, None
    if not (name and weight.isdecimal() and 1 <= int(weight) <= HEAVIEST):
        raise CommandError(
            f"--queues has {text}, but must have NAME or NAME:WEIGHT: a weight is a whole number from 1 to {HEAVIEST}, "
            "as in emails:3. A queue with a colon in its name must be in QUEUES or in OPTIONS['queue_options']."
        )
    return name, int(weight)
