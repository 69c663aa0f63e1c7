"""What is settled for others: rows whose lease has ended, jobs that are overdue, and rows that cannot be read.

A job whose lease has ended is due again at its place in the line, or a dead letter.
"""

from collections.abc import Mapping, Sequence

from ..core import history
from ..core.failures import recorded
from ..core.job import Due, Handle, HeldJob
from ..core.names import is_reserved
from ..core.settlement import Settlement, abandoned, failed, given_back, overdue, released
from ..engines import Engine
from ..exceptions import DamagedJob, LeaseExpired, WorkerDied
from .settling import settle_as_holder


def settle_for_others(
    engine: Engine, endings: Mapping[Handle, Settlement], worker_id: str, now: int
) -> list[Settlement]:
    """Settle rows of other holders, or of none; return the settlements, those of unreadable rows among them."""
    lost = settle_as_holder(engine, list(endings.values())) if endings else set()
    # These rows were read in this transaction, so no other process has changed them. What is refused nevertheless is
    # stored otherwise than it was read: its id or worker is not UTF-8, say.
    unreadable = [handle for handle, ending in endings.items() if ending.job.key in lost]
    ended = [ending for ending in endings.values() if ending.job.key not in lost]
    if unreadable:
        ended += bury_unreadable(engine, unreadable, worker_id, now)
    return ended


def end_leases(engine: Engine, handles: Sequence[Handle], worker_id: str, now: int) -> list[Settlement]:
    """Settle, for their holders, rows whose lease has ended; return the settlements: due again, or dead letters.

    Those that a worker gave back as it ended are due again, and are not among the settlements.
    """
    endings = {handle: end_lease(job, now, worker_id) for handle, job in engine.read(handles).items()}
    settled = settle_for_others(engine, endings, worker_id, now)
    return [ending for ending in settled if ending.job.worker_id or not ending.goes_on]


def end_lease(job: HeldJob, now: int, taker: str) -> Settlement:
    """Return the settlement of a job whose lease has ended: due at its place, or dead after its last attempt.

    The row of a leader or a time slot may be taken long after its lease has ended: its history says that it was held
    until that end. If its lease has not ended, its holder is proven dead.
    """
    if not job.worker_id:
        return given_back(job)
    if not job.begun:
        return released(job)
    if is_reserved(job.queue_name):
        if job.visible_at > now and job.worker_id != taker:
            died = recorded(WorkerDied, f"The process of {job.worker_id} has died.")
            return abandoned(job, history.WORKER_DIED, died, now)
        now = min(job.visible_at, now)
    failure = recorded(LeaseExpired, f"The lease expired, held by {job.worker_id}.")
    return abandoned(job, history.LEASE_EXPIRED, failure, now)


def bury_overdue(engine: Engine, rows: Sequence[Due], worker_id: str, now: int) -> list[Settlement]:
    """Make dead letters of waiting rows that were to start by now; return the settlements. Inside a transaction."""
    if not rows:
        return []
    jobs, start_by = engine.read([row.handle for row in rows]), {row.handle: row.start_by for row in rows}
    endings = {handle: overdue(job, start_by[handle], now) for handle, job in jobs.items()}
    return settle_for_others(engine, endings, worker_id, now)


def bury_unreadable(engine: Engine, handles: Sequence[Handle], worker_id: str, now: int) -> list[Settlement]:
    """Make dead letters of rows that could not be settled as they were read, because a text in them is not UTF-8, say.

    They are leased once more, so that they have a holder whose name can be read.
    """
    engine.lease(handles, worker_id, now, None, attempts=0)
    failure = recorded(DamagedJob, "The row cannot be read as it is stored.")
    jobs = engine.read(handles).values()
    endings = [failed(job, history.FAILED, failure, now, None) for job in jobs]
    lost = settle_as_holder(engine, endings)
    return [ending for ending in endings if ending.job.key not in lost]
