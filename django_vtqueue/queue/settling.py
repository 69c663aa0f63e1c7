"""The end of attempts: settlements are carried out; a job with a stop request is buried, and does not wait again."""

from collections.abc import Sequence

from ..core import states
from ..core.job import ClaimKey, Settlement, end_cancelled
from ..engines import Engine, options_for


def settle(engine: Engine, settlements: Sequence[Settlement]) -> set[ClaimKey]:
    """Carry out settlements inside a transaction, each only for its holder; return the keys of the lost jobs.

    A settlement after which a job with a stop request would wait again becomes the end of that job. The progress of a
    job is written before its settlement. A dead letter is kept for as long as the options of its queue say.
    """
    if said := [(s.job, s.job.progress) for s in settlements if s.job.progress and s.job.progress != s.job.stored]:
        engine.note_progress(said)
    lost = _carry_out(engine, settlements)
    if refused := [s for s in settlements if s.job.key in lost and s.state == states.READY]:
        requests = engine.stop_requests([s.job for s in refused])
        if stopped := [s for s in refused if s.job.key in requests]:
            for settlement in stopped:
                end_cancelled(settlement, requests[settlement.job.key], engine.now())
            lost = (lost - requests.keys()) | _carry_out(engine, stopped)
    return lost


def _carry_out(engine: Engine, settlements: Sequence[Settlement]) -> set[ClaimKey]:
    if dying := [s for s in settlements if s.state == states.FAILED]:
        names = {s.job.queue_name for s in dying}
        kept = {name: options_for(name, engine.alias).letter_ttl(name) for name in names}
        for settlement in dying:
            ttl, died_at = kept[settlement.job.queue_name], settlement.finished_at or 0
            settlement.expires_at = None if ttl is None else died_at + ttl
    return engine.settle(settlements)
