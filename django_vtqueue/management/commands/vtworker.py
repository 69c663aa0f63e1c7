"""``manage.py vtworker``: work off the jobs of one backend."""

import gc
import logging
import signal
import sys
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Any

from django.conf import settings
from django.core.checks import Tags, run_checks
from django.core.management.base import BaseCommand, CommandError
from django.db import Error
from django.db.models import Q

from ...backend import VTQueueBackend
from ...core import states
from ...core.clock import LAST_INSTANT, microseconds, to_instant
from ...core.humanize import duration
from ...core.ids import shown_worker
from ...core.job import Scope
from ...core.text import one_line, printable
from ...database_checks import TAG
from ...engines import Engine, Trouble, engine_for
from ...models import Job
from ...models.jobs import QUEUED
from ...queue.pauses import paused
from ...queue.schema import mismatch
from ...runtime.forks import dump_threads_at
from ...tasks.lookup import import_task_modules
from ...worker.heartbeat import write_stand_in
from ...worker.inline import Line, run_due
from ...worker.log import WorkerLog
from ...worker.logging_setup import log_lines, without_unread_records
from ...worker.loop import Worker
from ...worker.options import WorkerOptions, limits_of, scopes_of, served
from ...worker.outage import Outage
from ...worker.process import (
    READY,
    CannotRun,
    end_if_log_is_deleted,
    ending_with_program,
    fill_streams,
    notify_systemd,
    write_lines_at_once,
)
from ...worker.progress_bar import drain_bar, of_scope
from ...worker.reload import run_with_reload, stop_with_parent
from ...worker.shutdown import exit_after_release
from ...worker.stop_signals import StopSignals
from ...worker.supervisor import Supervisor
from ..arguments import add_backend, at_once, option_of, positive, seconds
from ..output import SILENT, is_terminal, said_if_silent
from ..preconditions import backend_of, refuse_copy, refuse_errors, refuse_file
from ..worker_options import worker_options_of

logger = logging.getLogger("django_vtqueue")

LOOK_FOR_TABLES = 1.0  # seconds
PATIENCE = 30.0  # seconds in which a drain waits for a database that cannot be reached, as while a server starts anew
COUNTED = 10_000  # jobs that a drain leaves


class Command(BaseCommand):
    help = "Works off background jobs until it is told to stop (SIGTERM or Ctrl-C; twice: at once)."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add_backend(parser)
        add("--queues", metavar="A,B", help="only these queues (default: all), also with weights: emails:3,default:1")
        add("--threads", type=at_once, metavar="N", help="jobs at a time (default: OPTIONS['threads'], or 4)")
        add(
            "--processes",
            type=at_once,
            metavar="N",
            help="child processes, with as many threads each (default: 1, none)",
        )
        add("--drain", action="store_true", help="work until nothing is due, then exit 0")
        add(
            "--drain-retries",
            type=seconds,
            default=0.0,
            metavar="SECONDS",
            help="with --drain: also wait for jobs that become due within this time",
        )
        add("--max-jobs-per-process", type=positive, metavar="N", help="replace a child process after so many jobs")
        add("--max-memory", type=positive, metavar="MB", help="replace a child process that has grown to this size")
        add("--max-jobs", type=positive, metavar="N", help="exit after so many jobs")
        add(
            "--shutdown-timeout",
            type=seconds,
            metavar="S",
            help="after a signal: give back jobs that still run after S seconds (default: wait for its end)",
        )
        add("--adopt", action="store_true", help="with DEBUG: run the jobs that a copied database brought along")
        add("--reload", action="store_true", default=None, help="restart when code changes (default with DEBUG)")
        add("--no-reload", action="store_false", dest="reload")

    def handle(self, **options: Any) -> None:
        owns_process = bool(getattr(self, "_called_from_command_line", False))
        if owns_process:
            fill_streams()
            write_lines_at_once()
        backend = backend_of(options["backend"])
        worker_options = worker_options_of(options, backend, owns_process)
        log = WorkerLog(verbosity=options["verbosity"], option=option_of(backend), now=backend.now)
        reload = settings.DEBUG and not worker_options.drain if options["reload"] is None else options["reload"]
        ending = ending_with_program() if owns_process else nullcontext()
        with ending, log_lines(sys.stderr if owns_process else self.stderr, options["verbosity"]):
            import_task_modules(backend.settings.task_modules)
            refuse_errors(backend)  # once more: now its tasks are known
            refuse_file(backend.database)
            with suppress(Error, MemoryError):  # a database that does not answer is waited for, and asked then
                if not worker_options.adopt:
                    refuse_copy(backend)
            if reload and owns_process:
                sys.exit(run_with_reload())
            if owns_process:
                end_if_log_is_deleted()
            if engine_for(backend.database).private():
                self.run_inline(backend, worker_options, log)
                return
            signals = StopSignals(owns_process, worker_options.shutdown_timeout)
            with signals.listening():
                if ready := wait_until_ready(backend, worker_options, signals):
                    self.run_worker(backend, worker_options, log, signals, ready)

    def run_worker(
        self, backend: VTQueueBackend, options: WorkerOptions, log: WorkerLog, signals: StopSignals, ready: str
    ) -> None:
        worker = Supervisor(backend, options, log) if options.processes > 1 else Worker(backend, options, log)
        signals.then(worker.stop)
        slots = options.threads * options.processes
        stop_with_parent(
            worker.stop, lambda: write_stand_in(engine_for(backend.database), served(worker.scopes), slots)
        )
        logger.info("vtworker %s ready: %s", shown_worker(worker.id), ready)
        if options.owns_process:
            notify_systemd(READY)
            dump_threads_at(signal.SIGUSR1)
            gc.freeze()  # what is there now stays: no need to look through it again and again
        show = options.drain and is_terminal(sys.stderr)
        with without_unread_records(), drain_bar(worker.engine, worker.scopes, log, show=show):
            try:
                worker.run()
            except CannotRun as error:
                raise CommandError(str(error)) from None
        logger.info(
            "vtworker %s done: %d attempt%s; longest write lock %.1fms",
            shown_worker(worker.id),
            log.ended,
            "" if log.ended == 1 else "s",
            worker.engine.longest_hold * 1000,
        )
        if options.drain:
            with worker.engine.snapshot() as now:
                left = left_for_later(worker.engine, worker.scopes, now)
            if left:
                logger.info("left for later: %s", left)
        if worker.left_running:
            exit_after_release()

    def run_inline(self, backend: VTQueueBackend, options: WorkerOptions, log: WorkerLog) -> None:
        if not options.drain:
            raise CommandError(
                "Only this thread sees this database (in memory, or inside a transaction): no worker can share it. "
                "Use --drain to run due jobs here and now."
            )
        until = engine_for(backend.database).now() + microseconds(options.drain_retries)
        line = Line(backend, scopes_of(backend, options.queues), until, limits_of(backend, options))
        for outcome in run_due([line], limit=options.max_jobs):
            log.outcome(outcome)


