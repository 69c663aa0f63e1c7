"""Exactly once: a transactional task's own writes and its acknowledgement are one transaction.

Both are committed, or neither.
"""

import logging
from collections.abc import Callable
from functools import lru_cache

from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

from ..backend import VTQueueBackend
from ..core.clock import SECOND
from ..core.job import HeldJob
from ..core.settlement import Settlement, released
from ..core.text import one_line
from ..engines import Engine, Trouble, engine_for
from ..exceptions import TaskTimeout
from ..queue.settling import settle_as_holder, settled_before
from ..queue.until_done import until_done
from ..tasks.refusals import cannot_commit_as_one
from .outcomes import Outcome, Settled, not_executed
from .time_limits import Notify, TransactionBegun, TransactionWaits, transaction_seconds

logger = logging.getLogger("django_vtqueue")


def execute_transactional(
    job: HeldJob,
    backend: VTQueueBackend,
    writes_to: bool | str,
    call: Callable[[], Settlement],
    conclude: Callable[[Settlement], Outcome],
    *,
    tell: Notify,
) -> Outcome:
    """Call a transactional task, and commit its writes and its acknowledgement as one; return the outcome.

    ``writes_to``: the task's option. ``call``: calls the task, and returns its acknowledgement. ``conclude``: called
    with that after the commit. ``tell``: see execute. Raise what ``call`` raised; then nothing was written.
    """
    queue_in = backend.database
    if writes_to not in (True, queue_in):  # True: a task of this package, in any database
        raise ImproperlyConfigured(cannot_commit_as_one(job.task_path, str(writes_to), queue_in))
    seconds = transaction_seconds(job, backend)
    tell(TransactionWaits(job.key))
    engine = engine_for(queue_in)
    try:
        settlement = settle_with(engine, job, seconds, call, lambda: tell(TransactionBegun(job.key)))
    except Lost:
        return Outcome(job, released(job), None, None, 0.0, settled=Settled.LOST)
    except NotBegun as error:
        back = not_executed(job)
        cause = error.__cause__ or error
        if (trouble := engine.trouble(cause)) is not Trouble.BUSY:  # that was waited for
            if trouble:
                say_not_begun(job.id, job.task_path, trouble.said(cause))
                engine.disconnect()
            back.settlement.due_at = engine.now() + SECOND
        return back
    outcome = conclude(settlement)
    outcome.settled = Settled.DONE
    return outcome


@lru_cache(maxsize=1000)  # each is said once
def say_not_begun(job_id: str, task_path: str, cause: str) -> None:
    """Log that the transaction of a job cannot begin, why, and what is done about it."""
    logger.warning(
        "%s …%s: its transaction cannot begin: %s. It is tried again each second, on a new connection: a task may have "
        "left the old one unusable (PRAGMA query_only, a read-only session, a temporary table of the same name)",
        *(one_line(task_path), job_id[-8:], cause),
    )


class Lost(Exception):
    """Another worker holds the job: its task was not called, or what it wrote was rolled back."""


class NotBegun(Exception):
    """The database, or the job's row, could not be written for too long: the task was not called."""


def settle_with(
    engine: Engine,
    job: HeldJob,
    seconds: float,
    call: Callable[[], Settlement],
    began: Callable[[], None] = lambda: None,
) -> Settlement:
    """Call a task and make the settlement that ``call`` returns, in one transaction of ``seconds`` at the most.

    ``began``: called when the transaction has begun, and holds the job. Return the settlement once it is committed.
    Raise Lost, NotBegun, TaskTimeout, or what ``call`` raised; then nothing was written.
    """
    begun = False
    made: list[Settlement] = []
    committed: list[Settlement] = []

    def hold() -> None:
        if engine.renew([job], engine.now()):
            raise Lost

    try:
        with engine.task_transaction(seconds, hold):
            begun = True
            began()
            transaction.on_commit(lambda: committed.extend(made), using=engine.alias)
            made.append(call())
            if settle_as_holder(engine, made):
                raise Lost
    except BaseException as error:
        if committed:
            logger.exception("%s is done, but a hook of its transaction (on_commit) failed", job.task_path)
        elif not begun and (engine.trouble(error) or isinstance(error, TaskTimeout)):
            raise NotBegun from error
        elif not made or not was_committed(engine, made[0], error):
            raise
    return made[0]


def was_committed(engine: Engine, settlement: Settlement, error: BaseException) -> bool:
    """Return whether a settlement was committed though its commit has failed: the connection broke before the answer.

    While the database is gone it is waited for. What a task has left to ``on_commit`` is not done.
    """
    if engine.trouble(error) is not Trouble.GONE:
        return False
    return settled_before(settlement, until_done(engine, lambda: engine.find(settlement.job.id)))
