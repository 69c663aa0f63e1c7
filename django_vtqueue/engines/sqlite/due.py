"""The statements that find, on SQLite, which jobs are due, and when the next one is: of all queues, or of named ones.

An index holds the READY rows in claim order, so what a claim takes is the beginning of one range. What comes later has
a ``wake_at``, and an index in that order; each claim first puts what has woken into the line.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ...core import grace
from ...core.copies import DEFAULT_COPIES, ROUNDS
from ...core.job import Due, Handle, Scope
from ...core.names import RESERVED_PREFIXES
from .connection import SQLiteConnection


@lru_cache
def scope_values(scope: Scope) -> Mapping[str, Any]:
    """Return what statements are given of a scope: each of its names once. Each claim asks for the same again."""
    names = None if scope.queues is None else json.dumps(sorted(set(scope.queues)))
    return {"raw": int(scope.raw), "names": names, "worker": scope.worker}


# The last name that begins as a reserved one does; else the name itself.
JUMPS = " ".join(f"WHEN name.value GLOB '{each}*' THEN '{each}' || char(1114111)" for each in RESERVED_PREFIXES)
LAST_LIKE_IT = f"CASE {JUMPS} ELSE name.value END"


def distinct_names(index: str, rows: str) -> str:
    """Return the distinct queue names of these rows, each found by one seek in an index that begins with the name.

    Of the names of leases, say, it has the first: no claim takes their rows, and an application may have thousands.
    """
    name = f"SELECT job.queue_name FROM vtqueue_job AS job INDEXED BY {index} WHERE {rows}"
    return f"""(
    WITH RECURSIVE name(value) AS (
        SELECT ({name} AND job.queue_name >= '' ORDER BY job.queue_name LIMIT 1)
        UNION ALL
        SELECT ({name} AND job.queue_name > {LAST_LIKE_IT} ORDER BY job.queue_name LIMIT 1)
        FROM name WHERE name.value IS NOT NULL
    )
    SELECT value FROM name WHERE value IS NOT NULL
)"""


IS_READY, IS_ASIDE = "job.state = 'READY'", "job.wake_at IS NOT NULL"
NAMES_READY = distinct_names("vtqueue_job_queue", IS_READY)
NAMES_ASIDE = distinct_names("vtqueue_job_aside", IS_ASIDE)
NAMES_HELD = distinct_names("vtqueue_job_held", "job.lease_until IS NOT NULL")
NOT_RESERVED = " AND ".join(f"value NOT GLOB '{name}*'" for name in RESERVED_PREFIXES)
QUEUE_NAMES = " UNION ALL ".join(
    f"SELECT value FROM (SELECT value FROM {names} WHERE {NOT_RESERVED} LIMIT :limit)"
    for names in (NAMES_READY, NAMES_ASIDE, NAMES_HELD)
)

OF_KIND = "(job.task_path = '') = :raw"
OF_ALL, OF_ONE, OF_NAME = OF_KIND, f"job.queue_name = :name AND {OF_KIND}", f"job.queue_name = name.value AND {OF_KIND}"

# What has woken: of all queues, or of some.
WOKEN_OF_ALL = f"""
    SELECT job.rowid FROM vtqueue_job AS job INDEXED BY vtqueue_job_wake
    WHERE {OF_ALL} AND job.wake_at <= :now ORDER BY job.wake_at LIMIT :limit"""
WOKEN_NAMED = f"""
    SELECT job.rowid FROM json_each(:names) AS name CROSS JOIN vtqueue_job AS job INDEXED BY vtqueue_job_aside
    WHERE {OF_NAME} AND job.wake_at <= :now LIMIT :limit"""
WAKE = "UPDATE vtqueue_job SET state = 'READY', due_at = wake_at, wake_at = NULL WHERE rowid IN ({})"
WAKE_ALL, WAKE_NAMED = WAKE.format(WOKEN_OF_ALL), WAKE.format(WOKEN_NAMED)
ANY_TO_WAKE, ANY_NAMED_TO_WAKE = f"SELECT EXISTS ({WOKEN_OF_ALL})", f"SELECT EXISTS ({WOKEN_NAMED})"

# A clock that was ahead may have put what is due later into the line: it is left there until its time.
DUE = "job.due_at <= :now"
MAY_BE_LIMITED = "(job.concurrency_key IS NOT NULL OR job.rate_key IS NOT NULL)"
FRESH = "job.claims = 0 AND job.max_attempts <> 1 AND job.start_by IS NULL AND job.unique_until <> 'start'"
DUE_VALUES = f"""job.rowid, job.priority, job.due_at, job.claims, {FRESH} AS fresh, job.task_path, job.start_by,
    job.queue_name, job.concurrency_key, job.rate_key, job.moved_from,
    job.ordered, {MAY_BE_LIMITED} OR :named AS with_keys"""
SHORT_ROW = "due.rowid, due.priority, due.due_at, due.claims, due.fresh, due.task_path, due.start_by"
DUE_ROW = f"""CASE WHEN due.with_keys
    THEN json_array({SHORT_ROW}, due.queue_name, due.concurrency_key, due.rate_key, due.moved_from, due.ordered)
    ELSE json_array({SHORT_ROW}) END"""
ORDER = "ORDER BY job.priority DESC, job.due_at, job.rowid"


def first_ready(index: str, rows: str, values: str = "job.rowid", limit: str = ":limit") -> str:
    """Return the query of the first due rows among READY ones; the index has these in claim order."""
    return f"""
    SELECT {values} FROM vtqueue_job AS job INDEXED BY {index}
    WHERE {IS_READY} AND {rows} AND {DUE} {ORDER} LIMIT {limit}"""


def due_statement(found: str) -> str:
    """Return the statement that finds due rows, as one value."""
    return f"SELECT json_group_array({DUE_ROW}) FROM ({found}\n) AS due"


DUE_ALL = due_statement(first_ready("vtqueue_job_ready", OF_ALL, DUE_VALUES))
DUE_OF_ONE = due_statement(first_ready("vtqueue_job_queue", OF_ONE, DUE_VALUES))

# Several queues are merged: the first row of each, and for each row that is taken the next one of its queue, by one
# seek: of the same instant, else a later one, else one of a lower priority.
NEXT = f"""
            SELECT job.rowid FROM vtqueue_job AS job INDEXED BY vtqueue_job_queue
            WHERE {IS_READY} AND job.queue_name = line.name AND {OF_KIND}"""
NEXT_OF_QUEUE = f"""coalesce(
            ({NEXT} AND job.priority = line.priority AND job.due_at = line.due_at AND job.rowid > line.handle
            ORDER BY job.rowid LIMIT 1),
            ({NEXT} AND job.priority = line.priority AND job.due_at > line.due_at AND {DUE}
            ORDER BY job.due_at, job.rowid LIMIT 1),
            ({NEXT} AND job.priority < line.priority AND {DUE} {ORDER} LIMIT 1)
        )"""
PLACE = "own.queue_name, own.priority, own.due_at, own.rowid"
DUE_NAMED = f"""
WITH RECURSIVE line(name, priority, due_at, handle) AS (
    SELECT {PLACE} FROM json_each(:names) AS name CROSS JOIN vtqueue_job AS own
    WHERE own.rowid = ({first_ready("vtqueue_job_queue", OF_NAME, limit="1")})
    UNION ALL
    SELECT {PLACE} FROM line CROSS JOIN vtqueue_job AS own WHERE own.rowid = {NEXT_OF_QUEUE}
    ORDER BY 2 DESC, 3, 4 LIMIT :limit
)
{due_statement(f"SELECT {DUE_VALUES} FROM line CROSS JOIN vtqueue_job AS job WHERE job.rowid = line.handle")}"""

# Of all queues and kinds: it finds what no claim looks at, as where a queue has no worker. A job that has used an
# attempt has no start_by any more.
OVERDUE = f"""
SELECT json_group_array({DUE_ROW}) FROM (
    SELECT {DUE_VALUES} FROM vtqueue_job AS job INDEXED BY vtqueue_job_start_by
    WHERE job.finished_at IS NULL AND job.lease_until IS NULL AND job.start_by <= :now
    ORDER BY job.start_by LIMIT :limit
) AS due"""

OVERDUE_AMONG = f"""
SELECT json_group_array({DUE_ROW}) FROM (
    SELECT {DUE_VALUES} FROM vtqueue_job AS job
    WHERE job.id IN (SELECT value FROM json_each(:ids)) AND +job.finished_at IS NULL AND +job.start_by <= :now
      AND (job.lease_until IS NULL OR job.worker_id = '' AND job.lease_until <= :now)
) AS due"""


def earliest(ready: str, aside: str, rows: str) -> str:
    """Return the query of the earliest time among these rows: of the first that is due, in the line, or to wake."""
    first = f"SELECT job.due_at FROM vtqueue_job AS job INDEXED BY {ready} WHERE {IS_READY} AND {rows}"
    return f"""
    SELECT min(found.value) FROM (
        SELECT coalesce(({first} AND {DUE} {ORDER} LIMIT 1), ({first} {ORDER} LIMIT 1)) AS value
        UNION ALL
        SELECT (SELECT job.wake_at FROM vtqueue_job AS job INDEXED BY {aside}
            WHERE {rows} AND {IS_ASIDE} ORDER BY job.wake_at LIMIT 1)
    ) AS found"""


EARLIEST_ALL = earliest("vtqueue_job_ready", "vtqueue_job_wake", OF_ALL)
EARLIEST_NAMED = f"""
SELECT min(({earliest("vtqueue_job_queue", "vtqueue_job_aside", OF_NAME)})) FROM json_each(:names) AS name"""

# Rows whose lease has ended, of the queues that have any: if the holder has had the time to renew it (core/grace.py),
# or gave it back as it ended (no worker_id).
#
# The hint is always true, but declared improbable, twice, so that the planner of SQLite (3.38 to 3.40) expects hardly
# any names. Else, after ANALYZE, it expects four billion, and puts a Bloom filter before the index of the jobs. That is
# built from all rows for each statement, and, because the index has an expression, it is built wrong.
NAME_HINT = "likelihood(name.value IS NOT NULL, 1e-9) AND likelihood(name.value IS NOT NULL, 1e-9)"
GRACE = f"min(job.lease_us / {grace.GRACE_DIVISOR}, :grace)"
IN_SCOPE = "(:names IS NULL OR name.value IN (SELECT value FROM json_each(:names)))"
ENDED = f"""job.lease_until <= :now
      AND (job.worker_id IN ('', :own) OR job.lease_until + {GRACE} <= :now
          AND job.lease_until <= :now - :free AND NOT EXISTS (
          SELECT 1 FROM json_each(:gaps) AS gap
          WHERE json_extract(gap.value, '$[0]') < min(job.lease_us / {grace.REST_DIVISOR}, :rest)
            AND json_extract(gap.value, '$[1]') > job.lease_us / {grace.GAP_DIVISOR}
      ))"""
# With overflow the end of a lease does not end the attempt: the job reappears, and a worker that does not run it yet
# gets a copy. Once as many copies run as are allowed, the holder of the last one renews the lease. If that lease ends
# too, the holder is gone, and one more copy replaces it. After as many replacements as copies may run, the lease ends
# as any other does: the attempts are used up at last.
REAPPEARS = f"""job.copies IS NOT NULL AND job.started_at IS NOT NULL AND job.cancelled_at IS NULL AND CASE
          WHEN json_valid(job.copies) THEN (
              SELECT count(*) < {ROUNDS} * coalesce(max(json_extract(copy.value, '$[3]')), {DEFAULT_COPIES})
              FROM json_each(job.copies) AS copy
          ) ELSE 0
      END"""
NOT_RUN_BY_WORKER = "(job.copies IS NULL OR :worker = '' OR instr(job.copies, json_quote(:worker)) = 0)"
ENDED_LEASES = f"""
SELECT json_group_array(ended.rowid) FROM (
    SELECT job.rowid
    FROM {NAMES_HELD} AS name CROSS JOIN vtqueue_job AS job INDEXED BY vtqueue_job_held
    WHERE {NAME_HINT} AND {IN_SCOPE} AND {OF_NAME} AND {ENDED}
      AND NOT (:overflow AND {REAPPEARS})
    LIMIT :limit
) AS ended"""

# The time at which the first of these leases may be taken, or a bit later: half a second at the most.
FIRST_LEASE_END = f"""
SELECT min((
    SELECT job.lease_until + {GRACE} FROM vtqueue_job AS job INDEXED BY vtqueue_job_held
    WHERE {OF_NAME} AND job.lease_until IS NOT NULL AND {NOT_RUN_BY_WORKER} ORDER BY job.lease_until LIMIT 1
)) FROM {NAMES_HELD} AS name WHERE {IN_SCOPE}"""


class SQLiteDue(SQLiteConnection):
    """The part of an Engine that finds what may be claimed: what is due, whose lease has ended, and when."""

    def queue_names(self, limit: int | None = None) -> list[str]:
        rows = self._rows(QUEUE_NAMES, {"limit": -1 if limit is None else limit})
        return sorted({name for (name,) in rows})[:limit]

    def first_due(self, scope: Scope) -> int | None:
        values = {**scope_values(scope), "now": self.now()}
        due_at = None
        if scope.jobs_left != 0:
            due_at = self._value(EARLIEST_ALL if scope.queues is None else EARLIEST_NAMED, values)
        if due_at is not None:
            due_at = max(due_at, scope.not_before)
        expiry = self._value(FIRST_LEASE_END, {**values, "grace": grace.GRACE})
        return min((instant for instant in (due_at, expiry) if instant is not None), default=None)

    def ended(
        self, scope: Scope, limit: int, now: int, grace_period: grace.GracePeriod, *, overflow: bool = False
    ) -> list[Handle]:
        values = {**scope_values(scope), **grace_period._asdict(), "rest": grace.REST, "now": now, "limit": limit}
        return self._list(ENDED_LEASES, {**values, "overflow": int(overflow)})

    def wake(self, scope: Scope, now: int, limit: int) -> int:
        return self._run(WAKE_ALL if scope.queues is None else WAKE_NAMED, self._woken(scope, now, limit))

    def to_wake(self, scope: Scope, now: int, limit: int) -> int:
        sql = ANY_TO_WAKE if scope.queues is None else ANY_NAMED_TO_WAKE
        return int(self._value(sql, self._woken(scope, now, limit)))

    def _woken(self, scope: Scope, now: int, limit: int) -> Mapping[str, Any]:
        return {**scope_values(scope), "now": now, "limit": limit}

    def due(self, scope: Scope, limit: int, now: int, *, named: bool = False) -> list[Due]:
        values = {**scope_values(scope), "now": now, "limit": limit, "named": int(named)}
        if scope.queues is None:
            found = self._list(DUE_ALL, values)
        elif len(scope.queues) == 1:
            found = self._list(DUE_OF_ONE, {**values, "name": scope.queues[0]})
        else:
            found = self._list(DUE_NAMED, values)
        return [Due(*row) for row in found]

    def overdue(self, limit: int, now: int) -> list[Due]:
        return [Due(*row) for row in self._list(OVERDUE, {"now": now, "limit": limit, "named": 0})]

    def overdue_among(self, job_ids: Sequence[str], now: int) -> list[Due]:
        values = {"ids": json.dumps(job_ids), "now": now, "named": 0}
        return [Due(*row) for row in self._list(OVERDUE_AMONG, values)]
