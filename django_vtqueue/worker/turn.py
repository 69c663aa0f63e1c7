"""A turn of the control loop: what has finished is settled and what is due is claimed, in one transaction.

Renewals go before it, in a transaction of their own. After the commit jobs are started and results announced.
"""

import logging
from collections.abc import Sequence

from django.conf import settings

from ..core import states
from ..core.job import HeldJob, Key, Scope
from ..engines import Trouble
from ..execution.execute import longest_runs
from ..execution.outcomes import Outcome, given_back
from ..queue.claims import Taken, collect, settle, take
from ..queue.clock_steps import ClockSteps
from ..queue.doorbell import ring
from ..queue.origin import left_behind
from ..queue.workers import QUIET, STOP
from .cancellation import Cancellation
from .children.pool import Processes
from .heartbeat import Heartbeat
from .in_flight import InFlight
from .leases import Leases
from .log import WorkerLog, name
from .maintenance import Maintenance
from .options import WorkerOptions
from .outage import Outage, settle_alone
from .pacing import NextDue, Pacing
from .prefetch import Prefetch
from .recorder import Recorder
from .thread_pool import Pool
from .transactional import NEVER, TransactionalJobs

logger = logging.getLogger("django_vtqueue")

AT_ONCE = 400  # jobs that a turn settles, and that it claims ahead: for as long others may have to wait to write


