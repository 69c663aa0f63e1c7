"""A task's own writes and its acknowledgement in one transaction: both are committed, or neither."""

import logging
from collections.abc import Callable

from django.db import transaction

from ..core.job import HeldJob, Settlement
from ..engines import Engine

logger = logging.getLogger("django_vtqueue")

LIMIT = 5.0  # seconds for which all others who write may have to wait; a task's own ``timeout`` replaces it


class Lost(Exception):
    """Another worker holds the job: its task was not called, or what it wrote was rolled back."""


class NotBegun(Exception):
    """The database could not be written for longer than its timeout: the task was not called."""


def settle_with(
    engine: Engine,
    job: HeldJob,
    seconds: float,
    call: Callable[[], Settlement],
    began: Callable[[], None] = lambda: None,
) -> Settlement:
    """Call a task and make the settlement that ``call`` returns, in one transaction of ``seconds`` at the most.

    ``began``: called when the transaction has begun. Return the settlement once it is committed. Raise Lost, NotBegun,
    TaskTimeout, or what ``call`` raised; then nothing was written.
    """
    begun, committed = False, []
    try:
        with engine.effects(seconds):
            begun = True
            began()
            transaction.on_commit(lambda: committed.append(settlement), using=engine.alias)
            if engine.renew([job], engine.now()):
                raise Lost
            settlement = call()
            if engine.settle([settlement]):
                raise Lost
    except BaseException as error:
        if committed:
            logger.exception("%s is done, but what was to follow its commit failed", job.task_path)
        elif not begun and engine.trouble(error):
            raise NotBegun from error
        else:
            raise
    return settlement
