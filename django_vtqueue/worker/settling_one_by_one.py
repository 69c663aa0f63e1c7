"""Settlements outside of a turn, one by one: one of them fails for a reason of its own."""

import logging
from collections.abc import Sequence

from ..core import history
from ..core.failures import Failure
from ..core.job import ClaimKey
from ..core.settlement import failed
from ..engines import Engine
from ..execution.outcomes import Outcome
from ..queue.settling import settle

logger = logging.getLogger("django_vtqueue")

NOT_STORED = Failure("django_vtqueue.exceptions.OutcomeNotStored", "The outcome could not be stored.", "", "not stored")


def settle_one_by_one(engine: Engine, outcomes: Sequence[Outcome]) -> set[ClaimKey]:
    """Settle each outcome in a transaction of its own; return the keys of the lost ones.

    One that fails alone is replaced by a failed attempt described by our own text only. Errors that pass are raised;
    what was done before is then found as done by the next try.
    """
    lost: set[ClaimKey] = set()
    for outcome in outcomes:
        try:
            with engine.transaction():
                lost |= settle(engine, [outcome.settlement])
        except Exception as error:
            if engine.trouble(error):
                raise
            logger.warning("the outcome of job %s could not be stored: %r", outcome.job.id, error)
            job = outcome.job
            wait = job.lease_us
            outcome.settlement = failed(job, history.FAILED, NOT_STORED, engine.now(), wait)
            outcome.result = None
            lost |= _settle_at_last(engine, outcome)
    return lost


def _settle_at_last(engine: Engine, outcome: Outcome) -> set[ClaimKey]:
    """Settle an outcome that is our own text only; if even that is refused (by the row itself) its lease shall end."""
    try:
        with engine.transaction():
            return settle(engine, [outcome.settlement])
    except Exception as error:
        if engine.trouble(error):
            raise
        logger.warning("the database refuses each change to the row of job %s: %r", outcome.job.id, error)
        return {outcome.job.key}
