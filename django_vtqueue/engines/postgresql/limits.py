"""Limits on PostgreSQL. Each lookup of a key is a seek in an index of the rows that have one.

What is counted before it is changed is locked first, by an advisory lock of the transaction on the key, in the order of
the keys: the rows that are counted may be none. A claim waits for limited queues before it looks for rows: who holds
rows of a full queue would keep another claim from them when a place is free. It does not wait for the key of a job; see
due.py. A settlement waits: who has the lock may be about to park a job that may start now.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from ...core.clock import LAST_INSTANT
from ...core.job import Handle
from ..contract_parts import BOOKED_FOR, IS_BLOCKED, IS_BOOKED, Booked, Known, Parked, RateState
from .connection import PostgreSQLConnection
from .statements import hexed, hidden

OF_CONCURRENCY, OF_RATE, OF_QUEUE = 7_190_001, 7_190_002, 7_190_003  # seeds: a project may have such locks of its own


def lock_of(kind: int, key: str) -> str:
    """Return the SQL of the number of a key's lock."""
    return f"hashtextextended({key}, {kind})"


LOCKS = """
SELECT pg_advisory_xact_lock(number)
FROM (SELECT {} AS number FROM unnest(%(keys)s::text[]) AS key ORDER BY 1) AS locks"""

HELD_OF_QUEUES = """
SELECT name, (
    SELECT count(*) FROM vtqueue_job AS job
    WHERE job.queue_name = name AND job.lease_until IS NOT NULL
      AND NOT (job.task_path = '' AND job.concurrency_key IS NOT NULL)
) FROM unnest(%(keys)s::text[]) AS name"""

HELD_OF_KEYS = """
SELECT key, (
    SELECT count(*) FROM vtqueue_job AS job WHERE job.concurrency_key = key AND job.lease_until IS NOT NULL
) FROM unnest(%(keys)s::text[]) AS key"""

# Of a key the first of the jobs in order.
FIRST_IN_ORDER = """FROM vtqueue_job AS job
    WHERE job.concurrency_key = mine.key AND job.ordered > false AND job.finished_at IS NULL
    ORDER BY job.enqueued_at, job.id LIMIT 1"""
FIRST_OF_KEYS = f"""
SELECT mine.key, (SELECT {hexed("job.id")} {FIRST_IN_ORDER}) FROM unnest(%(keys)s::text[]) AS mine(key)"""

PARK = f"""
UPDATE vtqueue_job
SET state = 'BLOCKED', due_at = coalesce(moved_from, due_at), wake_at = {LAST_INSTANT}, moved_from = NULL
WHERE id = ANY(%(ids)s::uuid[])"""

# The queues in which jobs of these keys are parked, each found by one seek; the first of each: of those in order, or
# the others. And the first in order of each key, if it is parked. ARRAY: see PRUNE_JOBS.
NEXT_QUEUE = f"SELECT job.queue_name FROM vtqueue_job AS job WHERE {IS_BLOCKED} AND job.ordered = (SELECT %(ordered)s)"
UNPARK = f"""
WITH RECURSIVE line(key, most, name) AS (
    SELECT mine.key, mine.most, ({NEXT_QUEUE} AND job.concurrency_key = mine.key ORDER BY job.queue_name LIMIT 1)
    FROM unnest(%(keys)s::text[], %(limits)s::int[]) AS mine(key, most)
    UNION ALL
    SELECT line.key, line.most, (
        {NEXT_QUEUE} AND job.concurrency_key = line.key AND job.queue_name > line.name ORDER BY job.queue_name LIMIT 1
    ) FROM line WHERE line.name IS NOT NULL
)
UPDATE vtqueue_job SET state = 'READY', wake_at = NULL
WHERE id = ANY(ARRAY(
    SELECT parked.id FROM line CROSS JOIN LATERAL (
        SELECT job.id FROM vtqueue_job AS job
        WHERE {IS_BLOCKED} AND job.concurrency_key = line.key AND job.ordered = (SELECT %(ordered)s)
          AND job.queue_name = line.name
        ORDER BY job.priority DESC, job.due_at LIMIT line.most FOR UPDATE SKIP LOCKED
    ) AS parked
    UNION ALL
    SELECT first.id FROM unnest(%(keys)s::text[]) AS mine(key) CROSS JOIN LATERAL (
        SELECT job.id FROM vtqueue_job AS job
        WHERE job.id = (SELECT job.id {FIRST_IN_ORDER}) AND {hidden(IS_BLOCKED)} FOR UPDATE SKIP LOCKED
    ) AS first
))"""

