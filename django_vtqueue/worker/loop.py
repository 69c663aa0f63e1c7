"""The control loop: one thread that makes the claims, renewals and settlements of a worker.

There are four exceptions:

- A transactional task renews and settles its job in its own transaction; a transactional step renews it in its own.
- The handler of a raw job may extend or settle it itself.
- On PostgreSQL a thread renews while a row lock keeps the loop (``late_renewals.py``).
- The supervisor renews what this process does not renew in time, and settles what this process leaves.

All input reaches the loop through one mailbox. It takes a turn when there is something to do, and sleeps in between.
"""

import logging
import time
from dataclasses import dataclass
from queue import Empty

from ..backend import VTQueueBackend
from ..core.ids import new_worker_id, shown_worker
from ..engines import new_engine
from ..execution.connections import beginning_fairly
from ..execution.outcomes import Outcome
from ..execution.time_limits import Notice, TaskFound, TransactionBegun, TransactionWaits
from ..queue.doorbell import Doorbell, folder_of
from ..queue.workers import ANSWERS, GO_ON, STOP
from ..runtime.signal_safe_queue import SignalSafeQueue
from .heartbeat import PERIOD, Heartbeat
from .late_renewals import RenewalThread
from .log import WorkerLog
from .options import WorkerOptions, scopes_of, served
from .process import WATCHDOG, notify_systemd, open_devnull
from .shared_state import SharedState
from .shutdown import Shutdown, end_jobs
from .silence import SilenceWatch
from .thread_pool import Pool
from .turn import Turns
from .work import Work

logger = logging.getLogger("django_vtqueue")