class Turns:
    """What one worker holds and knows of the queue, and what it does about it, turn by turn."""

    def __init__(
        self,
        heartbeat: Heartbeat,
        pool: Pool | Processes,
        options: WorkerOptions,
        log: WorkerLog,
        scopes: Sequence[Scope],
    ) -> None:
        self.heartbeat, self.pool, self.options, self.log, self.scopes = heartbeat, pool, options, log, scopes
        self.id, self.engine, self.backend = heartbeat.worker.worker_id, heartbeat.engine, heartbeat.backend
        self.in_flight = InFlight()
        self.leases = Leases(self.engine, self.id, self.backend, self.in_flight)
        self.prefetch = Prefetch(pool.horizon, self.in_flight)
        self.transactional = TransactionalJobs(self.backend)
        self.pacing = Pacing()
        self.next_due = NextDue(self.engine, scopes)
        self.clock_steps = ClockSteps(self.engine)
        self.maintenance = Maintenance(self.engine)
        self.cancellation = Cancellation(self.engine, self.in_flight, pool)
        self.recorder = Recorder(self.engine, self.id)
        self.outage = Outage(self.engine)
        self.outcomes: list[Outcome] = []  # finished, not yet settled
        self.started = 0
        self.stopping = False  # nothing more is claimed
        self._starting: HeldJob | None = None  # a transactional job whose turn it is
        self._none_ahead = False  # when no slot was free nothing was found that may be claimed ahead
        self._unsure = False  # the last turn may or may not have been committed

    @property
    def quiet(self) -> bool:
        """Whether people want nothing more to be claimed, for now."""
        return self.heartbeat.asked_to in (QUIET, STOP)

    def try_turn(self) -> None:
        """Take a turn, and keep the database in order; one that fails is not the end."""
        try:
            self.turn()
            self.maintenance.do(contended=self.pacing.contended)
            self.leases.takeover.waited(self.outage.lasts())  # it got the lock at last
            self.outage.over()
        except Exception as error:
            self.recover(error)

    def turn(self) -> None:
        """Keep up what is held; settle and claim, in one transaction; then start and announce."""
        self.keep_up()
        self.prefetch.measure(self.pool.slots)
        if self.stopping or self.quiet or self.prefetch.overdue():
            self.give_back_waiting()
        begun = self.in_flight.begun()
        outcomes = self.outcomes[:AT_ONCE]
        free, ahead = self.room()
        if self.transactional.ready() and self.free_slots() > 0:
            self._starting, free = self.transactional.next(), max(free - 1, 0)
        if not (free or ahead) or not (self.next_due.worth_a_try() if outcomes else self.next_due.due()):
            free = ahead = 0
        if not (outcomes or begun or free or ahead or self._starting):
            return
        if (outcomes or begun) and (free or ahead) and self.pacing.apart:
            self.exchange(outcomes, begun, 0, 0)
            outcomes, begun = [], []
        self.exchange(outcomes, begun, free, ahead)

    def exchange(self, outcomes: Sequence[Outcome], begun: Sequence[HeldJob], free: int, ahead: int) -> None:
        """Settle and claim, in one transaction; then start and announce."""
        lost: set[Key] = set()
        taken: Taken | None = None
        self._unsure = True
        with self.engine.transaction():
            self.leases.takeover.locked(self.outage.lasts())
            if outcomes:
                settlements = [outcome.settlement for outcome in outcomes]
                lost = settle(self.engine, settlements, self.backend.settings.letter_ttl)
            if begun:
                self.engine.begin(begun, self.engine.now())
            starts = bool(self._starting and self.engine.begin([self._starting], self.engine.now(), waited=True))
            if free or ahead:
                taken = self.claim(free, ahead)
        self.pacing.took(self.engine.last_hold)
        self.in_flight.count(begun)
        self.settled(outcomes, lost)
        if self._starting:
            self.start(self._starting, starts)
        if taken:
            self._none_ahead = not (free or taken.rows)
            self.claimed(taken)
        self._unsure = False

    def start(self, job: HeldJob, starts: bool) -> None:
        """Have a transactional job run whose attempt was counted now; give back one that may not begin any more."""
        self._starting = None
        if not starts:
            self.transactional.finished(job.key)
            self.outcomes.append(given_back(job))
            return
        job.attempts, job.started_at = job.attempts + 1, self.engine.now()
        self.in_flight.limit(job.key, longest_runs([job], self.backend)[0])
        self.started += 1
        self.pool.run([job])

    def keep_up(self) -> None:
        """Renew what is held, end what has run for too long, and do what comes round once a second."""
        if self.outage.lasts():
            self.check_replaced()
        self.leases.look(self.engine.now())
        self.end_overdue()
        self.pool.maintain()
        self.leases.renew()
        if self.clock_steps.go_on():  # before the heartbeat, which sets right what says that a clock was ahead
            self.next_due.forget()
        if endings := self.heartbeat.keep(self.pool.memory):
            self.next_due.forget()
            self.recorder.count_endings(endings)
            for settlement in endings:
                if settlement.state == states.FAILED:
                    self.pool.announce_burial(settlement)
        self.recorder.write()
        if self._unsure:
            self.leases.release_unknown()
            self._unsure = False
        self.cancellation.keep()

    def claim(self, free: int, ahead: int) -> Taken:
        """Claim, inside the turn's transaction, what is run at once and what is run next."""
        now, letter_ttl = self.engine.now(), self.backend.settings.letter_ttl
        self.leases.look(now)
        patience = self.leases.takeover.patience()
        return take(
            self.engine,
            self.scopes,
            free,
            self.id,
            now,
            letter_ttl,
            patience=patience,
            ahead=ahead,
            waits=self.transactional.waits,
        )

    def give_back_waiting(self) -> None:
        """Give back what was claimed ahead and has not begun; another worker may have room."""
        jobs = self.recall() if self.stopping or self.quiet else self.pool.recall()
        for job in jobs:
            self.transactional.finished(job.key)  # it may have had the turn
        self.outcomes += [given_back(job) for job in jobs]
        self.prefetch.recalled()

    def recall(self) -> list[HeldJob]:
        """Take back all that has not begun."""
        starting, self._starting = [self._starting] if self._starting else [], None
        return [*self.pool.recall(), *self.transactional.recall(), *starting]

    def finished(self, outcome: Outcome) -> None:
        """Note what came of a job: its settlement is made in the next turn, if it was not made with its task."""
        self.transactional.finished(outcome.job.key)
        if outcome.stored is None:
            self.in_flight.finish(outcome.job.key)
            self.outcomes.append(outcome)
            if not outcome.went_back:
                self.prefetch.finished(outcome.seconds)
        elif outcome.stored:
            self.concluded([outcome])
        else:
            self.lost(outcome)

    def settled(self, outcomes: Sequence[Outcome], lost: set[Key]) -> None:
        """After the commit: forget what has ended, and have it announced."""
        del self.outcomes[: len(outcomes)]
        self.concluded([outcome for outcome in outcomes if outcome.job.key not in lost] if lost else outcomes)
        for outcome in outcomes if lost else ():
            if outcome.job.key in lost:
                self.lost(outcome)
        if any(outcome.went_back for outcome in outcomes):
            ring(self.backend.database, self.backend.settings.doorbells)

    def concluded(self, outcomes: Sequence[Outcome]) -> None:
        """Count and forget jobs whose settlement was made."""
        self.recorder.count(outcomes)
        ended = []
        for outcome in outcomes:
            key, settlement = outcome.job.key, outcome.settlement
            self.in_flight.remove(key)
            if settlement.state == states.READY:
                self.next_due.expect(settlement.visible_at or 0)
            if not (outcome.went_back or settlement.stopped):
                ended.append(outcome)
                continue
            self.pool.forget(outcome)
            if settlement.stopped:
                self.pool.announce_burial(settlement)
        self.pool.announce(ended)

    def lost(self, outcome: Outcome) -> None:
        """Forget a job that another worker holds now; its outcome is dropped."""
        self.in_flight.remove(outcome.job.key)
        self.log.lost(outcome.job)
        self.pool.forget(outcome)

    def claimed(self, taken: Taken) -> None:
        """After the commit: start what was claimed."""
        self.recorder.count_endings(taken.endings)
        for settlement in taken.buried:
            self.pool.announce_burial(settlement)
        jobs = collect(self.engine, taken)
        # A job may be held already: the database was restored to a state before its claim, and it was claimed again.
        new = [job for job in jobs if job.key not in self.in_flight]
        waiting = {job.key for job in jobs if self.transactional.waits(job.task_path)}
        self.in_flight.add(jobs, longest_runs(jobs, self.backend), waiting)
        self.leases.add(jobs)
        self.transactional.add(job for job in new if job.key in waiting)
        running = [job for job in new if job.key not in waiting] if waiting else new
        self.started += len(running)
        self.prefetch.add(running)
        self.pool.run(running)
        self.next_due.took(taken.everything)

    def room(self) -> tuple[int, int]:
        """Return how many jobs may be claimed now to be run at once, and how many ahead of that.

        Those that have finished make room in the same turn. Fewer than none: a child that has just died or retired
        takes its slots with it.
        """
        if self.stopping or self.quiet or self.transactional.full:
            return 0, 0
        free = self.free_slots()
        if self.options.max_jobs:
            claimed = self.started + len(self.transactional) + bool(self._starting)
            return max(min(free, self.options.max_jobs - claimed), 0), 0
        depth = self.prefetch.depth() if self.pool.may_wait and not self._none_ahead else 0
        ahead = min(depth + min(free, 0), AT_ONCE)
        return max(free, 0), ahead if ahead > depth // 4 else 0

    def free_slots(self) -> int:
        """Return how many slots no job has, or is about to have; those that wait for their turn have none."""
        return self.pool.slots - len(self.in_flight) + len(self.outcomes) + len(self.transactional)

    def next_writer_at(self) -> float:
        """Return when the next transactional job may have its turn (monotonic), if there is a slot for it."""
        return self.transactional.free_at() if self.free_slots() > 0 else NEVER

    def timed(self, key: Key, runs: bool) -> None:
        """Note that a job waits for its transaction, or that this has begun: its time runs from now on."""
        if job := self.in_flight.get(key):
            self.transactional.timed(job, runs)
            self.in_flight.limit(key, longest_runs([job], self.backend)[0] if runs else NEVER)

    def end_overdue(self) -> None:
        """End what has run for too long; if a thread cannot be ended, drain the others, and leave."""
        for job in self.in_flight.overdue():
            logger.warning("%s runs for too long; it is told to end", name(job))
            self.pool.end(job)
        if not self.stopping and (hung := self.in_flight.hung()):
            logger.warning("%s does not end; this worker finishes its other jobs and leaves", name(hung[0]))
            self.stopping = True

    def recover(self, error: Exception) -> None:
        """Go on after an error: wait if it is one that passes, else find out which settlement it was."""
        trouble = self.engine.trouble(error)
        if trouble is Trouble.BUSY:
            self.pacing.busy()
        if trouble is None and self.outcomes:
            logger.warning("a turn failed (%r): its settlements are made one by one", error)
            try:
                outcomes = list(self.outcomes)
                letter_ttl = self.backend.settings.letter_ttl
                self.settled(outcomes, settle_alone(self.engine, outcomes, letter_ttl, self.pool.forget))
                return
            except Exception as again:
                error = again
        self.outage.failed(error, self.pacing.patience, left=self.leases.left())

    def check_replaced(self) -> bool:
        """If another database has taken the place of ours, forget what is known; what runs is settled in that one.

        With DEBUG it may be a copy from elsewhere, whose jobs are not to run here. Return whether it was one.
        """
        self.leases.look(self.engine.now())
        if not self.engine.replaced():
            return False
        if settings.DEBUG and (home := left_behind(self.engine)):
            logger.warning("the database was replaced by one from %s; this worker leaves. Start it anew", home)
            self.stopping = True
            return True
        logger.warning("the database was replaced; this worker goes on with the new one")
        self.leases.renew_at = 0.0
        self.next_due.forget()
        self.heartbeat.forget()
        return True
