"""The end of attempts: settlements are carried out; a job with a stop request is buried, and does not wait again."""

from collections.abc import Callable, Sequence

from ..core import states
from ..core.job import ClaimKey, Settlement, stop
from ..engines import Engine

LetterTTL = Callable[[str], int | None]  # queue name -> microseconds for which its dead letters are kept


def settle(engine: Engine, settlements: Sequence[Settlement], letter_ttl: LetterTTL) -> set[ClaimKey]:
    """Carry out settlements inside a transaction, each only for its holder; return the keys of the lost jobs.

    A settlement after which a job with a stop request would wait again becomes the end of that job. The progress of a
    job is written before its settlement.
    """
    if said := [(s.job, s.job.progress) for s in settlements if s.job.progress and s.job.progress != s.job.stored]:
        engine.note_progress(said)
    lost = engine.settle(settlements)
    if refused := [s for s in settlements if s.job.key in lost and s.state == states.READY]:
        requests = engine.stop_requests([s.job for s in refused])
        if stopped := [s for s in refused if s.job.key in requests]:
            for settlement in stopped:
                job = settlement.job
                stop(settlement, requests[job.key], engine.now(), letter_ttl(job.queue_name))
            lost = (lost - requests.keys()) | engine.settle(stopped)
    return lost
