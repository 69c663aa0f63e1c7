"""Limits on SQLite. Each lookup of a key is a seek in an index of the rows that have one; the hints keep it there."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

from ...core.clock import LAST_INSTANT
from ...core.job import Handle
from ..contract_parts import BOOKED_FOR, IS_BLOCKED, IS_BOOKED, Booked, Known, Parked, RateState
from .connection import SQLiteConnection

HELD_OF_QUEUES = """
SELECT json_group_object(name.value, (
    SELECT count(*) FROM vtqueue_job AS job INDEXED BY vtqueue_job_held
    WHERE job.queue_name = name.value AND job.lease_until IS NOT NULL
      AND NOT (job.task_path = '' AND job.concurrency_key IS NOT NULL)
)) FROM json_each(:asked, '$[0]') AS name"""

# Of the keys that have some: mostly few have.
OF_KEY = """FROM vtqueue_job AS job INDEXED BY vtqueue_job_key_held
    WHERE job.concurrency_key = key.value AND job.lease_until IS NOT NULL"""
HELD_OF_KEYS = f"""
SELECT json_group_object(key.value, (SELECT count(*) {OF_KEY}))
FROM json_each(:asked, '$[1]') AS key WHERE EXISTS (SELECT 1 {OF_KEY})"""

# Of a key the first of the jobs in order.
FIRST_IN_ORDER = """(
    SELECT job.rowid FROM vtqueue_job AS job INDEXED BY vtqueue_job_key_order
    WHERE job.concurrency_key = key.value AND job.ordered > 0 AND job.finished_at IS NULL ORDER BY job.rowid LIMIT 1
)"""
FIRST_OF_KEYS = f"""
SELECT json_group_object(key.value, {FIRST_IN_ORDER}) FROM json_each(:asked, '$[2]') AS key"""

PARK = f"""
UPDATE vtqueue_job
SET state = 'BLOCKED', due_at = coalesce(moved_from, due_at), wake_at = {LAST_INSTANT}, moved_from = NULL
WHERE rowid IN (SELECT value FROM json_each(:rowids))"""

# Mostly none is: asking takes half as long as an UPDATE that changes nothing.
WITH_PARKED = f"""
SELECT key.value FROM json_each(:keys) AS key WHERE EXISTS (
    SELECT 1 FROM vtqueue_job AS job INDEXED BY vtqueue_job_blocked
    WHERE {IS_BLOCKED} AND job.concurrency_key = key.value
)"""

# Of these keys the first parked job of each queue that has some, found by one seek: of those in order, or the others.
NEXT_PARKED = f"""SELECT job.rowid FROM vtqueue_job AS job INDEXED BY vtqueue_job_blocked
        WHERE {IS_BLOCKED} AND job.ordered = :ordered"""
FIRST_PARKED = f"""
WITH RECURSIVE first(key, name, handle) AS (
    SELECT own.concurrency_key, own.queue_name, own.rowid
    FROM json_each(:keys) AS key CROSS JOIN vtqueue_job AS own WHERE own.rowid = (
        {NEXT_PARKED} AND job.concurrency_key = key.value
        ORDER BY job.queue_name, job.priority DESC, job.due_at LIMIT 1
    )
    UNION ALL
    SELECT own.concurrency_key, own.queue_name, own.rowid
    FROM first CROSS JOIN vtqueue_job AS own WHERE own.rowid = (
        {NEXT_PARKED} AND job.concurrency_key = first.key AND job.queue_name > first.name
        ORDER BY job.queue_name, job.priority DESC, job.due_at LIMIT 1
    )
)"""
PARKED_IN = f"{FIRST_PARKED} SELECT json_group_array(json_array(first.key, first.name)) FROM first"

# The plus keeps the planner off the index of what is blocked, which it prefers after an ANALYZE of long ago.
STILL_BLOCKED = "+state = 'BLOCKED'"
# And the first in order of each key, if it is parked.
UNPARK_ONE = f"""
UPDATE vtqueue_job SET state = 'READY', wake_at = NULL
WHERE rowid IN (
    {FIRST_PARKED} SELECT first.handle FROM first UNION ALL SELECT {FIRST_IN_ORDER} FROM json_each(:keys) AS key
) AND {STILL_BLOCKED}"""

UNPARK = f"""
UPDATE vtqueue_job SET state = 'READY', wake_at = NULL
WHERE rowid IN (
    SELECT job.rowid FROM vtqueue_job AS job INDEXED BY vtqueue_job_blocked
    WHERE {IS_BLOCKED} AND job.concurrency_key = :key AND job.ordered = :ordered AND job.queue_name = :name
    ORDER BY job.priority DESC, job.due_at LIMIT :limit
)"""

UNPARK_ROWS = f"""
UPDATE vtqueue_job SET state = 'READY', wake_at = NULL
WHERE rowid IN (SELECT value FROM json_each(:rowids)) AND {STILL_BLOCKED}"""

# The distinct keys, each found by one seek.
NEXT_KEY = f"SELECT job.concurrency_key FROM vtqueue_job AS job INDEXED BY vtqueue_job_blocked WHERE {IS_BLOCKED}"
PARKED = f"""
WITH RECURSIVE found(key) AS (
    SELECT ({NEXT_KEY} AND job.concurrency_key > :after ORDER BY job.concurrency_key LIMIT 1)
    UNION ALL
    SELECT ({NEXT_KEY} AND job.concurrency_key > found.key ORDER BY job.concurrency_key LIMIT 1)
    FROM found WHERE found.key IS NOT NULL LIMIT :limit
)
SELECT json_group_array(json_array(found.key, first.queue_name, first.task_path, CASE WHEN first.ordered THEN (
    SELECT {IS_BLOCKED}
    FROM vtqueue_job AS job INDEXED BY vtqueue_job_key_order
    WHERE job.concurrency_key = found.key AND job.ordered > 0 AND job.finished_at IS NULL ORDER BY job.rowid LIMIT 1
) END))
FROM found CROSS JOIN vtqueue_job AS first WHERE found.key IS NOT NULL AND first.rowid = (
    SELECT job.rowid FROM vtqueue_job AS job INDEXED BY vtqueue_job_blocked
    WHERE {IS_BLOCKED} AND job.concurrency_key = found.key
    ORDER BY job.ordered, job.queue_name, job.priority DESC, job.due_at LIMIT 1
)"""

RATES = """
SELECT json_group_object(rate.key, json_array(rate.next_at, rate.interval_us))
FROM json_each(:asked, '$[3]') AS mine CROSS JOIN vtqueue_rate AS rate WHERE rate.key = mine.value"""
ALL_RATES = """
SELECT json_group_array(json_array(some.key, some.next_at, some.interval_us)) FROM (
    SELECT * FROM vtqueue_rate WHERE key > :after ORDER BY key LIMIT :limit
) AS some"""
# ``:rates``: by their intervals, so that no value is parsed again for each of its parts.
SET_RATES = """
INSERT INTO vtqueue_rate (key, next_at, interval_us)
SELECT mine.key, mine.value, CAST(pace.key AS INTEGER)
FROM json_each(:rates) AS pace CROSS JOIN json_each(pace.value) AS mine WHERE true
ON CONFLICT (key) DO UPDATE SET next_at = excluded.next_at, interval_us = excluded.interval_us"""
FORGET_RATES = "DELETE FROM vtqueue_rate WHERE key IN (SELECT value FROM json_each(:keys))"

LAST_BOOKED = f"""
SELECT json_group_object(last.rate_key, json_array(coalesce(last.wake_at, last.due_at), last.task_path))
FROM json_each(:asked, '$[4]') AS key CROSS JOIN vtqueue_job AS last WHERE last.rowid = (
    SELECT job.rowid FROM vtqueue_job AS job INDEXED BY vtqueue_job_booked
    WHERE {IS_BOOKED} AND job.rate_key = key.value ORDER BY {BOOKED_FOR} DESC LIMIT 1
)"""
BOOK = """
UPDATE vtqueue_job
SET state = 'SCHEDULED', moved_from = coalesce(moved_from, due_at), wake_at = json_extract(mine.value, '$[1]')
FROM json_each(:moments) AS mine WHERE vtqueue_job.rowid = json_extract(mine.value, '$[0]')"""
UNBOOK = f"""
UPDATE vtqueue_job SET state = 'READY', due_at = moved_from, wake_at = NULL, moved_from = NULL
WHERE rowid IN (
    SELECT job.rowid FROM vtqueue_job AS job INDEXED BY vtqueue_job_booked
    WHERE {IS_BOOKED} AND job.rate_key = :key AND {BOOKED_FOR} > :after ORDER BY {BOOKED_FOR} DESC LIMIT :limit
)"""

# One statement for all: a step takes longer in Python than in SQLite, also where it finds nothing to do (measured).
LOOK_UP = f"SELECT json_array(({HELD_OF_QUEUES}), ({HELD_OF_KEYS}), ({FIRST_OF_KEYS}), ({RATES}), ({LAST_BOOKED}))"
WITHOUT_ORDER = LOOK_UP.replace(FIRST_OF_KEYS, "json('{}')")


class SQLiteLimits(SQLiteConnection):
    """The part of an Engine that is for limits."""

    def look_up(
        self,
        *,
        queues: Collection[str] = (),
        keys: Collection[str] = (),
        first: Collection[str] = (),
        rates: Collection[str] = (),
        booked: Collection[str] = (),
    ) -> Known:
        asked = json.dumps([[*queues], [*keys], [*first], [*rates], [*booked]])
        held, running, firsts, states, moments = self._list(LOOK_UP if first else WITHOUT_ORDER, {"asked": asked})
        return Known(
            held,
            running,
            firsts,
            {key: RateState(*state) for key, state in states.items()},
            {key: Booked(*moment) for key, moment in moments.items()},
        )

    def park(self, handles: Sequence[Handle]) -> None:
        self._run(PARK, {"rowids": json.dumps(handles)})

    def unpark(self, keys: Mapping[str, int], *, ordered: bool = False) -> int:
        if not (parked := [key for (key,) in self._rows(WITH_PARKED, {"keys": json.dumps([*keys])})]):
            return 0
        kind = {"ordered": int(ordered)}
        back = self._run(UNPARK_ONE, {"keys": json.dumps(parked), **kind})
        more = [key for key, limit in keys.items() if limit > 1]
        for key, name in self._list(PARKED_IN, {"keys": json.dumps(more), **kind}) if more else ():
            back += self._run(UNPARK, {"key": key, "name": name, "limit": keys[key] - 1, **kind})
        return back

    def unpark_rows(self, handles: Sequence[Handle]) -> int:
        return self._run(UNPARK_ROWS, {"rowids": json.dumps(handles)})

    def parked(self, after: str, limit: int) -> list[Parked]:
        return [Parked(*row) for row in self._list(PARKED, {"after": after, "limit": limit})]

    def all_rates(self, after: str, limit: int) -> list[tuple[str, RateState]]:
        return [(key, RateState(*state)) for key, *state in self._list(ALL_RATES, {"after": after, "limit": limit})]

    def set_rates(self, states: Mapping[str, RateState]) -> None:
        rates: dict[int, dict[str, int]] = {}
        for key, (next_at, us) in states.items():
            rates.setdefault(us, {})[key] = next_at
        self._run(SET_RATES, {"rates": json.dumps(rates)})

    def forget_rates(self, keys: Iterable[str]) -> None:
        self._run(FORGET_RATES, {"keys": json.dumps(sorted(keys))})

    def book(self, moments: Mapping[Handle, int]) -> None:
        self._run(BOOK, {"moments": json.dumps(list(moments.items()))})

    def unbook(self, key: str, after: int, limit: int) -> int:
        return self._run(UNBOOK, {"key": key, "after": after, "limit": limit})
