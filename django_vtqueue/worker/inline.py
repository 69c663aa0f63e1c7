"""Due jobs, run in the caller's own thread and transaction: for tests, and where other threads do not see the rows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from django.db import DatabaseError, connections

from ..backend import VTQueueBackend
from ..core.ids import new_worker_id
from ..core.job import Scope
from ..core.settlement import released
from ..engines import engine_for
from ..execution.execute import execute
from ..execution.outcomes import Outcome, Settled, announce, burial
from ..queue.claims import Claims, collect
from ..queue.limits import Limits
from ..queue.settling import settle


@contextmanager
def contained() -> Iterator[None]:
    """Keep an error of the database inside the block: a transaction around it can be used afterwards."""
    saved = [
        (connection, connection.savepoint())
        for connection in connections.all(initialized_only=True)
        if connection.in_atomic_block and not connection.needs_rollback
    ]
    try:
        yield
    finally:
        for connection, savepoint in saved:
            if not connection.in_atomic_block or savepoint is None:
                continue
            if not connection.needs_rollback:
                with suppress(DatabaseError):  # of PostgreSQL, after a statement that has failed
                    connection.savepoint_commit(savepoint)
                    continue
            connection.needs_rollback = False
            connection.savepoint_rollback(savepoint)


def run_due(
    backend: VTQueueBackend,
    scopes: Sequence[Scope],
    until: int | None = None,
    limit: int | None = None,
    given: Limits | None = None,
) -> Iterator[Outcome]:
    """Run what is due, one job after the other, and what that publishes; yield each outcome once it is stored.

    ``until``: an instant in the future up to which scheduled jobs and retries run as well, each as if its time had
    come. ``limit``: the most jobs to run; ``given``: the limits of a worker (None: of the backend). KeyboardInterrupt
    gives the job back and goes through.
    """
    engine, worker_id = engine_for(backend.database), new_worker_id()
    limits = given or backend.limits
    done = 0
    while limit is None or done < limit:
        first = limits.earliest(engine, scopes)
        now = engine.now()
        if first is None or first > max(now, until or now):
            return
        at = max(now, first)  # the time that it is for this job
        with engine.transaction():
            taken = Claims(engine, limits).claim(scopes, 1, worker_id, at)
        for settlement in taken.buried:
            announce(burial(settlement, backend), backend)
        for job in collect(engine, taken):
            try:
                with contained():
                    outcome = execute(job, backend, inline=True, clock_offset=at - now)
            except KeyboardInterrupt:
                with engine.transaction():
                    settle(engine, [released(job)])
                raise
            if outcome.settled is Settled.OPEN:
                outcome.settlement.shift(at - now)
                with engine.transaction():
                    lost = settle(engine, [outcome.settlement])
                if outcome.settlement.cancelled:
                    outcome = burial(outcome.settlement, backend)
                outcome.settled = Settled.LOST if lost else Settled.DONE
            if outcome.has_only_loaded:
                continue
            done += 1
            if outcome.settled is Settled.DONE:
                announce(outcome, backend)
                yield outcome
