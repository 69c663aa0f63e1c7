"""Settling what is held: what was asked to stop is not given back, but ends here."""

from collections.abc import Callable, Sequence

from . import states
from .engines import Engine
from .jobs import Key, Settlement, stop

LetterTTL = Callable[[str], int | None]  # queue name -> microseconds for which its dead letters are kept


def settle(engine: Engine, settlements: Sequence[Settlement], letter_ttl: LetterTTL) -> set[Key]:
    """Carry out settlements inside a transaction, each only for its holder; return the keys of what was lost.

    One that would give a job back which was asked to stop is changed: it is the end of the job. How far a job had come
    is written with it.
    """
    if said := [(s.job, s.job.progress) for s in settlements if s.job.progress and s.job.progress != s.job.stored]:
        engine.note_progress(said)
    lost = engine.settle(settlements)
    if refused := [s for s in settlements if s.job.key in lost and s.state == states.READY]:
        asked = engine.asked([s.job for s in refused])
        if stopped := [s for s in refused if s.job.key in asked]:
            for settlement in stopped:
                job = settlement.job
                stop(settlement, asked[job.key], engine.now(), letter_ttl(job.queue_name))
            lost = lost - asked.keys() | engine.settle(stopped)
    return lost
