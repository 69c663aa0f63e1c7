"""The control loop: one thread that owns every claim, every renewal and every settlement.

All input reaches it through one mailbox. It takes a turn whenever there is something to do, and sleeps in between.
"""

import logging
import time
from queue import Empty

from ..backend import VTQueueBackend
from ..core.ids import new_worker_id, shown_worker
from ..engines import new_engine
from ..execution.outcomes import Outcome
from ..queue.doorbell import Doorbell, folder_of
from ..queue.workers import QUIET, STOP, WORK
from . import systemd
from .heartbeat import PERIOD, Heartbeat, resident
from .log import WorkerLog
from .mailbox import Mailbox, Message, Stop, Timed, Wake
from .options import WorkerOptions, scopes_of, served
from .pacing import LOOK
from .report import GOES, REPLACE, STAYS, Report
from .shutdown import end_jobs
from .thread_pool import Pool
from .turn import Turns

logger = logging.getLogger("django_vtqueue")

ANSWERS = {
    QUIET: "is quiet: it finishes what runs, and claims nothing until it is asked to work",
    STOP: "stops, as it was asked to",
    WORK: "works again",
}
NEVER = float("inf")
WATCHFUL = 60.0  # seconds after a commit of another connection
RARE_LOOK = 0.25  # seconds between two looks at a database that was not written to lately


