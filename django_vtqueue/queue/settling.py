"""The end of attempts: settlements are carried out, each for its holder; a cancelled job does not wait again.

Of a job with copies (a queue with ``overflow``) the first success ends the job, whichever claim it has; every other end
is that of one copy, as long as another one runs.
"""

from collections.abc import Sequence
from dataclasses import replace

from ..core import copies, history, states
from ..core.copies import Copy
from ..core.job import ClaimKey, StoredJob
from ..core.settlement import Settlement, end_cancelled, kept_until
from ..engines import Engine, options_for
from .unparking import unpark_after
from .workers import gone


def settle(engine: Engine, settlements: Sequence[Settlement]) -> set[ClaimKey]:
    """Carry out settlements inside a transaction, each only for its holder; return the keys of the lost jobs.

    A settlement after which a cancelled job would wait again becomes the end of that job. The progress of a job is
    written before its settlement. A dead letter is kept for as long as the options of its queue say.
    """
    with_copies = [s for s in settlements if s.job.copies and s.job.begun]
    if with_copies:  # what is read of a row must be true until it is written
        engine.lock_copies([s.job for s in with_copies])
    if unsaved := [(s.job, progress) for s in settlements if (progress := s.job.unsaved_progress)]:
        engine.write_progress(unsaved)
    return (
        _settle_with_copies(engine, settlements, with_copies) if with_copies else settle_as_holder(engine, settlements)
    )


def _settle_with_copies(
    engine: Engine, settlements: Sequence[Settlement], with_copies: Sequence[Settlement]
) -> set[ClaimKey]:
    """Carry out settlements, some of them of copies of jobs; return the keys of the lost jobs."""
    own = [s for s in settlements if s.state == states.SUCCESSFUL or not (s.job.copies and s.job.begun)]
    lost = settle_as_holder(engine, own)
    for settlement in with_copies:
        if settlement.state != states.SUCCESSFUL or settlement.job.key in lost:
            lost.discard(settlement.job.key)
            if not settle_copy(engine, settlement):
                lost.add(settlement.job.key)
    return lost


def settle_as_holder(engine: Engine, settlements: Sequence[Settlement]) -> set[ClaimKey]:
    """Carry out settlements, each only if the row names its holder; see settle. Of several copies a row names one.

    Jobs that were parked because of these are unparked, and the end of the last child wakes its parent.
    """
    lost = _write(engine, settlements)
    if refused := [s for s in settlements if s.job.key in lost and s.goes_on]:
        requests = engine.cancel_requests([s.job for s in refused])
        if cancelled := [s for s in refused if s.job.key in requests]:
            for settlement in cancelled:
                end_cancelled(settlement, requests[settlement.job.key], engine.now())
            lost = (lost - requests.keys()) | _write(engine, cancelled)
    if may_wake_others := [s for s in settlements if s.job.parent_id or s.job.concurrency_key is not None]:
        _wake_others(engine, [s for s in may_wake_others if s.job.key not in lost] if lost else may_wake_others)
    return lost


def _wake_others(engine: Engine, settlements: Sequence[Settlement]) -> None:
    """Unpark what was parked for these jobs, and wake their parents."""
    unpark_after(engine, settlements)
    if parents := {s.job.parent_id for s in settlements if s.job.parent_id and not s.goes_on}:
        engine.wake_parents(parents, engine.now())


def _write(engine: Engine, settlements: Sequence[Settlement]) -> set[ClaimKey]:
    """Write settlements into the rows, those of dead letters with the end of their keeping; return the lost jobs."""
    if dying := [s for s in settlements if s.state == states.FAILED]:
        names = {s.job.queue_name for s in dying}
        ttls = {name: options_for(name, engine.alias).letter_ttl(name) for name in names}
        for s in dying:
            s.kept_until = kept_until(s.job, s.finished_at or 0, ttls[s.job.queue_name])
    return engine.settle(settlements)


def settle_copy(engine: Engine, settlement: Settlement) -> bool:
    """Settle a job by one of its copies, or end that copy only, if others run on; return False if it came too late.

    The row is first handed to this copy (``pass_on``), so that the guarded statements accept it.
    """
    if settlement.requested:  # the transaction in which it left the job to another copy was rolled back
        settlement.state, settlement.due_at, settlement.wake_at, settlement.finished_at = settlement.requested
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
        return settlement.unkept
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
    """End one copy only: the latest of the others holds the row, for one lease at the most; then one more may start."""
    until = max(min(row.visible_at, engine.now() + row.lease_us), settlement.held_until or 0)
    engine.pass_on(row, others[max(others)], copies.written(running), settlement.history or row.history, until)
    settlement.requested = settlement.state, settlement.due_at, settlement.wake_at, settlement.finished_at
    settlement.state, settlement.due_at, settlement.wake_at, settlement.finished_at = states.READY, None, None, None