def left_for_later(engine: Engine, scopes: Sequence[Scope], now: int) -> str:
    """Return how many jobs a drain leaves, and when the first of them is due; "" if it leaves none."""
    waiting = Job.objects.using(engine.alias).filter(QUEUED, Q(*map(of_scope, scopes), _connector=Q.OR))
    found = list(waiting.values_list("attempts")[: COUNTED + 1])
    if not found:
        return ""
    number = "1 job" if len(found) == 1 else f"{len(found)} jobs"
    if len(found) > COUNTED:
        number = f"more than {COUNTED:,} jobs"
    if retries := sum(attempts > 0 for (attempts,) in found):
        number += f" ({retries} to be tried again)"
    claimable = waiting.exclude(queue_name__in=paused(engine.alias, now)).exclude(state=states.BLOCKED)
    # No other column: it may be damaged.
    first = claimable.order_by("visible_at").values_list("visible_at", flat=True).first()
    if first is None:
        blocked = waiting.filter(state=states.BLOCKED).exists()
        return f"{number} blocked by limits" if blocked else f"{number} in paused queues"
    if to_instant(first) >= LAST_INSTANT:
        return f"{number}; they wait for events or for other jobs"
    return f"{number}; the first is due in {duration(max(to_instant(first) - now, 0))}"


def wait_until_ready(backend: VTQueueBackend, options: WorkerOptions, signals: StopSignals) -> str:
    """Block until a worker can begin, saying once what has to be done for that; return the end of its ready line.

    Return "" if it is told to stop before. The queue's tables have to be there and of this version, and the database to
    answer; a drain does not wait for tables, and not for long for an answer: it raises CommandError.
    """
    engine = engine_for(backend.database)
    outage, said = Outage(engine), ""
    while not signals.count:
        try:
            with said_if_silent(lambda: logger.warning(SILENT.format(backend.database, "Waiting for it."))):
                problem = mismatch(backend.database)
            if not problem:
                warn_of(backend)
                if not options.adopt:
                    refuse_copy(backend)  # its tables may have come, or the file itself, while this one waited
                return description(backend, options)
        except (Error, MemoryError) as error:
            if engine.trouble(error) is None:
                raise
            outage.note_failure(error)
            if options.drain and engine.trouble(error) is not Trouble.BUSY and outage.seconds() > PATIENCE:
                raise CommandError(f"Database {backend.database!r}: {printable(str(error))}") from error
        else:
            if options.drain:  # by cron, say: the next one comes anyway
                raise CommandError(f"{problem}.")
            if problem != said:
                logger.warning("%s. Waiting for it.", problem)
                said = problem
        time.sleep(LOOK_FOR_TABLES)
    return ""


def warn_of(backend: VTQueueBackend) -> None:
    """Log what the checks of the queue have to say of its database."""
    for message in run_checks(tags=[Tags.database, TAG], databases=[backend.database]):
        if message.id and message.id.startswith("vtqueue.") and not message.is_silenced():
            logger.warning("%s (%s)", message.msg, message.id)


def description(backend: VTQueueBackend, options: WorkerOptions) -> str:
    """Return the end of the ready line: queues, threads, database."""
    weights = options.weights or {}
    names = [f"{name}:{weights[name]}" if weights else name for name in served(scopes_of(backend, options.queues))]
    queues = one_line(",".join(names)) or "all"
    threads = f"{options.threads} thread{'' if options.threads == 1 else 's'}"
    if options.processes > 1:
        threads = f"{options.processes} processes of {threads}"
    return f"queues {queues}; {threads}; {engine_for(backend.database).describe()}"