class Worker:
    """Runs the jobs of one backend until it is told to stop, or, with ``drain``, until nothing is due.

    ``report``: what its supervisor reads, if it has one.
    """

    def __init__(
        self, backend: VTQueueBackend, options: WorkerOptions, log: WorkerLog, report: Report | None = None
    ) -> None:
        self.options, self.log = options, log
        self.id = new_worker_id()
        self.engine = new_engine(backend.database, traced=False)
        self.mailbox = Mailbox()
        self.bell = Doorbell(backend.database, folder_of(backend.settings.doorbells), self.id)
        self.scopes = scopes_of(backend, options.queues)
        self.heartbeat = Heartbeat(self.engine, backend, self.id, served(self.scopes), options.threads, self.bell.path)
        self.pool = Pool(options.threads, backend, log, self.mailbox.put, self.mailbox.timed)
        self.report = report or Report()
        self.turns = Turns(self.heartbeat, self.pool, options, log, self.scopes, self.report)
        self.work = self.turns.work
        self.left_running = False  # afterwards: whether code of jobs that were given back may still run
        self._obeyed = WORK  # what it was asked to do last
        self._stops = 0  # how often it was told to
        self._outgrown = False  # it takes more memory than it may
        self._stop_by = NEVER  # monotonic
        self._look_at = self._watchful_until = self._second_at = 0.0

    def run(self) -> None:
        """Work until told to stop, or until there is nothing left to do."""
        self.pool.start()
        self.bell.listen(self.rung)
        self.report.worker_id = self.id.encode()
        with self.engine.without_lock_waits():
            try:
                while not self.done():
                    if not self.turns.outage.waiting():
                        self.turns.try_turn()
                        self.obey()
                    self.rest()
            finally:
                self.leave()

    def leave(self) -> None:
        """Give back what still runs, and take the doorbell and the worker's row away, unless code still runs."""
        recalled = {job.key for job in self.work.recall()}
        self.read_mail(0)  # what has finished meanwhile
        self.left_running = end_jobs(self.turns, recalled, owns_process=self.options.owns_process)
        if not self.left_running:
            self.bell.close()
            self.heartbeat.sign_off()
        self.work.tell_supervisor()

    def stop(self) -> None:
        """Ask for a graceful stop; from any thread, and from a signal handler. Twice: at once."""
        self.mailbox.stop()

    def rung(self, asked: bool) -> None:
        """Wake the loop, from the bell's own thread; rings that come before the next turn are one."""
        self.mailbox.wake(asked)
        self.turns.pacing.wait_for_more()

    def done(self) -> bool:
        """Return whether there is nothing left to do, or no time left to do it."""
        turns = self.turns
        if self._stops > 1 or time.monotonic() >= self._stop_by:
            return True
        if len(self.work.in_flight) > len(self.work.in_flight.hung()) or self.work.outcomes:
            return False
        if self.leaves():
            return True
        return self.options.drain and not self.options.supervised and turns.drained(self.options.drain_retries)

    def leaves(self) -> int:
        """Return whether this worker claims nothing more, and whether its supervisor is to replace it."""
        if self._outgrown or (self.options.max_jobs and self.work.started >= self.options.max_jobs):
            return REPLACE
        return GOES if self.turns.stopping or (self.turns.quiet and self.options.drain) else STAYS

    def obey(self) -> None:
        """Do what people have asked of this worker, if that has changed."""
        if self.heartbeat.asked_to == self._obeyed:
            return
        self._obeyed = self.heartbeat.asked_to
        logger.info("vtworker %s %s", shown_worker(self.id), ANSWERS.get(self._obeyed, ANSWERS[WORK]))
        if self._obeyed == STOP and not self._stops:
            self.read(Stop())
        self.turns.next_due.forget()

    # Between turns

    def rest(self) -> None:
        """Sleep until there is something to do; now and then look whether the database has changed."""
        self.work.tell_supervisor()
        self.report.leaves = self.leaves()
        until = time.monotonic() + self.patience()
        while True:
            written = self.read_mail(min(until, self.next_look()) - time.monotonic())
            if self.look() or written or time.monotonic() >= until:
                return

    def patience(self) -> float:
        """Return the seconds for which the loop may sleep, as long as nothing reaches its mailbox or the database."""
        turns, now = self.turns, time.monotonic()
        if turns.outage.waiting():
            return turns.outage.retry_at - now
        if self.work.outcomes or self.done():
            return 0.0
        leases, prefetch = turns.leases, self.work.prefetch
        for_jobs = min(
            leases.renew_at, self.work.in_flight.next_end(), prefetch.give_back_at, self.work.next_writer_at()
        )
        for_others = min(
            self.heartbeat.due_at, turns.clock_steps.due_at, turns.maintenance.prune_at, self.work.recorder.at
        )
        seconds = min(for_jobs, for_others, self._stop_by) - now
        return max(min(seconds, turns.next_due.seconds_to_sleep()) if any(turns.room()) else seconds, 0.0)

    def next_look(self) -> float:
        """Return when to look at the database next (monotonic): not in trouble, nor as long as no slot is free."""
        return NEVER if self.turns.outage.waiting() or not any(self.turns.room()) else self._look_at

    def look(self) -> bool:
        """If it is time to, find out whether there is something new; return whether a turn is to be taken."""
        now = time.monotonic()
        self.log.tick()
        if self.options.owns_process and now >= self._second_at:
            self._second_at = now + PERIOD
            systemd.notify(systemd.WATCHDOG)
            limit = self.options.max_memory if self.options.supervised else None
            if limit and resident() >= limit * 2**20:
                self._outgrown = self.turns.stopping = True
        if now < self._look_at or self.turns.outage.waiting():
            return False
        first, self._look_at = not self._look_at, now + (LOOK if now < self._watchful_until else RARE_LOOK)
        changed = self.turns.look()
        if changed:
            self._watchful_until = 0.0 if first else now + WATCHFUL
        return changed

    def read_mail(self, patience: float) -> bool:
        """Wait for a message for ``patience`` seconds, then read all there are; return whether there was one."""
        written = False
        try:
            self.read(self.wait_for_mail(patience))
            written = True
            self.work.prefetch.wait_for_more(self.pool.waiting)
            self.turns.pacing.wait_for_more()
            while True:
                self.read(self.mailbox.get(0))
        except Empty:
            return written

    def wait_for_mail(self, patience: float) -> Message:
        """Return the next message; raise Empty if none comes. To sleep is no gap, but for longer than that is."""
        began = time.monotonic()
        try:
            return self.mailbox.get(patience)
        finally:
            self.turns.leases.takeover.worked(min(time.monotonic() - began, max(patience, 0.0)))

    def read(self, message: Message) -> None:
        """Take note of one message."""
        match message:
            case Outcome():
                self.work.finished(message)
            case Timed(key, runs):
                self.work.timed(key, runs)
            case Wake(asked):
                self.turns.next_due.forget()
                if asked:
                    self.heartbeat.look_again()
                    self.heartbeat.due_at = 0.0
            case Stop():
                self._stops += 1
                if self._stops == 1:
                    self.log.stopping([job for job in self.work.in_flight if job.begun], self.options.shutdown_timeout)
                self.turns.stopping = True
                if self.options.owns_process:
                    systemd.notify(systemd.STOPPING)
                if self.options.shutdown_timeout is not None:
                    self._stop_by = min(self._stop_by, time.monotonic() + self.options.shutdown_timeout)
