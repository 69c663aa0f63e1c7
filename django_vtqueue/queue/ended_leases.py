"""What becomes of a job whose lease has ended: it is due again at its place in the line, or a dead letter."""

from collections.abc import Sequence

from ..core import history
from ..core.failures import recorded
from ..core.job import Ended, HeldJob
from ..core.names import is_reserved
from ..core.settlement import Settlement, abandoned, released
from ..engines import Engine
from ..exceptions import LeaseExpired, WorkerDied
from .settling import settle_or_bury


def end_leases(engine: Engine, ended: Sequence[Ended], worker_id: str, now: int) -> list[Settlement]:
    """Settle, for their holders, rows whose lease has ended; return the settlements: due again, or dead letters."""
    if hidden := [row.handle for row in ended if not row.held]:
        engine.unhide(hidden)
    held = engine.read([row.handle for row in ended if row.held])
    return settle_or_bury(
        engine, {handle: end_lease(job, now, worker_id) for handle, job in held.items()}, worker_id, now
    )


def end_lease(job: HeldJob, now: int, taker: str) -> Settlement:
    """Return the settlement of a job whose lease has ended: due at its place, or dead after its last attempt.

    The row of a leader or a time slot, which may be taken long after its holder was gone, was held until its lease
    ended; another instance takes it sooner only when the holder is proven dead.
    """
    if not job.begun:
        return released(job)
    if is_reserved(job.queue_name):
        if job.visible_at > now and job.worker_id != taker:
            died = recorded(WorkerDied, f"The process of {job.worker_id} has died.")
            return abandoned(job, history.WORKER_DIED, died, now)
        now = min(job.visible_at, now)
    failure = recorded(LeaseExpired, f"The lease expired, held by {job.worker_id}.")
    return abandoned(job, history.LEASE_EXPIRED, failure, now)
