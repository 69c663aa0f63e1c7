"""Publishing: what a payload and a task have in common on their way into the table."""

from functools import partial

from django.core.exceptions import SynchronousOnlyOperation
from django.db import OperationalError

from ..conf import Options
from ..core.job import NewJobs
from ..core.unique import KEEP
from ..engines import Engine, Trouble, engine_for
from ..exceptions import PayloadTooLarge
from .doorbell import ring, ring_after_commit
from .room import insert_with_room
from .schema import mismatch
from .unique import Duplicates, insert_with_keys


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
    limit = policy.max_payload_bytes
    for _, payload in new.jobs:
        # A character has 4 bytes at the most, so a short text needs no count.
        if len(payload) > limit // 4 and (size := len(payload.encode())) > limit:
            raise PayloadTooLarge(
                f"A payload for queue {new.queue_name!r} has {size:,} bytes; max_payload_bytes allows {limit:,}. "
                "Store the data elsewhere and publish a reference to it, or raise the limit."
            )
    engine = engine_for(database)
    try:
        insert = partial(_insert, engine, new, on_duplicate)
        if check_depth and policy.max_depth is not None:
            committed, duplicates = insert_with_room(insert, engine, new, policy, timeout)
        else:
            committed, duplicates = insert()
    except SynchronousOnlyOperation as error:
        name = new.task_path.rpartition(".")[2]
        awaited = f"await {name}.aenqueue(...)" if name else "await queue.apublish(...)"
        raise SynchronousOnlyOperation(f"{error} In async code: {awaited}.") from None
    except OperationalError as error:
        if engine.trouble(error) is Trouble.SCHEMA:
            raise OperationalError(f"{error}: {mismatch(database)}") from error
        raise
    if committed:
        ring(database, options.doorbells)
    elif len(duplicates) < len(new.jobs) or new.replace:
        ring_after_commit(database, options.doorbells)
    return duplicates


def _insert(engine: Engine, new: NewJobs, on_duplicate: str) -> tuple[bool, Duplicates]:
    """Return whether the jobs are known to be committed, and those that were not stored.

    Jobs with keys are never known to be: their doorbells are left to ``on_commit``.
    """
    if new.keyed:
        return False, insert_with_keys(engine, new, on_duplicate)
    return engine.insert(new), {}
