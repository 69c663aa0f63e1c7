"""Workers that died are found, and what they held is settled; so is a job that did not end when its time was up."""

import logging
from collections.abc import Sequence
from itertools import islice

from django.db.models import Q

from ..backend import VTQueueBackend
from ..core import history, states
from ..core.clock import SECOND, microseconds
from ..core.failures import Failure, recorded
from ..core.ids import dashed, shown_worker
from ..core.job import ClaimKey, HeldJob
from ..core.settlement import Settlement, abandoned, exhausted, failed, released
from ..engines import Engine
from ..exceptions import TaskTimeout, WorkerDied
from ..execution.time_limits import longest_runs
from ..models import WorkerProcess
from ..queue.doorbell import folder_of, place_of, remove
from ..queue.proof_of_death import refusing, was_over_time
from ..queue.settling import settle
from ..queue.workers import REMEMBERED, SILENCE
from ..tasks.lookup import loaded_task

logger = logging.getLogger("django_vtqueue")

DEAD_KEPT = 100  # rows of dead workers: one that is started again and again dies again and again
JOBS_KEPT = 100  # ids of jobs in the row of a dead worker
MOST_LOOKED_AT = 500  # bells of the dead, in a second: there may be thousands


class OtherWorkers:
    """The other workers, as one of them sees them: it settles what the dead held.

    It reads no row of the living, nor of those who are somewhere else: the bells of this machine say who is dead.
    """

    def __init__(self, engine: Engine, backend: VTQueueBackend) -> None:
        self.engine, self.backend = engine, backend
        self._bells = place_of(engine.alias, folder_of(backend.settings.doorbells))

    def settle_for_the_dead(self) -> list[Settlement]:
        """Settle what workers held that are proven dead; return the settlements.

        A bell that no row names proves nothing: the database was made anew, or put back to before its owner came.
        """
        if not (proofs := list(islice(refusing(self._bells), MOST_LOOKED_AT))):
            return []
        rows = list(rows_of(self.engine).filter(died_at=None, doorbell__in=proofs))
        for path in {*proofs} - {row.doorbell for row in rows}:
            remove(path)
        return [ending for row in rows for ending in settle_what_it_held(self.engine, self.backend, row)]


def rows_of(engine: Engine):  # type: ignore[no-untyped-def]
    """Return the rows of the workers, live and dead."""
    return WorkerProcess.objects.using(engine.alias)


# Rows are deleted by ``_raw_delete``: Django's ``delete()`` may begin a transaction of its own.


def forget_long_gone(engine: Engine, now: int) -> None:
    """Delete the rows of workers that died, or fell silent, an hour ago, in the caller's transaction."""
    before, ahead = now - microseconds(REMEMBERED), now + microseconds(SILENCE)
    _unlocked(engine, Q(died_at__lt=before) | Q(died_at=None, heartbeat_at__lt=before))._raw_delete(engine.alias)
    _unlocked(engine, Q(died_at=None, heartbeat_at__gt=ahead)).update(heartbeat_at=now)  # else they stay for ever


def _unlocked(engine: Engine, which: Q):  # type: ignore[no-untyped-def]
    """Return those of these rows that no other transaction has locked."""
    return rows_of(engine).filter(pk__in=rows_of(engine).filter(which).select_for_update(skip_locked=True).values("pk"))


def settle_what_it_held(engine: Engine, backend: VTQueueBackend, dead: WorkerProcess) -> list[Settlement]:
    """Settle what a dead worker held of our queues; the last of those concerned takes its bell away.

    Its row stays for a while, with what became of its jobs. A job whose row is locked is left for the next second: the
    server may go on with the transaction of a task that was killed, which waits for a lock itself.
    """
    serves = backend.settings.serves
    if (held := engine.held_by(dead.pk)) and not any(serves(job.queue_name) for job in held):
        return []  # without the write lock: this comes again in a second
    with engine.transaction():
        now = engine.now()  # nothing ends before its worker has died
        free = {job.key for job in engine.held_by(dead.pk, lock=True)}
        held = engine.held_by(dead.pk)
        ours = [job for job in held if serves(job.queue_name)]
        ends = after_death(backend, ours, now, over_time=was_over_time(dead.doorbell))
        endings = [ending for ending in ends if ending.job.key in free]
        if endings:
            settle(engine, endings)
        left = len(endings) < len(held)
        if endings or not left:  # else this comes again in a second, and nothing has changed
            remember(engine, dead.pk, endings, None if left else now)
    if not left:
        remove(dead.doorbell)
    if endings:
        going_on = sum(ending.goes_on for ending in endings)
        logger.info("worker %s died; its jobs that run again: %d", shown_worker(dead.pk), going_on)
    return endings


