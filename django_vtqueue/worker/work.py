"""Moves the jobs of one worker: claimed → in a thread, ahead, or in the line → outcome → settled → announced."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..backend import VTQueueBackend
from ..core import history, states
from ..core.clock import NEVER
from ..core.failures import Failure
from ..core.job import ClaimKey, HeldJob, Scope
from ..core.settlement import Settlement, failed
from ..engines import Engine
from ..execution.outcomes import Outcome, Settled, not_executed
from ..execution.time_limits import longest_runs
from ..queue.claims import Taken, collect
from ..queue.doorbell import ring
from ..queue.result_bells import ResultBells
from ..queue.settling import settle, settled_before
from .in_flight import InFlight
from .job_clocks import JobClocks
from .leases import Leases
from .log import WorkerLog, job_name
from .next_claim import NextClaim
from .options import WorkerOptions, limits_of
from .prefetch import Prefetch
from .shared_state import SharedState
from .statistics import Recorder
from .thread_pool import Pool
from .transactional_line import TransactionalLine

logger = logging.getLogger("django_vtqueue")

NOT_STORED = Failure("django_vtqueue.exceptions.OutcomeNotStored", "The outcome could not be stored.", "", "not stored")
BATCH = 400  # jobs that one transaction settles, or claims ahead, at the most: other writers wait for its end


class Work:
    """Claimed jobs on their way: into a slot, ahead of the slots, or into the line of transactional ones; then out."""

    def __init__(
        self,
        engine: Engine,
        backend: VTQueueBackend,
        worker_id: str,
        pool: Pool,
        options: WorkerOptions,
        log: WorkerLog,
        scopes: Sequence[Scope],
        state: SharedState,
    ) -> None:
        self.engine, self.backend, self.pool, self.options, self.log = engine, backend, pool, options, log
        self.state = state
        self.limits = limits_of(backend, options)
        self.next_claim = NextClaim(engine, scopes, backend.limits)
        self.in_flight = InFlight()
        self.clocks = JobClocks(self.in_flight, backend, state)
        self.leases = Leases(engine, worker_id, backend, self.in_flight)
        self.prefetch = Prefetch(self.in_flight)
        self.transactional = TransactionalLine(backend)
        self.recorder = Recorder(engine, worker_id)
        self.result_bells = ResultBells(backend.database, backend.settings.doorbells)
        self.outcomes: list[Outcome] = []  # finished, not yet settled
        self.next_transactional: HeldJob | None = None  # a transactional job whose turn it is
        self.jobs_started = 0
        self.out_of_step = False  # perhaps a job is in flight that no thread has
        self._idle = False  # at the last look for that, before the last mail was read

    # Capacity

    def capacity(self) -> tuple[int, int]:
        """Return how many jobs may be claimed now to be run at once, and how many ahead of that.

        Those that have finished make room in the same turn.
        """
        if self.transactional.full:
            return 0, 0
        free = self.free_slots()
        if self.options.max_jobs:
            claimed = self.jobs_started + len(self.transactional) + bool(self.next_transactional)
            return max(min(free, self.options.max_jobs - claimed), 0), 0
        return max(free, 0), min(self.prefetch.more(-min(free, 0)), BATCH)

    def free_slots(self) -> int:
        """Return how many slots are free; less than 0: so many jobs were claimed ahead of the slots.

        A transactional job that waits for its turn has no slot, and an outcome has left its own.
        """
        return self.pool.slots - len(self.in_flight) + len(self.outcomes) + len(self.transactional)

    def take_next_transactional(self) -> bool:
        """Take the transactional job whose turn it is for the next transaction; return whether there is one."""
        if self.transactional.may_take_next() and self.free_slots() > 0:
            self.next_transactional = self.transactional.next()
            return True
        return False

    def unfinished(self) -> bool:
        """Return whether a job runs that may still end, or an outcome is to be settled."""
        return len(self.in_flight) > len(self.in_flight.hung()) or bool(self.outcomes)

    def has_started(self, number: int) -> bool:
        """Return whether so many jobs have started; not as long as one is held that may be given back unstarted."""
        return self.jobs_started >= number and not any(job.to_load for job in self.in_flight)

    def next_at(self) -> float:
        """Return when one of the jobs, or the statistics, needs a turn (monotonic)."""
        next_transactional_at = self.transactional.free_at() if self.free_slots() > 0 else NEVER
        return min(self.in_flight.next_end(), self.prefetch.release_at, next_transactional_at, self.recorder.next_at)

    @contextmanager
    def keeping_step(self) -> Iterator[None]:
        """Do what follows a commit: an error in the block, for lack of memory say, leaves the worker out of step."""
        before, self.out_of_step = self.out_of_step, True
        yield
        self.out_of_step = before

    def back_in_step(self) -> bool:
        """Once no thread has a job, forget those that are in flight nevertheless; return whether that is done now."""
        before, self._idle = self._idle, self.pool.idle() and not self.outcomes
        if not (before and self._idle):
            return False
        for job in self.in_flight.jobs():
            self.transactional.note_finished(job)
            self.in_flight.remove(job.key)
        self.out_of_step = self._idle = False
        return True

    # In

    def start_claimed(self, taken: Taken, free: int) -> None:
        """After the commit of a claim for ``free`` slots: start what was claimed."""
        self.prefetch.note_claim(found=bool(free or taken.rows))
        self.recorder.count_endings(taken.endings)
        for settlement in taken.buried:
            self.pool.announce_burial(settlement)
        jobs = collect(self.engine, taken)
        # A job may be held already: its lease ended, or the database was restored, and it was claimed again.
        new = [job for job in jobs if not self.in_flight.take_over(job)] if self.in_flight else jobs
        paths = {path for path in {job.task_path for job in new} if self.transactional.is_transactional(path)}
        waiting = {job.key for job in new if job.task_path in paths}
        self.in_flight.add(new, longest_runs(new, self.backend), waiting)
        self.leases.add(jobs)
        self.transactional.add(job for job in new if job.key in waiting)
        running = [job for job in new if job.key not in waiting] if waiting else new
        self.jobs_started += len(running)
        self.prefetch.add(running)
        self.tell_supervisor()  # before a task may keep the interpreter to itself
        self.pool.run(running)
        self.next_claim.note_claim(taken.everything, took=bool(taken.rows))

    def run_transactional(self, may_begin: bool) -> None:
        """Have the transactional job run whose attempt was counted now; release it if it may not begin any more."""
        if not (job := self.next_transactional):
            return
        self.next_transactional = None
        if not may_begin:
            self.transactional.note_finished(job)
            self.outcomes.append(not_executed(job))
            return
        job.begin(self.engine.now())
        self.in_flight.start_clock(job.key, longest_runs([job], self.backend)[0])
        self.jobs_started += 1
        self.tell_supervisor()
        self.pool.run([job])

    def tell_supervisor(self) -> None:
        """Tell the supervisor what this worker holds and has done, and until when it needs no help."""
        self.clocks.tell()
        state = self.state
        state.renew_by = self.leases.renew_by
        state.held, state.started, state.ended = len(self.in_flight), self.jobs_started, self.log.ended
        state.longest_hold = self.engine.longest_hold

    def note_transaction_waits(self, key: ClaimKey) -> None:
        """Note that a job is transactional."""
        if job := self.in_flight.get(key):
            self.transactional.note_transactional(job)

    def note_transaction_begun(self, key: ClaimKey) -> None:
        """Note that the transaction of a job has begun."""
        if job := self.in_flight.get(key):
            self.transactional.note_begun(job)

    # Out

    def release_ahead(self, *, everything: bool) -> None:
        """Release what was claimed ahead and has not begun; ``everything``: transactional jobs too."""
        jobs = self.recall() if everything else self.pool.recall()
        for job in jobs:
            self.transactional.note_finished(job)  # it may have had the turn
        self.outcomes += [not_executed(job) for job in jobs]
        self.prefetch.note_recall()

    def recall(self) -> list[HeldJob]:
        """Take back all that has not begun."""
        job, self.next_transactional = self.next_transactional, None
        return [*self.pool.recall(), *self.transactional.recall(), *([job] if job else [])]

    def note_finished(self, outcome: Outcome) -> None:
        """Note what came of a job: its settlement is made in the next turn, if it was not made with its task."""
        self.transactional.note_finished(outcome.job)
        self.jobs_started -= outcome.has_only_loaded
        makes_room = outcome.job.concurrency_key or outcome.job.queue_name in self.backend.limits.queues
        if makes_room or outcome.has_only_loaded:
            self.next_claim.expect(0)  # by the turn that settles it: here its task is loaded
        if outcome.settled is Settled.OPEN:
            self.in_flight.finish(outcome.job.key)
            self.outcomes.append(outcome)
            if not outcome.settlement.uses_no_attempt:
                self.prefetch.note_finished(outcome.seconds)
        elif outcome.settled is Settled.DONE:
            self.note_settled([outcome])
        else:
            self.note_lost(outcome)

    def settle(self, outcomes: Sequence[Outcome], *, in_doubt: bool) -> set[ClaimKey]:
        """Settle what has finished, in the turn's transaction; return the keys of the lost jobs.

        ``in_doubt``: the last commit may have settled them already, and its answer never came.
        """
        settlements = [outcome.settlement for outcome in outcomes]
        lost = settle(self.engine, settlements)
        if lost and in_doubt:
            missing = [s for s in settlements if s.job.key in lost]
            lost -= {s.job.key for s in missing if settled_before(s, self.engine.find(s.job.id))}
        return lost

    def after_commit(self, outcomes: Sequence[Outcome], lost: set[ClaimKey]) -> None:
        """After the commit: note which jobs were settled, and which were lost."""
        del self.outcomes[: len(outcomes)]
        self.note_settled([outcome for outcome in outcomes if outcome.job.key not in lost] if lost else outcomes)
        for outcome in outcomes if lost else ():
            if outcome.job.key in lost:
                self.note_lost(outcome)

    def settle_one_by_one(self) -> None:
        """Settle what has finished one by one."""
        for outcome in list(self.outcomes):
            lost = settle_alone(self.engine, outcome)
            with self.keeping_step():
                self.leases.refused |= lost
                self.after_commit([outcome], lost)

    def note_settled(self, outcomes: Sequence[Outcome]) -> None:
        """Count, forget and announce settled jobs, and wake who runs what is due now or waits for a result."""
        self.recorder.count(outcomes)
        ended = []
        for outcome in outcomes:
            job, settlement = outcome.job, outcome.settlement
            self.in_flight.remove(job.key)
            if settlement.waiting or job.parent_id:
                self.next_claim.forget()  # what it waits for may have come already; its parent may be due now
            elif settlement.goes_on:
                self.next_claim.expect(settlement.due_at or 0)
            if settlement.cancelled:
                self.pool.announce_burial(settlement)
            elif not settlement.uses_no_attempt or settlement.waiting:
                ended.append(outcome)
        now = self.engine.now()
        if any(outcome.settlement.others_due(now) for outcome in outcomes):
            ring(self.backend.database, self.backend.settings.doorbells)
        self.pool.announce(ended)
        if ended:
            done = [outcome.job.id for outcome in ended if not outcome.settlement.goes_on]
            self.result_bells.ring(done)

    def note_ended_elsewhere(self, endings: Sequence[Settlement]) -> None:
        """Count the ends of jobs that this worker did not run, and tell of those that became dead letters."""
        self.recorder.count_endings(endings)
        for settlement in endings:
            if settlement.state == states.FAILED:
                self.pool.announce_burial(settlement)

    def note_lost(self, outcome: Outcome) -> None:
        """Forget a job that another worker holds now, and log that its outcome is dropped."""
        self.in_flight.remove(outcome.job.key)
        self.log.lost(outcome.job)

    def end_over_time(self) -> HeldJob | None:
        """End what has run for too long; return a job that did not end though it was told to.

        A supervisor does it otherwise: it kills this process.
        """
        if self.options.supervised:
            return None
        for job in self.in_flight.over_time():
            logger.warning("%s runs for too long; it is told to end", job_name(job))
            self.pool.end(job)
        return next(iter(self.in_flight.hung()), None)


def settle_alone(engine: Engine, outcome: Outcome) -> set[ClaimKey]:
    """Settle an outcome in a transaction of its own; return its key if the job is lost.

    If that fails for a reason of its own, the outcome becomes a failed attempt described by our own text only. If even
    that is refused, by the row itself, its lease shall end. Errors that pass are raised.
    """
    lost = _try_to_settle(engine, outcome, "the outcome of job %s could not be stored: %r")
    if lost is None:
        job = outcome.job
        outcome.settlement = failed(job, history.FAILED, NOT_STORED, engine.now(), job.lease_us)
        outcome.result = None
        lost = _try_to_settle(engine, outcome, "the database refuses each change to the row of job %s: %r")
    return {outcome.job.key} if lost is None else lost


def _try_to_settle(engine: Engine, outcome: Outcome, refused: str) -> set[ClaimKey] | None:
    """Settle an outcome; return its key if the job is lost, and None, saying so, if it is refused."""
    try:
        with engine.transaction():
            return settle(engine, [outcome.settlement])
    except Exception as error:
        if engine.trouble(error):
            raise
        logger.warning(refused, outcome.job.id, error)
        return None