# The planner expects long walks: from some 60 keys on it has UNPARK compiled. For 100 keys of which no job is parked
# that takes 0.2 s, for 500 keys 1.5 s; without it they are looked at in 0.4 and 9 ms (measured).
MANY_KEYS = 20

# Who ends one of these has its row, and will want the lock of its key: it unparks the next one itself.
UNPARK_ROWS = f"""
UPDATE vtqueue_job SET state = 'READY', wake_at = NULL
WHERE id IN (
    SELECT job.id FROM vtqueue_job AS job WHERE job.id = ANY(%(ids)s::uuid[]) AND {hidden(IS_BLOCKED)}
    FOR UPDATE SKIP LOCKED
)"""

# The distinct keys, each found by one seek.
NEXT_KEY = f"SELECT job.concurrency_key FROM vtqueue_job AS job WHERE {IS_BLOCKED}"
PARKED = f"""
WITH RECURSIVE found(key) AS (
    (SELECT ({NEXT_KEY} AND job.concurrency_key > %(after)s ORDER BY job.concurrency_key LIMIT 1))
    UNION ALL
    SELECT ({NEXT_KEY} AND job.concurrency_key > found.key ORDER BY job.concurrency_key LIMIT 1)
    FROM found WHERE found.key IS NOT NULL
)
SELECT found.key, first.queue_name, first.task_path, CASE WHEN first.ordered THEN (
    SELECT ({IS_BLOCKED})::int
    FROM vtqueue_job AS job
    WHERE job.concurrency_key = found.key AND job.ordered > false AND job.finished_at IS NULL
    ORDER BY job.enqueued_at, job.id LIMIT 1
) END
FROM found CROSS JOIN LATERAL (
    SELECT job.queue_name, job.task_path, job.ordered FROM vtqueue_job AS job
    WHERE {IS_BLOCKED} AND job.concurrency_key = found.key
    ORDER BY job.ordered, job.queue_name, job.priority DESC, job.due_at LIMIT 1
) AS first WHERE found.key IS NOT NULL LIMIT %(limit)s"""

RATES = "SELECT key, next_at, interval_us FROM vtqueue_rate WHERE key = ANY(%(keys)s)"
ALL_RATES = "SELECT key, next_at, interval_us FROM vtqueue_rate WHERE key > %(after)s ORDER BY key LIMIT %(limit)s"
SET_RATES = """
INSERT INTO vtqueue_rate (key, next_at, interval_us)
SELECT * FROM unnest(%(keys)s::text[], %(next)s::bigint[], %(intervals)s::bigint[])
ON CONFLICT (key) DO UPDATE SET next_at = excluded.next_at, interval_us = excluded.interval_us"""
FORGET_RATES = "DELETE FROM vtqueue_rate WHERE key = ANY(%(keys)s)"

LAST_BOOKED = f"""
SELECT key, last.moment, last.task_path FROM unnest(%(keys)s::text[]) AS key CROSS JOIN LATERAL (
    SELECT {BOOKED_FOR} AS moment, job.task_path FROM vtqueue_job AS job
    WHERE {IS_BOOKED} AND job.rate_key = key ORDER BY {BOOKED_FOR} DESC LIMIT 1
) AS last"""
BOOK = """
UPDATE vtqueue_job AS job
SET state = 'SCHEDULED', moved_from = coalesce(job.moved_from, job.due_at), wake_at = mine.moment
FROM unnest(%(ids)s::uuid[], %(moments)s::bigint[]) AS mine(id, moment)
WHERE job.id = ANY(%(ids)s::uuid[]) AND job.id = mine.id"""
UNBOOK = f"""
UPDATE vtqueue_job SET state = 'READY', due_at = moved_from, wake_at = NULL, moved_from = NULL
WHERE id = ANY(ARRAY(
    SELECT job.id FROM vtqueue_job AS job
    WHERE {IS_BOOKED} AND job.rate_key = %(key)s AND {BOOKED_FOR} > %(after)s
    ORDER BY {BOOKED_FOR} DESC LIMIT %(limit)s FOR UPDATE SKIP LOCKED
))"""


