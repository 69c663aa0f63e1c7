"""The control loop: one thread that owns every claim, every renewal and every settlement.

All input reaches it through one mailbox. A turn is one transaction: settle what has finished, claim into the free
slots. Renewals go before it, in a transaction of their own. After the commit jobs are started and results announced.
"""

import logging
import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue

from django.conf import settings

from .. import states
from ..backend import VTQueueBackend
from ..bells import Doorbell, folder_of, ring
from ..claims import Taken, collect, take
from ..clock import microseconds
from ..engines import new_engine
from ..execution import Outcome, given_back, longest_run
from ..home import left_behind
from ..ids import new_worker_id
from ..jobs import Key
from . import systemd
from .ahead import Ahead
from .chores import PERIOD, Chores
from .crew import Crew
from .held import Held
from .leaving import leave
from .lookout import LOOK, Lookout
from .mailbox import Finished, Message, Stop, Wake
from .plan import Plan, scopes_of, served
from .processes import executors
from .report import Report, name
from .settling import settle_alone
from .trouble import Episode

logger = logging.getLogger("django_vtqueue")


class Worker:
    """Runs the jobs of one backend until it is told to stop, or, with ``drain``, until nothing is due."""

    def __init__(self, backend: VTQueueBackend, plan: Plan, report: Report) -> None:
        self.backend, self.plan, self.report = backend, plan, report
        self.id = new_worker_id()
        self.engine = new_engine(backend.database, traced=False)
        self.scopes = scopes_of(backend, plan.queues)
        self.mailbox: SimpleQueue[Message] = SimpleQueue()
        self.bell = Doorbell(backend.database, folder_of(backend.settings.doorbells), self.id.rpartition(":")[2])
        slots = plan.processes * plan.threads
        self.crew = Crew(self.engine, backend, self.id, served(self.scopes), slots, self.bell.path)
        self.pool = executors(
            plan,
            backend,
            report,
            self.bell.fileno(),
            finished=lambda outcome: self.mailbox.put(Finished(outcome)),
            wake=lambda: self.mailbox.put(Wake()),
        )
        self.held = Held(self.engine, self.id, backend)
        self.ahead = Ahead()
        self.lookout = Lookout(self.engine, self.scopes)
        self.chores = Chores(self.engine, backend, self.crew)
        self.episode = Episode(self.engine)
        self.outcomes: list[Outcome] = []  # finished, not yet settled
        self.stops = 0
        self.started = 0
        self.left_running = False  # afterwards: whether code of jobs that were given back may still run
        self._stop_by = float("inf")  # monotonic
        self._look_at = self._watchdog_at = 0.0
        self._unsure = False  # the last turn may or may not have been committed

    def run(self) -> None:
        """Work until told to stop, or until there is nothing left to do."""
        self.pool.start()
        self.bell.listen(lambda: self.mailbox.put(Wake()))
        with self.engine.impatient():
            try:
                while not self.done():
                    if not self.episode.waiting():
                        self.try_turn()
                    self.read_mail(self.patience())
            finally:
                leave(self)

    def try_turn(self) -> None:
        """Take a turn; one that fails is not the end."""
        try:
            self.turn()
            self.episode.over()
        except Exception as error:
            self.endure(error)

    def stop(self) -> None:
        """Ask for a graceful stop; from any thread, and from a signal handler. Twice: at once."""
        self.mailbox.put(Stop())

    def done(self) -> bool:
        """Return whether there is nothing left to do, or no time left to do it."""
        if self.stops > 1 or time.monotonic() >= self._stop_by:
            return True
        if len(self.held) > len(self.held.hung()) or self.outcomes:
            return False
        if self.stops or (self.plan.max_jobs and self.started >= self.plan.max_jobs):
            return True
        return self.plan.drain and self.drained()

    def drained(self) -> bool:
        """Return whether nothing is due, nor will be within ``drain_retries``."""
        if self.episode.waiting() or not self.crew.moved_in:
            return False
        try:
            return self.lookout.nothing_before(self.engine.now() + microseconds(self.plan.drain_retries))
        except Exception as error:
            self.endure(error)
            return False

    # A turn

    def turn(self) -> None:
        """Keep up what is held; settle and claim, in one transaction; then start and announce."""
        self.keep_up()
        self.ahead.finished(sum(not outcome.went_back for outcome in self.outcomes))
        if self.stops or self.ahead.overdue():
            self.give_back_waiting()
        outcomes = list(self.outcomes)
        begun = self.ahead.begun({outcome.job.key for outcome in outcomes})
        free, ahead = self.room()
        if not (free or ahead) or not (self.lookout.worth_a_try() if outcomes else self.lookout.due()):
            free = ahead = 0
        if not (outcomes or begun or free or ahead):
            return
        lost: set[Key] = set()
        taken: Taken | None = None
        self._unsure = True
        with self.engine.transaction():
            if outcomes:
                lost = self.engine.settle([outcome.settlement for outcome in outcomes])
            if begun:
                self.engine.begin(begun, self.engine.now())
            if free or ahead:
                taken = self.claim(free, ahead)
        for job in begun:
            self.ahead.remove(job)
        self.settled(outcomes, lost)
        if taken:
            self.claimed(taken)
        self._unsure = False

    def keep_up(self) -> None:
        """Renew what is held, end what has run for too long, and do what comes round once a second."""
        if self.episode.lasts():
            self.watch()
        self.held.resumed_at(self.engine.now(), self.episode.lasts())
        self.end_overdue()
        self.pool.maintain()
        self.held.renew()
        if (endings := self.chores.do()) is not None:
            self.lookout.forget()
            for settlement in endings:
                if settlement.state == states.FAILED:
                    self.pool.announce_burial(settlement)
        if self._unsure:
            self.held.release_unknown()
            self._unsure = False

    def claim(self, free: int, ahead: int) -> Taken:
        """Claim, inside the turn's transaction, what is run at once and what is run next."""
        now, letter_ttl = self.engine.now(), self.backend.settings.letter_ttl
        resumed_at = self.held.resumed_at(now, self.episode.lasts())
        return take(self.engine, self.scopes, free, self.id, now, letter_ttl, resumed_at=resumed_at, ahead=ahead)

    def give_back_waiting(self) -> None:
        """Give back what was claimed ahead and has not begun; another worker may have room."""
        self.outcomes += [given_back(job) for job in self.pool.recall()]
        self.ahead.recalled()

    def settled(self, outcomes: Sequence[Outcome], lost: set[Key]) -> None:
        """After the commit: forget what has ended, and have it announced."""
        del self.outcomes[: len(outcomes)]
        self.concluded([outcome for outcome in outcomes if outcome.job.key not in lost])
        for outcome in outcomes:
            if outcome.job.key in lost:
                self.lost(outcome)
        if any(outcome.went_back for outcome in outcomes):
            ring(self.backend.database, self.backend.settings.doorbells)

    def concluded(self, outcomes: Sequence[Outcome]) -> None:
        """Forget jobs whose settlement was made."""
        for outcome in outcomes:
            self.held.remove(outcome.job)
            self.ahead.remove(outcome.job)
            if outcome.settlement.state == states.READY:
                self.lookout.expect(outcome.settlement.visible_at or 0)
            if outcome.went_back:
                self.pool.forget(outcome)
        self.pool.announce([outcome for outcome in outcomes if not outcome.went_back])

    def lost(self, outcome: Outcome) -> None:
        """Forget a job that somebody else holds now; what came of it is dropped."""
        self.held.remove(outcome.job)
        self.ahead.remove(outcome.job)
        self.report.lost(outcome.job)
        self.pool.forget(outcome)

    def claimed(self, taken: Taken) -> None:
        """After the commit: start what was claimed."""
        for settlement in taken.buried:
            self.pool.announce_burial(settlement)
        jobs = collect(self.engine, taken)
        # Of one that runs the database was put back to before its claim; now it was claimed once more.
        new = [job for job in jobs if job.key not in self.held]
        for job in jobs:
            self.held.add(job, longest_run(job, self.backend))
            self.ahead.add(job)
        self.started += len(new)
        self.pool.run(new)
        self.lookout.took(taken.all)

    def room(self) -> tuple[int, int]:
        """Return how many jobs may be claimed now to be run at once, and how many ahead of that.

        Those that have finished make room in the same turn. Fewer than none: a child that has just died or retired
        takes its slots with it.
        """
        if self.stops:
            return 0, 0
        free = self.pool.slots - len(self.held) + len(self.outcomes)
        if self.plan.max_jobs:
            return max(min(free, self.plan.max_jobs - self.started), 0), 0
        depth = self.ahead.depth() if self.pool.may_wait else 0
        ahead = depth + min(free, 0)
        return max(free, 0), ahead if ahead > depth // 4 else 0

    def end_overdue(self) -> None:
        """End what has run for too long; if a thread cannot be ended, drain the others, and leave."""
        for job in self.held.overdue():
            logger.warning("%s runs for too long; it is told to end", name(job))
            self.pool.end(job)
        if not self.stops and (hung := self.held.hung()):
            logger.warning("%s does not end; this worker finishes its other jobs and leaves", name(hung[0]))
            self.stops = 1

    def endure(self, error: Exception) -> None:
        """Go on after an error: wait if it is one that passes, else find out which settlement it was."""
        if self.engine.trouble(error) is None and self.outcomes:
            logger.warning("a turn failed (%r): its settlements are made one by one", error)
            try:
                outcomes = list(self.outcomes)
                self.settled(outcomes, settle_alone(self.engine, outcomes, self.backend.settings.letter_ttl))
                return
            except Exception as again:
                error = again
        self.episode.failed(error)

    # Between turns

    def patience(self) -> float:
        """Return the seconds for which the loop may sleep, as long as nobody writes to it."""
        now = time.monotonic()
        if self.episode.waiting():
            return self.episode.retry_at - now
        if self.outcomes or self.done():
            return 0.0
        until = min(self.held.renew_at, self.held.next_end(), self.chores.at, self._stop_by, self.ahead.give_back_at)
        if not any(self.room()):
            return max(until - now, 0.0)
        return max(min(until - now, self._look_at - now, self.lookout.seconds_to_sleep()), 0.0)

    def read_mail(self, patience: float) -> None:
        """Wait for a message for ``patience`` seconds, then read all there are."""
        try:
            self.read(self.mailbox.get(timeout=patience) if patience > 0 else self.mailbox.get_nowait())
            self.ahead.linger(self.pool.waiting)
            while True:
                self.read(self.mailbox.get_nowait())
        except Empty:
            pass
        self.report.tick()
        if self.plan.owns_process and time.monotonic() >= self._watchdog_at:
            self._watchdog_at = time.monotonic() + PERIOD
            systemd.notify(systemd.WATCHDOG)
        if time.monotonic() < self._look_at or self.episode.waiting():
            return
        self._look_at = time.monotonic() + LOOK
        try:
            self.watch()
            if self.engine.changed():
                self.lookout.forget()
        except Exception as error:
            self.endure(error)

    def watch(self) -> None:
        """If another database has taken the place of ours, forget what is known; what runs is settled in that one.

        With DEBUG it may be a copy from elsewhere, whose jobs nobody means to run here.
        """
        if self.engine.replaced():
            if settings.DEBUG and (home := left_behind(self.engine)):
                logger.warning("the database was replaced by one from %s; this worker leaves. Start it anew", home)
                self.stops = max(self.stops, 1)
                return
            logger.warning("the database was replaced; this worker goes on with the new one")
            self.held.renew_at = 0.0
            self.lookout.forget()
            self.crew.forget()

    def read(self, message: Message) -> None:
        """Take note of one message."""
        match message:
            case Finished(Outcome(stands=None) as outcome):
                self.outcomes.append(outcome)
            case Finished(outcome):
                self.concluded([outcome]) if outcome.stands else self.lost(outcome)
            case Wake():
                self.lookout.forget()
            case Stop():
                self.stops += 1
                if self.plan.owns_process:
                    systemd.notify(systemd.STOPPING)
                if self.plan.shutdown_timeout is not None:
                    self._stop_by = min(self._stop_by, time.monotonic() + self.plan.shutdown_timeout)
