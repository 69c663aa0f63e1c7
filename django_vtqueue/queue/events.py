"""Events: what is sent to a durable task, and wakes it if it waits for that."""

from typing import Any

from asgiref.sync import sync_to_async

from ..core.encoding import dumps, legible
from ..core.job import SHORT
from ..core.steps import is_name
from ..core.unique import checked_key
from ..engines import database_for, engine_for, options_for
from ..exceptions import PayloadTooLarge
from .arguments import checked_queue_name
from .doorbell import wake_workers
from .named_jobs import checked_id


def send_event(
    job_id: Any = None,
    name: str = "",
    value: Any = None,
    *,
    unique_key: str | None = None,
    queue_name: str = "default",
    using: str | None = None,
) -> bool:
    """Send an event to a job, which gets ``value`` (any JSON value) from ``context.wait_for(name)``, now or later.

    ``job_id``: its id (that of its task's result), or the result; or, instead, ``unique_key`` and ``queue_name``: the
    unfinished job of that queue with this key. ``using``: a database alias (default: the one of your settings). It is
    part of the caller's transaction, if that is of this database. Returns whether there is such a job that has not
    ended.

    Give a value, True say, if the task has a timeout: after it ``wait_for`` returns None, as for an event without one.

    Raises TypeError for what is not JSON, or has a NUL character or half of a surrogate pair; ValueError for what is no
    id, key or name; PayloadTooLarge if the steps of the job would be larger than its queue's ``max_steps_bytes``.
    """
    if not is_name(name):
        raise ValueError(f"The name of an event is a text of 1 to {SHORT} characters, not {name!r}.")
    target = _target(job_id, unique_key, queue_name)
    database = database_for(using)
    engine = engine_for(database)
    now = engine.now()
    event = dumps({"name": name, "value": legible(value, "value", f" of event {name!r}"), "at": now})
    with engine.atomic():
        found = engine.send_event(name, event, now, **target)
        if found:
            check_steps_size(found[1], f"event {name!r}", found[0], database)
            wake_workers(database)
    return bool(found)


def check_steps_size(size: int, what: str, queue_name: str, database: str) -> None:
    """Raise PayloadTooLarge if the steps of a job, so many bytes with ``what`` is added, are larger than allowed."""
    limit = options_for(queue_name, database).policy(queue_name).max_steps_bytes
    if size > limit:
        raise PayloadTooLarge(
            f"With {what} the steps of the job have {size:,} bytes; max_steps_bytes allows {limit:,}. Store the data "
            "elsewhere and give a reference to it, or raise the limit of the queue."
        )


async def asend_event(job_id: Any = None, name: str = "", value: Any = None, **options: Any) -> bool:
    """See send_event; for async code."""
    return await sync_to_async(send_event)(job_id, name, value, **options)


def _target(job_id: Any, unique_key: str | None, queue_name: str) -> dict[str, str]:
    if (job_id is None) is (unique_key is None):
        raise ValueError("Give either the id of a job, or unique_key (and queue_name).")
    if unique_key is not None:
        return {"unique_key": checked_key(unique_key) or "", "queue_name": checked_queue_name(queue_name)}
    return {"job_id": checked_id(job_id).hex}
