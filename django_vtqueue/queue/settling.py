"""The end of attempts: settlements are carried out; a job with a stop request is buried, and so is one overdue.

One whose lease has ended is due again at its place in the line, or a dead letter.

Of a job with copies (a queue with ``overflow``) the first success ends the job, whichever claim it has; every other end
is that of one copy, as long as another one runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..core import copies, history, states
from ..core.copies import Copy
from ..core.failures import recorded
from ..core.job import ClaimKey, Due, Ended, Handle, HeldJob, StoredJob
from ..core.names import is_reserved
from ..core.settlement import KEPT_FOR_PARENT, Settlement, abandoned, end_cancelled, expired, failed, released
from ..engines import Engine, options_for
from ..exceptions import DamagedJob, LeaseExpired, WorkerDied
from .unparking import unpark_after
from .workers import gone


def settle(engine: Engine, settlements: Sequence[Settlement]) -> set[ClaimKey]:
    """Carry out settlements inside a transaction, each only for its holder; return the keys of the lost jobs.

    A settlement after which a job with a stop request would wait again becomes the end of that job. The progress of a
    job is written before its settlement. A dead letter is kept for as long as the options of its queue say.
    """
    with_copies = [s for s in settlements if s.job.copies and s.job.begun]
    if with_copies:  # what is read of a row must be true until it is written
        engine.lock_copies([s.job for s in with_copies])
    if said := [(s.job, news) for s in settlements if (news := s.job.news)]:
        engine.note_progress(said)
    if not with_copies:
        return settle_as_holder(engine, settlements)
    own = [s for s in settlements if s.state == states.SUCCESSFUL or not (s.job.copies and s.job.begun)]
    lost = settle_as_holder(engine, own)
    for settlement in with_copies:
        if settlement.state != states.SUCCESSFUL or settlement.job.key in lost:
            lost.discard(settlement.job.key)
            if not settle_copy(engine, settlement):
                lost.add(settlement.job.key)
    return lost


def settle_as_holder(engine: Engine, settlements: Sequence[Settlement]) -> set[ClaimKey]:
    """Carry out settlements of those whose name is in the row: of all jobs without other copies; see settle.

    What was parked for them is unparked, and the end of the last child wakes its parent.
    """
    lost = _write(engine, settlements)
    if refused := [s for s in settlements if s.job.key in lost and s.state == states.READY]:
        requests = engine.stop_requests([s.job for s in refused])
        if stopped := [s for s in refused if s.job.key in requests]:
            for settlement in stopped:
                end_cancelled(settlement, requests[settlement.job.key], engine.now())
            lost = (lost - requests.keys()) | _write(engine, stopped)
    if tied := [s for s in settlements if s.job.parent_id or s.job.concurrency_key is not None]:
        _wake_others(engine, [s for s in tied if s.job.key not in lost] if lost else tied)
    return lost


def _wake_others(engine: Engine, settlements: Sequence[Settlement]) -> None:
    """Unpark what was parked for these jobs, and wake their parents."""
    unpark_after(engine, settlements)
    if parents := {s.job.parent_id for s in settlements if s.job.parent_id and s.state != states.READY}:
        engine.wake_parents(parents, engine.now())


def _write(engine: Engine, settlements: Sequence[Settlement]) -> set[ClaimKey]:
    """Write settlements into the rows; a dead letter is kept for as long as its queue says, or until it is read."""
    if dying := [s for s in settlements if s.state == states.FAILED]:
        names = {s.job.queue_name for s in dying}
        kept = {name: options_for(name, engine.alias).letter_ttl(name) for name in names}
        for settlement in dying:
            ttl, died_at = kept[settlement.job.queue_name], settlement.finished_at or 0
            if settlement.job.parent_id and ttl is not None:
                ttl = max(ttl, KEPT_FOR_PARENT)
            settlement.kept_until = None if ttl is None else died_at + ttl
    return engine.settle(settlements)


def settle_for_others(
    engine: Engine, endings: Mapping[Handle, Settlement], worker_id: str, now: int
) -> list[Settlement]:
    """Settle rows of other holders, or of none; return the settlements, those of unreadable rows among them."""
    lost = settle_as_holder(engine, list(endings.values())) if endings else set()
    unreadable = [handle for handle, ending in endings.items() if ending.job.key in lost]
    ended = [ending for ending in endings.values() if ending.job.key not in lost]
    if unreadable:
        ended += bury_unreadable(engine, unreadable, worker_id, now)
    return ended


def end_leases(engine: Engine, ended: Sequence[Ended], worker_id: str, now: int) -> list[Settlement]:
    """Settle, for their holders, rows whose lease has ended; return the settlements: due again, or dead letters."""
    if hidden := [row.handle for row in ended if not row.held]:
        engine.unhide(hidden)
    held = engine.read([row.handle for row in ended if row.held])
    return settle_for_others(
        engine, {handle: end_lease(job, now, worker_id) for handle, job in held.items()}, worker_id, now
    )


def end_lease(job: HeldJob, now: int, taker: str) -> Settlement:
    """Return the settlement of a job whose lease has ended: due at its place, or dead after its last attempt.

    The row of a leader or a time slot may be taken long after its lease has ended: its history says that it was held
    until that end. If its lease has not ended, its holder is proven dead.
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


