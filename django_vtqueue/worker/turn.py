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
from ..queue.doorbell import ring
from ..queue.origin import left_behind
from ..queue.workers import QUIET, STOP
from .cancellation import Contact
from .children.pool import Processes
from .heartbeat import Chores, Crew
from .leases import Held
from .log import Report, name
from .maintenance import Upkeep
from .options import Plan
from .outage import Episode, settle_alone
from .pacing import Lookout, Pace
from .prefetch import Ahead
from .recorder import Tally
from .thread_pool import Pool
from .transactional import NEVER, Writers

logger = logging.getLogger("django_vtqueue")

AT_ONCE = 400  # jobs that a turn settles, and that it claims ahead: for as long others may have to wait to write


class Turns:
    """What one worker holds and knows of the queue, and what it does about it, turn by turn."""

    def __init__(self, crew: Crew, pool: Pool | Processes, plan: Plan, report: Report, scopes: Sequence[Scope]) -> None:
        self.crew, self.pool, self.plan, self.report, self.scopes = crew, pool, plan, report, scopes
        self.id, self.engine, self.backend = crew.worker.worker_id, crew.engine, crew.backend
        self.held = Held(self.engine, self.id, self.backend)
        self.ahead = Ahead(pool.horizon)
        self.writers = Writers(self.backend)
        self.pace = Pace()
        self.lookout = Lookout(self.engine, scopes)
        self.chores = Chores(self.engine, self.backend, crew, pool.memory)
        self.upkeep = Upkeep(self.engine)
        self.contact = Contact(self.engine, self.held, pool)
        self.tally = Tally(self.engine, self.id)
        self.episode = Episode(self.engine)
        self.outcomes: list[Outcome] = []  # finished, not yet settled
        self.started = 0
        self.stopping = False  # nothing more is claimed
        self._starting: HeldJob | None = None  # a transactional job whose turn it is
        self._none_ahead = False  # when no slot was free nothing was found that may be claimed ahead
        self._unsure = False  # the last turn may or may not have been committed

    @property
    def quiet(self) -> bool:
        """Whether people want nothing more to be claimed, for now."""
        return self.crew.asked_to in (QUIET, STOP)

    def try_turn(self) -> None:
        """Take a turn, and keep the database in order; one that fails is not the end."""
        try:
            self.turn()
            self.upkeep.do(contended=self.pace.contended)
            self.held.takeover.waited(self.episode.lasts())  # whoever got the lock at last, and for what
            self.episode.over()
        except Exception as error:
            self.endure(error)

    def turn(self) -> None:
        """Keep up what is held; settle and claim, in one transaction; then start and announce."""
        self.keep_up()
        self.ahead.measure(self.pool.slots)
        if self.stopping or self.quiet or self.ahead.overdue():
            self.give_back_waiting()
        begun = self.ahead.begun({outcome.job.key for outcome in self.outcomes})
        outcomes = self.outcomes[:AT_ONCE]
        free, ahead = self.room()
        if self.writers.ready() and self.free_slots() > 0:
            self._starting, free = self.writers.next(), max(free - 1, 0)
        if not (free or ahead) or not (self.lookout.worth_a_try() if outcomes else self.lookout.due()):
            free = ahead = 0
        if not (outcomes or begun or free or ahead or self._starting):
            return
        if (outcomes or begun) and (free or ahead) and self.pace.apart:
            self.exchange(outcomes, begun, 0, 0)
            outcomes, begun = [], []
        self.exchange(outcomes, begun, free, ahead)

    def exchange(self, outcomes: Sequence[Outcome], begun: Sequence[HeldJob], free: int, ahead: int) -> None:
        """Settle and claim, in one transaction; then start and announce."""
        lost: set[Key] = set()
        taken: Taken | None = None
        self._unsure = True
        with self.engine.transaction():
            self.held.takeover.locked(self.episode.lasts())
            if outcomes:
                settlements = [outcome.settlement for outcome in outcomes]
                lost = settle(self.engine, settlements, self.backend.settings.letter_ttl)
            if begun:
                self.engine.begin(begun, self.engine.now())
            starts = bool(self._starting and self.engine.begin([self._starting], self.engine.now(), waited=True))
            if free or ahead:
                taken = self.claim(free, ahead)
        self.pace.took(self.engine.last_hold)
        for job in begun:
            self.ahead.remove(job.key)
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
            self.writers.finished(job.key)
            self.outcomes.append(given_back(job))
            return
        job.attempts, job.started_at = job.attempts + 1, self.engine.now()
        self.held.limit(job.key, longest_runs([job], self.backend)[0])
        self.started += 1
        self.pool.run([job])

    def keep_up(self) -> None:
        """Renew what is held, end what has run for too long, and do what comes round once a second."""
        if self.episode.lasts():
            self.watch()
        self.held.look(self.engine.now())
        self.end_overdue()
        self.pool.maintain()
        self.held.renew()
        if self.chores.mend():  # before the chores, which set right what says that a clock was ahead
            self.lookout.forget()
        if endings := self.chores.do():
            self.lookout.forget()
            self.tally.count_endings(endings)
            for settlement in endings:
                if settlement.state == states.FAILED:
                    self.pool.announce_burial(settlement)
        self.tally.write()
        if self._unsure:
            self.held.release_unknown()
            self._unsure = False
        self.contact.keep()

    def claim(self, free: int, ahead: int) -> Taken:
        """Claim, inside the turn's transaction, what is run at once and what is run next."""
        now, letter_ttl = self.engine.now(), self.backend.settings.letter_ttl
        self.held.look(now)
        patience = self.held.takeover.patience()
        return take(
            self.engine,
            self.scopes,
            free,
            self.id,
            now,
            letter_ttl,
            patience=patience,
            ahead=ahead,
            waits=self.writers.waits,
        )

    def give_back_waiting(self) -> None:
        """Give back what was claimed ahead and has not begun; another worker may have room."""
        jobs = self.recall() if self.stopping or self.quiet else self.pool.recall()
        for job in jobs:
            self.writers.finished(job.key)  # it may have had the turn
        self.outcomes += [given_back(job) for job in jobs]
        self.ahead.recalled()

    def recall(self) -> list[HeldJob]:
        """Take back all that has not begun."""
        starting, self._starting = [self._starting] if self._starting else [], None
        return [*self.pool.recall(), *self.writers.recall(), *starting]

    def finished(self, outcome: Outcome) -> None:
        """Note what came of a job: its settlement is made in the next turn, if it was not made with its task."""
        self.writers.finished(outcome.job.key)
        if outcome.stands is None:
            self.held.finished(outcome.job.key)
            self.outcomes.append(outcome)
            if not outcome.went_back:
                self.ahead.finished(outcome.seconds)
        elif outcome.stands:
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
        self.tally.count(outcomes)
        ended = []
        for outcome in outcomes:
            key, settlement = outcome.job.key, outcome.settlement
            self.held.remove(key)
            self.ahead.remove(key)
            if settlement.state == states.READY:
                self.lookout.expect(settlement.visible_at or 0)
            if not (outcome.went_back or settlement.stopped):
                ended.append(outcome)
                continue
            self.pool.forget(outcome)
            if settlement.stopped:
                self.pool.announce_burial(settlement)
        self.pool.announce(ended)

    def lost(self, outcome: Outcome) -> None:
        """Forget a job that somebody else holds now; what came of it is dropped."""
        self.held.remove(outcome.job.key)
        self.ahead.remove(outcome.job.key)
        self.report.lost(outcome.job)
        self.pool.forget(outcome)

    def claimed(self, taken: Taken) -> None:
        """After the commit: start what was claimed."""
        self.tally.count_endings(taken.endings)
        for settlement in taken.buried:
            self.pool.announce_burial(settlement)
        jobs = collect(self.engine, taken)
        # Of one that runs the database was put back to before its claim; now it was claimed once more.
        new = [job for job in jobs if job.key not in self.held]
        self.held.add(jobs, longest_runs(jobs, self.backend))
        waiting = {job.key for job in jobs if self.writers.waits(job.task_path)}
        for key in waiting:
            self.held.finished(key)  # its time does not run yet
        self.writers.add(job for job in new if job.key in waiting)
        running = [job for job in new if job.key not in waiting] if waiting else new
        self.started += len(running)
        self.ahead.add(running)
        self.pool.run(running)
        self.lookout.took(taken.all)

    def room(self) -> tuple[int, int]:
        """Return how many jobs may be claimed now to be run at once, and how many ahead of that.

        Those that have finished make room in the same turn. Fewer than none: a child that has just died or retired
        takes its slots with it.
        """
        if self.stopping or self.quiet or self.writers.full:
            return 0, 0
        free = self.free_slots()
        if self.plan.max_jobs:
            claimed = self.started + len(self.writers) + bool(self._starting)
            return max(min(free, self.plan.max_jobs - claimed), 0), 0
        depth = self.ahead.depth() if self.pool.may_wait and not self._none_ahead else 0
        ahead = min(depth + min(free, 0), AT_ONCE)
        return max(free, 0), ahead if ahead > depth // 4 else 0

    def free_slots(self) -> int:
        """Return how many slots no job has, or is about to have; those that wait for their turn have none."""
        return self.pool.slots - len(self.held) + len(self.outcomes) + len(self.writers)

    def next_writer_at(self) -> float:
        """Return when the next transactional job may have its turn (monotonic), if there is a slot for it."""
        return self.writers.free_at() if self.free_slots() > 0 else NEVER

    def timed(self, key: Key, runs: bool) -> None:
        """Note that a job waits for its transaction, or that this has begun: its time runs from now on."""
        if job := self.held.get(key):
            self.writers.timed(job, runs)
            self.held.limit(key, longest_runs([job], self.backend)[0] if runs else NEVER)

    def end_overdue(self) -> None:
        """End what has run for too long; if a thread cannot be ended, drain the others, and leave."""
        for job in self.held.overdue():
            logger.warning("%s runs for too long; it is told to end", name(job))
            self.pool.end(job)
        if not self.stopping and (hung := self.held.hung()):
            logger.warning("%s does not end; this worker finishes its other jobs and leaves", name(hung[0]))
            self.stopping = True

    def endure(self, error: Exception) -> None:
        """Go on after an error: wait if it is one that passes, else find out which settlement it was."""
        trouble = self.engine.trouble(error)
        if trouble is Trouble.BUSY:
            self.pace.busy()
        if trouble is None and self.outcomes:
            logger.warning("a turn failed (%r): its settlements are made one by one", error)
            try:
                outcomes = list(self.outcomes)
                letter_ttl = self.backend.settings.letter_ttl
                self.settled(outcomes, settle_alone(self.engine, outcomes, letter_ttl, self.pool.forget))
                return
            except Exception as again:
                error = again
        self.episode.failed(error, self.pace.patience, left=self.held.left())

    def watch(self) -> bool:
        """If another database has taken the place of ours, forget what is known; what runs is settled in that one.

        With DEBUG it may be a copy from elsewhere, whose jobs nobody means to run here. Return whether it was one.
        """
        self.held.look(self.engine.now())
        if not self.engine.replaced():
            return False
        if settings.DEBUG and (home := left_behind(self.engine)):
            logger.warning("the database was replaced by one from %s; this worker leaves. Start it anew", home)
            self.stopping = True
            return True
        logger.warning("the database was replaced; this worker goes on with the new one")
        self.held.renew_at = 0.0
        self.lookout.forget()
        self.crew.forget()
        return True
