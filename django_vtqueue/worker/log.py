"""The worker's log: a line for each job while they are few, a summary a second when they are many."""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from ..core import clock, states
from ..core.clock import LAST_INSTANT
from ..core.humanize import local
from ..core.job import HeldJob
from ..core.settlement import Settlement
from ..core.steps import GATHER, Waiting
from ..core.text import one_line
from ..exceptions import Retry
from ..execution.outcomes import Outcome

logger = logging.getLogger("django_vtqueue")

MANY = 50  # lines in a second; above it a line for each job would halve the throughput
NAMED = 3  # jobs in one line
LINE = 200  # characters of an error
SLOW = 1.0  # seconds of run time from which a job is always worth its line


class WorkerLog:
    """Writes what became of jobs; ``verbosity``: from 2 on a line for each, however many they are.

    ``option``: what names the backend on a command line. ``now``: the clock of its database.
    """

    def __init__(self, *, verbosity: int = 1, option: str = "", now: Callable[[], int] = clock.now) -> None:
        self.verbosity, self.option, self.now = verbosity, option, now
        self.quiet = False  # successes are shown otherwise
        self.listeners: list[Callable[[int], None]] = []  # told how many jobs have ended since the last time
        self.ended = 0
        self._lock = threading.Lock()
        self._second = 0
        self._count = self._unsaid = 0
        self._many = False

    def outcome(self, outcome: Outcome) -> None:
        """Write what came of an execution, once it is stored."""
        job, settlement = outcome.job, outcome.settlement
        self.count(1)
        if settlement.state == states.FAILED:
            self.dead(settlement)
            if holds_up(outcome):
                logger.warning("queue %s is paused for a while by that job", one_line(job.queue_name))
        elif settlement.requested:
            logger.warning("copy  %s %s; another copy runs on", job_name(job), words(settlement))
        elif settlement.waiting:
            if not self.quiet:
                logger.info("wait  %s %s", job_name(job), waiting_words(settlement.waiting))
        elif settlement.failure is not None:
            wait = 0.0 if settlement.due_at is None else (settlement.due_at - self.now()) / clock.SECOND
            limit = f"/{job.max_attempts}" if job.max_attempts else ""
            logger.warning(
                "retry %s attempt=%d%s %s; next in %.1fs%s",
                job_name(job),
                job.attempts,
                limit,
                words(settlement),
                max(wait, 0),
                f", and queue {one_line(job.queue_name)} is paused until then" if holds_up(outcome) else "",
            )
        elif settlement.state == states.SUCCESSFUL and self._worth_a_line(outcome.seconds):
            logger.info(
                "ok    %s queue=%s attempt=%d wait=%s run=%s",
                job_name(job),
                one_line(job.queue_name),
                job.attempts,
                brief(max((job.started_at or 0) - job.due_at, 0) / clock.SECOND),
                brief(outcome.seconds),
            )

    def count(self, jobs: int) -> None:
        """Count jobs that have ended."""
        with self._lock:
            self.ended += jobs
        for listener in self.listeners:
            listener(jobs)

    def dead(self, settlement: Settlement) -> None:
        """Write that a job has become a dead letter."""
        job = settlement.job
        logger.warning(
            "dead  %s after %d attempt%s: %s; requeue: manage.py vtqueue requeue%s …%s",
            job_name(job),
            job.attempts,
            "" if job.attempts == 1 else "s",
            words(settlement),
            self.option,
            job.id[-8:],
        )

    def lost(self, job: HeldJob) -> None:
        """Write that a job was finished too late: another worker has it."""
        now = self.now()
        held = max(now - (job.started_at or now), 0) / clock.SECOND
        why = "another copy was first, or the job is gone" if job.copies else "lease lost"
        logger.warning("lost  %s %s after %s; result dropped", job_name(job), why, brief(held))

    def stopping(self, running: Sequence[HeldJob], timeout: float | None) -> None:
        """Write what a worker that was told to stop waits for; ``timeout``: for how many seconds at the most."""
        if not running:
            return
        some = ", ".join(job_name(job) for job in running[:NAMED]) + (", …" if len(running) > NAMED else "")
        logger.info(
            "stopping: waiting%s for %d job%s to end (%s); stop it again (Ctrl-C, SIGTERM) to give them back at once",
            "" if timeout is None else f" up to {brief(timeout)}",
            len(running),
            "" if len(running) == 1 else "s",
            some,
        )

    def released(self, settlements: Sequence[Settlement]) -> None:
        """Write what became of the jobs that still ran when the worker left."""
        for settlement in settlements:
            if settlement.state == states.FAILED:
                self.dead(settlement)
        count = sum(settlement.goes_on for settlement in settlements)
        logger.info("gave back %d job%s", count, "" if count == 1 else "s")

    def close(self) -> None:
        """Write the summary of what has not been written yet."""
        with self._lock:
            self._turn_over(self._second + 1)

    def tick(self) -> None:
        """Write the summary of the second that has ended, if there is one."""
        with self._lock:
            self._turn_over(int(time.monotonic()))

    def _worth_a_line(self, seconds: float) -> bool:
        if self.quiet:
            return False
        if self.verbosity > 1 or seconds >= SLOW:
            return True
        with self._lock:
            self._turn_over(int(time.monotonic()))
            self._count += 1
            if self._many or self._count > MANY:
                self._unsaid += 1
                return False
            return True

    def _turn_over(self, second: int) -> None:
        """Begin a new second: the one before decides whether its jobs get a line each."""
        if second == self._second:
            return
        if self._unsaid:
            more = "" if self._many else "more "
            logger.info("ok    %s %sjobs in the last second", f"{self._unsaid:,}", more)
        self._many = self._count > MANY and second == self._second + 1
        self._second, self._count, self._unsaid = second, 0, 0


def job_name(job: HeldJob) -> str:
    """Return a job as the log shows it: its task, and the end of its id."""
    return f"{one_line(job.task_path or job.queue_name)} …{job.id[-8:]}"


def holds_up(outcome: Outcome) -> bool:
    """Return whether a task has paused its queue; see Retry."""
    return isinstance(outcome.exception, Retry) and outcome.exception.whole_queue


def words(settlement: Settlement) -> str:
    """Return why an attempt failed, in one line."""
    failure = settlement.failure
    if failure is None:
        return ""
    first = one_line(brief_text(next((line for line in failure.message.splitlines() if line.strip()), "")))
    return f"{failure.exception_class.rpartition('.')[2]}: {first}" if first else failure.exception_class


def brief_text(line: str) -> str:
    """Return some 200 characters of a line at the most, whole sentences if there are some: the history has all."""
    if len(line) <= LINE:
        return line.removesuffix(".")
    head = line[:LINE]
    sentences = head.rpartition(". ")[0]
    return sentences or (head.rpartition(" ")[0] or head) + " …"


def waiting_words(waiting: Waiting) -> str:
    """Return what a job waits for, and until when."""
    endless = waiting.until == LAST_INSTANT or waiting.kind == GATHER  # it waits again then
    until = "" if endless else f" until {local(clock.from_instant(waiting.until)):%Y-%m-%d %H:%M:%S}"
    return f"{waiting.kind}{f' {waiting.name!r}' if waiting.name else ''}{until}"


def brief(seconds: float) -> str:
    """Return a duration for people: 41ms, 3.2s, 61s."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"
