"""Settlements outside of a turn, one by one: one of them fails for a reason of its own."""

import logging

from ..core import history
from ..core.failures import Failure
from ..core.job import ClaimKey
from ..core.settlement import failed
from ..engines import Engine
from ..execution.outcomes import Outcome
from ..queue.settling import settle

logger = logging.getLogger("django_vtqueue")

NOT_STORED = Failure("django_vtqueue.exceptions.OutcomeNotStored", "The outcome could not be stored.", "", "not stored")


def settle_alone(engine: Engine, outcome: Outcome) -> set[ClaimKey]:
    """Settle an outcome in a transaction of its own; return its key if the job is lost.

    If that fails for a reason of its own, the outcome becomes a failed attempt described by our own text only. If even
    that is refused, by the row itself, its lease shall end. Errors that pass are raised.
    """
    lost = _settled(engine, outcome, "the outcome of job %s could not be stored: %r")
    if lost is None:
        job = outcome.job
        outcome.settlement = failed(job, history.FAILED, NOT_STORED, engine.now(), job.lease_us)
        outcome.result = None
        lost = _settled(engine, outcome, "the database refuses each change to the row of job %s: %r")
    return {outcome.job.key} if lost is None else lost


def _settled(engine: Engine, outcome: Outcome, refused: str) -> set[ClaimKey] | None:
    """Settle an outcome; return its key if the job is lost, and None, saying so, if it is refused."""
    try:
        with engine.transaction():
            return settle(engine, [outcome.settlement])
    except Exception as error:
        if engine.trouble(error):
            raise
        logger.warning(refused, outcome.job.id, error)
        return None
