"""Back-pressure: a queue with a ``max_depth`` takes no more jobs than that, until workers have made room.

Whether it has room is known by its gate (max_depth.py); here are the wait for it, and who need not ask.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

from ..conf import WAIT, Policy
from ..core import clock
from ..core.clock import SECOND
from ..core.job import NewJobs
from ..engines import Engine
from ..exceptions import QueueFull
from .max_depth import Insert, Inserted, full_for, gate_of, in_transaction

P = ParamSpec("P")
T = TypeVar("T")

BETWEEN_TRIES, LONGEST_BETWEEN_TRIES = 0.02, 0.5  # seconds of a publisher that waits for room

_from_a_job: ContextVar[bool] = ContextVar("vtqueue_from_a_job", default=False)
_waits_aside: ContextVar[bool] = ContextVar("vtqueue_waits_aside", default=False)

NOT_WAITED = (
    "Room is not waited for inside a transaction: workers could not write meanwhile. Publish before it, or in "
    "transaction.on_commit."
)


def insert_with_room(insert: Insert, engine: Engine, new: NewJobs, policy: Policy, timeout: float | None) -> Inserted:
    """Return what ``insert`` returns, which stores new jobs, if the queue has room for all of them.

    ``timeout``: the seconds for which room is waited for (None: as ``on_full`` says), but not beyond the time by which
    the jobs must have started. Raise QueueFull if there is none; then nothing is stored.
    """
    assert policy.max_depth is not None
    if policy.exempt_workers and _from_a_job.get():
        return insert()
    gate, began = gate_of(engine.alias, new.queue_name, policy.max_depth), time.monotonic()
    longest = clock.NEVER if new.start_by is None else (new.start_by - engine.now()) / SECOND
    while True:
        try:
            return gate.publish(insert, engine, len(new.jobs), keyed=new.unique_keys is not None)
        except QueueFull as full:
            waits = patience(full, engine.alias, policy, timeout) if len(new.jobs) <= policy.max_depth else 0.0
            full.patience = max(min(waits, longest), 0.0)
            if _waits_aside.get() or not (pause := seconds_to_next_try(full, began)):
                raise
        clock.wait(pause)


def check_room(engine: Engine, new: NewJobs, policy: Policy) -> None:
    """Raise QueueFull if a queue has no room for new jobs, which are stored later; it is not waited for."""
    if policy.max_depth is not None and not (policy.exempt_workers and _from_a_job.get()):
        gate_of(engine.alias, new.queue_name, policy.max_depth).check(engine, len(new.jobs))


async def await_room(publish: Callable[[], Awaitable[T]]) -> T:
    """Return what ``publish`` returns; wait for room here, for its thread is that of all other synchronous code."""
    token, began = _waits_aside.set(True), time.monotonic()
    try:
        while True:
            try:
                return await publish()
            except QueueFull as full:
                if not (pause := seconds_to_next_try(full, began)):
                    raise
            await asyncio.sleep(pause)
    finally:
        _waits_aside.reset(token)


def patience(full: QueueFull, alias: str, policy: Policy, timeout: float | None) -> float:
    """Return the seconds for which a publish waits; none inside a transaction, and then ``full`` says why."""
    if timeout is None:
        timeout = policy.full_timeout if policy.on_full == WAIT else 0.0
    if timeout and in_transaction(alias):
        full.message += " " + NOT_WAITED
        return 0.0
    return timeout


def seconds_to_next_try(full: QueueFull, began: float) -> float:
    """Return the seconds until the next try of a publish that ``began`` (monotonic) then; 0 if its time is up."""
    if (left := began + full.patience - time.monotonic()) > 0:
        return min(max(full_for(full.depth), BETWEEN_TRIES), LONGEST_BETWEEN_TRIES, left)
    if full.patience:
        full.message += f" The publisher has waited for {full.patience:g} s."
        full.patience = 0.0  # a receiver's publish is inside another one, which must neither wait nor say so
    return 0.0


def not_retried_with_caller(act: Callable[[T], None], value: T) -> None:
    """Call a function; what it publishes is no part of a publish that is tried again by await_room."""
    token = _waits_aside.set(False)
    try:
        act(value)
    finally:
        _waits_aside.reset(token)


def publishes_as_a_job(act: Callable[P, T]) -> Callable[P, T]:
    """Have what a function publishes count as published by a job that runs; see ``exempt_workers``."""

    @wraps(act)
    def during(*args: P.args, **kwargs: P.kwargs) -> T:
        token = _from_a_job.set(True)
        try:
            return act(*args, **kwargs)
        finally:
            _from_a_job.reset(token)

    return during
