"""Settling when something is in the way: a settlement that fails for a reason of its own, or little time left."""

import logging
import time
from collections.abc import Callable, Sequence

from .. import history
from ..engines import Engine
from ..failures import Failure
from ..jobs import Key, failed
from ..outcomes import Outcome
from ..settlements import LetterTTL, settle
from .trouble import Episode

logger = logging.getLogger("django_vtqueue")

NOT_STORED = Failure("django_vtqueue.exceptions.OutcomeNotStored", "The outcome could not be stored.", "", "not stored")


def settle_alone(
    engine: Engine, outcomes: Sequence[Outcome], letter_ttl: LetterTTL, forget: Callable[[Outcome], None]
) -> set[Key]:
    """Settle each outcome in a transaction of its own; return the keys of the lost ones.

    One that fails alone is replaced by a failed attempt described by our own text only. Errors that pass are raised;
    what was done before is then found as done by the next try. ``forget``: called with one that is to be replaced.
    """
    lost: set[Key] = set()
    for outcome in outcomes:
        try:
            with engine.transaction():
                lost |= settle(engine, [outcome.settlement], letter_ttl)
        except Exception as error:
            if engine.trouble(error):
                raise
            logger.warning("the outcome of %s could not be stored: %r", outcome.job.id, error)
            forget(outcome)
            job = outcome.job
            wait = job.lease_us
            outcome.settlement = failed(job, history.FAILED, NOT_STORED, engine.now(), wait, letter_ttl(job.queue_name))
            outcome.result = None
            lost |= _settle_at_last(engine, outcome, letter_ttl)
    return lost


def _settle_at_last(engine: Engine, outcome: Outcome, letter_ttl: LetterTTL) -> set[Key]:
    """Settle an outcome that is our own text only; if even that is refused (by the row itself) its lease shall end."""
    try:
        with engine.transaction():
            return settle(engine, [outcome.settlement], letter_ttl)
    except Exception as error:
        if engine.trouble(error):
            raise
        logger.warning("the row of %s takes no change: %r", outcome.job.id, error)
        return {outcome.job.key}


def settle_before(deadline: float, engine: Engine, step: Callable[[], object], episode: Episode) -> bool:
    """Do ``step`` in a transaction, again and again until ``deadline`` (monotonic); return whether it was done."""
    while True:
        try:
            with engine.transaction():
                step()
            return True
        except Exception as error:
            episode.failed(error)
            if time.monotonic() > deadline:
                return False
            time.sleep(max(min(episode.retry_at, deadline) - time.monotonic(), 0))