class PostgreSQLLimits(PostgreSQLConnection):
    """The part of an Engine that is for limits."""

    line: tuple[str, ...] = ("enqueued_at",)

    def _lock(self, kind: int, keys: Iterable[str]) -> dict[str, list[str]]:
        """Lock keys, if that holds for longer than this statement; return them as an argument."""
        given = {"keys": sorted(keys)}
        if given["keys"] and self._in_transaction:
            self._rows(LOCKS.format(lock_of(kind, "key")), given)
        return given

    def look_up(
        self,
        *,
        queues: Collection[str] = (),
        keys: Collection[str] = (),
        first: Collection[str] = (),
        rates: Collection[str] = (),
        booked: Collection[str] = (),
    ) -> Known:
        held = self._of(HELD_OF_QUEUES, {"keys": [*queues]})
        running = self._of(HELD_OF_KEYS, self._lock(OF_CONCURRENCY, keys))
        firsts = self._of(FIRST_OF_KEYS, self._lock(OF_CONCURRENCY, first))
        states = self._of(RATES, self._lock(OF_RATE, rates))
        moments = self._of(LAST_BOOKED, {"keys": [*booked]})
        return Known(
            dict(held),
            dict(running),
            dict(firsts),
            {key: RateState(*state) for key, *state in states},
            {key: Booked(*moment) for key, *moment in moments},
        )

    def lock_queues(self, queues: Collection[str], rates: Collection[str]) -> None:
        self._lock(OF_QUEUE, queues)
        self._lock(OF_RATE, rates)

    def lock_keys(self, keys: Collection[str]) -> None:
        self._lock(OF_CONCURRENCY, keys)

    def held_of_keys(self, keys: Collection[str]) -> dict[str, int]:
        return defaultdict(int, self._of(HELD_OF_KEYS, {"keys": [*keys]}))

    def _of(self, sql: str, given: dict[str, list[str]]) -> Sequence[Any]:
        """Return what a statement finds for keys, if there are any."""
        return self._rows(sql, given) if given["keys"] else ()

    def park(self, handles: Sequence[Handle]) -> None:
        self._run(PARK, {"ids": list(handles)})

    def unpark(self, keys: Mapping[str, int], *, ordered: bool = False) -> int:
        with self.uncompiled() if len(keys) > MANY_KEYS else nullcontext():
            return self._run(UNPARK, {"keys": [*keys], "limits": [*keys.values()], "ordered": ordered})

    def unpark_rows(self, handles: Sequence[Handle]) -> int:
        return self._run(UNPARK_ROWS, {"ids": list(handles)})

    def parked(self, after: str, limit: int) -> list[Parked]:
        return [Parked(*row) for row in self._rows(PARKED, {"after": after, "limit": limit})]

    def all_rates(self, after: str, limit: int) -> list[tuple[str, RateState]]:
        return [(key, RateState(*state)) for key, *state in self._rows(ALL_RATES, {"after": after, "limit": limit})]

    def set_rates(self, states: Mapping[str, RateState]) -> None:
        keys = sorted(states)
        columns = {"next": [states[key].next_at for key in keys], "intervals": [states[key].interval for key in keys]}
        self._run(SET_RATES, {"keys": keys, **columns})

    def forget_rates(self, keys: Iterable[str]) -> None:
        self._run(FORGET_RATES, {"keys": sorted(keys)})

    def book(self, moments: Mapping[Handle, int]) -> None:
        self._run(BOOK, {"ids": list(moments), "moments": list(moments.values())})

    def unbook(self, key: str, after: int, limit: int) -> int:
        return self._run(UNBOOK, {"key": key, "after": after, "limit": limit})