@dataclass(frozen=True, slots=True)
class Wake:
    """The doorbell was rung; ``workers``: because of the rows of the workers."""

    workers: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Claim nothing more and end when what runs has ended; a second one: release it and leave."""


Message = Outcome | Wake | Stop | Notice


class Worker:
    """Runs the jobs of one backend until it is told to stop, or, with ``drain``, until nothing is due.

    ``state``: what its supervisor reads, if it has one.
    """

    def __init__(
        self, backend: VTQueueBackend, options: WorkerOptions, log: WorkerLog, state: SharedState | None = None
    ) -> None:
        self.options, self.log, self.state = options, log, state or SharedState()
        self.id = new_worker_id()
        self.engine = new_engine(backend.database, traced=False)
        self.scopes = scopes_of(backend, options.queues, self.id)
        self.mailbox: SignalSafeQueue[Message] = SignalSafeQueue()
        self.bell = Doorbell(backend.database, folder_of(backend.settings.doorbells), self.id)
        self.heartbeat = Heartbeat(self.engine, backend, self.id, served(self.scopes), options.threads, self.bell.path)
        self.pool = Pool(options.threads, backend, log, self.take_outcome, self.take_notice)
        self.work = Work(self.engine, backend, self.id, self.pool, options, log, self.scopes, self.state)
        self.turns = Turns(self.work, self.heartbeat, self.scopes)
        self.renewals = RenewalThread(backend.database, self.work.leases, self.work.clocks.tell)
        self.shutdown = Shutdown(self.turns, options)
        self.silence = SilenceWatch(lambda: bool(self.work.in_flight.jobs()), owns_process=options.owns_process)
        self.left_running = False  # afterwards: whether code of released jobs may still run
        self._obeyed = GO_ON  # what it was asked to do last
        self._second_at = 0.0  # monotonic

    def run(self) -> None:
        """Work until told to stop, or until there is nothing left to do; raise CannotRun if it cannot begin."""
        open_devnull()  # opened now: later there may be no free descriptor
        self.bell.listen(self.rung)
        listener = self.turns.periodic.listener = self.engine.listen(self.rung)
        self.state.worker_id = self.id.encode()
        if self.engine.locks_rows:
            self.renewals.start()
        with self.silence.watched(), self.engine.without_lock_waits(), beginning_fairly():
            try:
                self.pool.start()
                self.read_mail(0)  # it may have been told to stop while it began
                while not self.shutdown.done():
                    if not self.turns.outage.waiting():
                        self.work.tell_supervisor()  # of what has finished: a lock may keep the turn for long
                        self.turns.try_turn()
                        self.obey()
                    self.rest()
            finally:
                self.renewals.stop()
                listener.close()
                self.leave()

    def leave(self) -> None:
        """Release what still runs, and take the doorbell and the worker's row away, unless it holds something still.

        In a process that is not the worker's own what runs is not released: its lease ends by itself.
        """
        self.state.departure = self.shutdown.departure()  # a look, or a message, may have come since the last rest
        self.work.release_ahead(everything=True)
        self.read_mail(0)  # what has finished meanwhile
        self.left_running = end_jobs(self.turns, self.read_mail, owns_process=self.options.owns_process)
        if not self.left_running:
            self.bell.close()
            self.heartbeat.sign_off()
        self.work.tell_supervisor()
        self.state.has_left = 1

    def stop(self) -> None:
        """Ask for a graceful stop; from any thread, and from a signal handler. Twice: at once."""
        self.silence.stopping = True
        self.mailbox.put(Stop())

    def take_notice(self, notice: Notice) -> None:
        """Take what a job tells of its time: set its time limit, and tell the loop; called in the thread of that job.

        The limit is not set by the loop: the task may keep the interpreter from the loop from now on.
        """
        self.work.clocks.start(notice.key, runs=not isinstance(notice, TransactionWaits))
        self.mailbox.put(notice)

    def take_outcome(self, outcome: Outcome) -> None:
        """Take what came of a job from its thread: it cannot be over its time any more, whatever the loop waits for."""
        self.work.clocks.stop(outcome.job.key)
        self.mailbox.put(outcome)

    def rung(self, workers: bool) -> None:
        """Wake the loop, from the thread of the bell or listener; rings that come before the next turn are one."""
        self.mailbox.put(Wake(workers))
        self.turns.pacing.leave_lock_to_others()  # in this thread: the loop goes on

    def obey(self) -> None:
        """Do what people have asked this worker to do, if that has changed."""
        if self.heartbeat.asked_to == self._obeyed:
            return
        self._obeyed = self.heartbeat.asked_to
        logger.info("vtworker %s %s", shown_worker(self.id), ANSWERS.get(self._obeyed, ANSWERS[GO_ON]))
        if self._obeyed == STOP and not self.shutdown.stops:
            self.read(Stop())
        self.turns.next_claim.forget()

    # Between turns

    def rest(self) -> None:
        """Sleep until a turn is due; now and then look whether the database has changed."""
        self.work.tell_supervisor()
        self.state.departure = self.shutdown.departure()
        until = 0.0 if self.shutdown.done() else min(self.turns.next_at(), self.shutdown.stop_by)
        while True:
            got_mail = self.read_mail(min(until, self.turns.look_at()) - time.monotonic())
            self.every_second()
            if self.turns.look() or got_mail or time.monotonic() >= until:
                return

    def every_second(self) -> None:
        """Do what is due once a second, whether there are turns or not."""
        self.log.tick()
        now = time.monotonic()
        if now < self._second_at or not self.options.owns_process:
            return
        self._second_at = now + PERIOD
        notify_systemd(WATCHDOG)
        self.shutdown.watch_memory()

    # What reaches the worker

    def read_mail(self, timeout: float) -> bool:
        """Wait for a message for ``timeout`` seconds, then read all there are; return whether there was one."""
        got_mail = False
        try:
            self.read(self.wait_for_mail(timeout))
            got_mail = True
            self.turns.wait_for_more()
            while True:
                self.read(self.mailbox.get_nowait())
        except Empty:
            return got_mail

    def wait_for_mail(self, timeout: float) -> Message:
        """Return the next message; raise Empty if none comes. A sleep is no gap, only what exceeds ``timeout``."""
        began = time.monotonic()
        try:
            with self.silence.resting():
                return self.mailbox.get(timeout)
        finally:
            self.work.leases.gaps.note_work(min(time.monotonic() - began, max(timeout, 0.0)))

    def read(self, message: Message) -> None:
        """Take note of one message."""
        match message:
            case Outcome():
                self.work.note_finished(message)
            case TransactionWaits(key):
                self.work.note_transaction_waits(key)
            case TransactionBegun(key):
                self.work.note_transaction_begun(key)
            case TaskFound():
                pass  # take_notice has set its time limit; the loop has woken, and sleeps no longer than until that
            case Wake(workers):
                self.turns.periodic.note_ring(workers)
            case Stop():
                self.shutdown.told_to_stop()