def remember(engine: Engine, worker_id: str, endings: Sequence[Settlement], died_at: int | None) -> None:
    """Note in the row of a dead worker what became of its jobs, dead letters first.

    ``died_at``: None if some of them are left.
    """
    if (row := rows_of(engine).select_for_update().filter(pk=worker_id).first()) is None:
        return
    of_the_dead = sorted(endings, key=lambda ending: ending.state != states.FAILED)
    buried = sum(ending.state == states.FAILED for ending in endings)
    ids = [*row.left.split(), *(dashed(ending.job.id) for ending in of_the_dead)][:JOBS_KEPT]
    went_on = row.went_on + len(endings) - buried
    values = {"went_on": went_on, "buried": row.buried + buried, "left": " ".join(ids), "died_at": died_at}
    if died_at is not None:
        values["doorbell"] = ""  # it is not to be rung
    rows_of(engine).filter(pk=worker_id).update(**values)
    newest = rows_of(engine).exclude(died_at=None).order_by("-died_at").values_list("pk", flat=True)
    if too_many := list(newest[DEAD_KEPT : 2 * DEAD_KEPT]):
        rows_of(engine).filter(pk__in=too_many)._raw_delete(engine.alias)


def after_death(backend: VTQueueBackend, held: Sequence[HeldJob], now: int, *, over_time: bool) -> list[Settlement]:
    """Return the settlements of the jobs that a worker held when it died.

    ``over_time``: it was killed because one of them was over its time limit. That job has timed out, unless it has just
    ended. The others are released, except for those that may begin only once.
    """
    begun = [job for job in held if job.begun]
    over = jobs_over_time(backend, begun, now) if over_time else set()

    def ending(job: HeldJob) -> Settlement:
        if job.key in over:
            return timed_out(backend, job, now)
        if not job.begun or (over_time and job.max_attempts != 1):
            return released(job)
        return _died(backend, job, now)

    return [ending(job) for job in held]


def jobs_over_time(backend: VTQueueBackend, begun: Sequence[HeldJob], now: int) -> set[ClaimKey]:
    """Return which of these jobs have run for longer than they may.

    If no job is over its limit, it is the one that ran longest of those whose task this process does not know.
    """
    limits = longest_runs(begun, backend)
    over = {job.key for job, seconds in zip(begun, limits, strict=True) if _ran(job, now) >= seconds}
    unknown = [job for job in begun if job.task_path and not loaded_task(job.task_path)]
    if not over and unknown:
        over = {max(unknown, key=lambda job: _ran(job, now)).key}
    return over


def _ran(job: HeldJob, now: int) -> float:
    return (now - (job.started_at or now)) / SECOND


def _died(backend: VTQueueBackend, job: HeldJob, now: int) -> Settlement:
    """Return the settlement of a job that ran when its worker died.

    The first crash may have another cause than this job: it goes on at once. From the second on it waits for its
    backoff.
    """
    failure = recorded(WorkerDied, f"Its worker, {job.worker_id}, died.")
    return _ended(backend, job, history.WORKER_DIED, failure, history.crashes(job.history), now)


def timed_out(backend: VTQueueBackend, job: HeldJob, now: int) -> Settlement:
    """Return the settlement of a job that ran for too long and did not end by itself."""
    failure = recorded(TaskTimeout, f"It was ended after {_ran(job, now):.1f} s; it had not ended by itself.")
    return _ended(backend, job, history.TIMED_OUT, failure, job.attempts, now)


def _ended(backend: VTQueueBackend, job: HeldJob, outcome: str, failure: Failure, times: int, now: int) -> Settlement:
    """Return the settlement of a failed attempt; ``times``: of the backoff (0: none, and at its place)."""
    if not times:
        return abandoned(job, outcome, failure, now)
    policy = backend.policy_of(job.queue_name, job.task_path)
    delay = None if exhausted(job) else microseconds(policy.delay(times))
    return failed(job, outcome, failure, now, delay)
