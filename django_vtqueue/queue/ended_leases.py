"""What becomes of a job whose lease has ended: it is due again at its place in the line, or a dead letter."""

from collections.abc import Mapping, Sequence

from ..core import history
from ..core.failures import recorded
from ..core.job import Ended, Handle, HeldJob, Settlement, failed, interrupted, released
from ..core.names import is_reserved
from ..engines import Engine
from ..exceptions import DamagedJob, LeaseExpired, WorkerDied
from .settling import carry_out


def end_leases(engine: Engine, ended: Sequence[Ended], worker_id: str, now: int) -> list[Settlement]:
    """Settle expired rows in the name of their holders; return the settlements: due again, or dead letters."""
    if hidden := [row.handle for row in ended if not row.held]:
        engine.show(hidden)
    held = engine.read([row.handle for row in ended if row.held])
    return end_rows(engine, {handle: end_lease(job, now, worker_id) for handle, job in held.items()}, worker_id, now)


def end_rows(engine: Engine, endings: Mapping[Handle, Settlement], worker_id: str, now: int) -> list[Settlement]:
    """Settle rows of other holders, or of none; return the settlements, those of unreadable rows among them."""
    lost = carry_out(engine, list(endings.values())) if endings else set()
    unreadable = [handle for handle, ending in endings.items() if ending.job.key in lost]
    ended = [ending for ending in endings.values() if ending.job.key not in lost]
    if unreadable:
        ended += bury_unreadable(engine, unreadable, worker_id, now)
    return ended


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
            return interrupted(job, history.WORKER_DIED, died, now)
        now = min(job.visible_at, now)
    failure = recorded(LeaseExpired, f"The lease expired, held by {job.worker_id}.")
    return interrupted(job, history.LEASE_EXPIRED, failure, now)


def bury_unreadable(engine: Engine, handles: Sequence[Handle], worker_id: str, now: int) -> list[Settlement]:
    """Make dead letters of rows that could not be settled as they were read, because a text in them is not UTF-8, say.

    They are leased once more, so that they have a holder whose name can be read.
    """
    engine.lease(handles, worker_id, now, None, attempts=0)
    failure = recorded(DamagedJob, "The row cannot be read as it is stored.")
    jobs = engine.read(handles).values()
    endings = [failed(job, history.FAILED, failure, now, None) for job in jobs]
    lost = carry_out(engine, endings)
    return [ending for ending in endings if ending.job.key not in lost]
