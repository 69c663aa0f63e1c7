"""Publishing: what a payload and a task have in common on their way into the table."""

import logging
from collections.abc import Callable
from functools import partial

from django.core.exceptions import SynchronousOnlyOperation
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..conf import Options, Policy
from ..core.job import NewJobs
from ..core.unique import KEEP
from ..engines import Engine, Trouble, engine_for
from ..exceptions import PayloadTooLarge
from .back_pressure import check_room, insert_with_room
from .doorbell import ring, ring_after_commit
from .schema import mismatch_or_hint
from .unique import Duplicates, insert_with_keys

logger = logging.getLogger("django_vtqueue")

NOT_STORED = "%d jobs of queue %r were not stored after the commit that they waited for: %s (%s)"


def publish(
    new: NewJobs,
    database: str,
    options: Options,
    when_stored: Callable[[Duplicates], None],
    timeout: float | None = None,
    *,
    on_duplicate: str = KEEP,
    immediate: bool = False,
) -> None:
    """Store new jobs, and call ``when_stored`` with the duplicates; see store for both, and for what is raised.

    Inside a transaction of another database this happens after its commit, unless they are ``immediate``: then the size
    of the payloads and the room in the queue are judged now, and all else is logged.
    """
    if immediate or not (awaited := awaited_transaction(database)):
        duplicates = store(new, database, options, timeout, on_duplicate=on_duplicate)
        when_stored(duplicates)
        return
    policy = options.policy(new.queue_name)
    check_size(new, policy)
    check_room(engine_for(database), new, policy)
    later = partial(_store_later, new, database, options, when_stored, on_duplicate)
    transaction.on_commit(later, using=awaited, robust=True)


def awaited_transaction(database: str) -> str | None:
    """Return the database, the default one if there are several, in whose transaction the caller is; None for none.

    In a transaction of the jobs' own database it is None, too: they are a part of that.
    """
    if len(connections.settings) == 1:
        return None
    own = connections[database]
    if own.in_atomic_block or (own.connection and not own.autocommit):
        return None
    opened = [alias for alias in connections if connections[alias].in_atomic_block]
    return DEFAULT_DB_ALIAS if DEFAULT_DB_ALIAS in opened else next(iter(opened), None)


def _store_later(
    new: NewJobs, database: str, options: Options, when_stored: Callable[[Duplicates], None], on_duplicate: str
) -> None:
    """Store jobs after a commit: what goes wrong is logged, for the caller's work is done."""
    try:
        duplicates = store(new, database, options, on_duplicate=on_duplicate, check_depth=False)
    except Exception as error:
        ids = ", ".join(job_id for job_id, _ in new.jobs[:10])
        logger.error(NOT_STORED, len(new.jobs), new.queue_name, new.task_path or "raw payloads", ids, exc_info=error)
        return
    when_stored(duplicates)


def store(
    new: NewJobs,
    database: str,
    options: Options,
    timeout: float | None = None,
    *,
    on_duplicate: str = KEEP,
    check_depth: bool = True,
) -> Duplicates:
    """Insert new jobs in the caller's transaction, or in one of their own, and ring the doorbells after the commit.

    Return those that were not stored, for there is a job with their unique key; see insert_with_keys. ``timeout``: see
    insert_with_room; ``check_depth``: whether ``max_depth`` counts. Raise PayloadTooLarge if one of the payloads is
    larger than ``max_payload_bytes``, QueueFull if the queue has no room; then none is stored. If Django refuses the
    call in async code, or the tables are missing, the error says what to do.
    """
    policy = options.policy(new.queue_name)
    check_size(new, policy)
    engine = engine_for(database)
    try:
        if check_depth and policy.max_depth is not None:
            insert = partial(_insert, engine, new, on_duplicate)
            connection, duplicates = insert_with_room(insert, engine, new, policy, timeout)
        else:
            connection, duplicates = _insert(engine, new, on_duplicate)
    except SynchronousOnlyOperation as error:
        name = new.task_path.rpartition(".")[2]
        awaited = f"await {name}.aenqueue(...)" if name else "await queue.apublish(...)"
        raise SynchronousOnlyOperation(f"{error} In async code: {awaited}.") from None
    except DatabaseError as error:
        if engine.trouble(error) is Trouble.SCHEMA:
            first, line_end, others = str(error).partition("\n")
            error.args = (f"{first}: {mismatch_or_hint(database)}{line_end}{others}",)
        raise
    if connection is None:
        ring(database, options.doorbells)
    elif len(duplicates) < len(new.jobs) or new.replace:
        ring_after_commit(connection, options.doorbells)
    return duplicates


def check_size(new: NewJobs, policy: Policy) -> None:
    """Raise PayloadTooLarge if one of the payloads is larger than ``max_payload_bytes``."""
    limit = policy.max_payload_bytes
    for _, payload in new.jobs:
        # A character has 4 bytes at the most, so a short text needs no count.
        if len(payload) > limit // 4 and (size := len(payload.encode())) > limit:
            raise PayloadTooLarge(
                f"A payload for queue {new.queue_name!r} has {size:,} bytes; max_payload_bytes allows {limit:,}. "
                "Store the data elsewhere and publish a reference to it, or raise the limit."
            )


def _insert(engine: Engine, new: NewJobs, on_duplicate: str) -> tuple[BaseDatabaseWrapper | None, Duplicates]:
    """Store jobs; return the connection that may have to commit them yet, and those that were not stored."""
    if new.has_options:
        return connections[engine.alias], insert_with_keys(engine, new, on_duplicate)
    return engine.insert(new), {}