def bury_overdue(engine: Engine, rows: Sequence[Due], worker_id: str, now: int) -> list[Settlement]:
    """Make dead letters of waiting rows that were to start by now; return the settlements. Inside a transaction."""
    if not rows:
        return []
    jobs, start_by = engine.read([row.handle for row in rows]), {row.handle: row.start_by for row in rows}
    endings = {handle: expired(job, start_by[handle], now) for handle, job in jobs.items()}
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


def settle_copy(engine: Engine, settlement: Settlement) -> bool:
    """Settle a job by one of its copies, or end that copy only, if others run on; return False if it came too late.

    The row is first handed to this copy (``pass_on``), so that the guarded statements accept it.
    """
    if settlement.requested:  # the transaction in which it left the job to another copy was rolled back
        settlement.state, settlement.due_at, settlement.finished_at = settlement.requested
        settlement.requested = None
    job, row = settlement.job, engine.find(settlement.job.id)
    running = copies.read(row.copies) if row and row.state == states.RUNNING else {}
    mine = running.pop(job.claims, None)
    if row is None or mine is None:
        return row is not None and settled_before(settlement, row)
    if settlement.state != states.SUCCESSFUL:
        if settlement.history is not None:
            settlement.history = history.rebased(settlement.history, row.history)
        if others := still_running(engine, running):
            end_copy(engine, settlement, row, running, others)
            return True
    engine.pass_on(row, mine, row.copies or "", row.history, row.visible_at)
    settlement.job = replace(job, claims=row.claims)
    try:
        return not settle_as_holder(engine, [settlement])
    finally:
        settlement.job = job


def settled_before(settlement: Settlement, row: StoredJob | None) -> bool:
    """Return whether a row was settled by this settlement, in a commit whose answer never came.

    A row that is gone was deleted by this settlement, if that does not keep it, or by people.
    """
    if row is None:
        return settlement.kept_until is not None and settlement.kept_until == settlement.finished_at
    state, finished_at = settlement.state, settlement.finished_at
    return (row.state, row.finished_at, row.worker_id) == (state, finished_at, settlement.job.worker_id)


def still_running(engine: Engine, running: dict[int, Copy]) -> dict[int, Copy]:
    """Return those copies that run, as far as is known: their time is not up, and their workers are not gone."""
    now = engine.now()
    dead = gone([copy.worker for copy in running.values()], engine.alias, now) if running else set()
    return {claim: copy for claim, copy in running.items() if copy.until > now and copy.worker not in dead}


def end_copy(
    engine: Engine, settlement: Settlement, row: StoredJob, running: dict[int, Copy], others: dict[int, Copy]
) -> None:
    """End one copy only: the latest of the others holds the row now. One lease later, at most, one more may start."""
    until = max(min(row.visible_at, engine.now() + row.lease_us), settlement.hidden_until or 0)
    engine.pass_on(row, others[max(others)], copies.written(running), settlement.history or row.history, until)
    settlement.requested = settlement.state, settlement.due_at, settlement.finished_at
    settlement.state, settlement.due_at, settlement.finished_at = states.READY, None, None
