"""The statements that find, on SQLite, which jobs are due, and when the next one is: of all queues, or of named ones.

A walk over the rows in claim order would visit every scheduled job of a higher priority. So the walk goes over the
distinct priorities of the waiting jobs, highest first, each found by one seek; inside a priority the due jobs are a
range of ``due_at``. The order comes from the loops (CROSS JOIN keeps them as written) and from the indexes: an ORDER BY
would sort all due rows before the LIMIT.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ...core import grace
from ...core.copies import DEFAULT_COPIES, ROUNDS
from ...core.job import Due, HiddenRow, Scope
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


NAMES_WAITING = distinct_names("vtqueue_job_queue", "job.finished_at IS NULL AND job.lease_until IS NULL")
NAMES_HIDDEN = distinct_names("vtqueue_job_hidden", "job.lease_until IS NOT NULL")
NOT_RESERVED = " AND ".join(f"value NOT GLOB '{name}*'" for name in RESERVED_PREFIXES)
QUEUE_NAMES = f"""
SELECT value FROM (SELECT value FROM {NAMES_WAITING} WHERE {NOT_RESERVED} LIMIT :limit)
UNION ALL SELECT value FROM (SELECT value FROM {NAMES_HIDDEN} WHERE {NOT_RESERVED} LIMIT :limit)"""

WAITING = "job.finished_at IS NULL AND job.lease_until IS NULL AND (job.task_path = '') = :raw"
OF_NAME = f"job.queue_name = name.value AND {WAITING}"
OF_BEST = f"job.queue_name = best.name AND {WAITING}"


def levels(index: str, rows: str, first: str = "") -> str:
    """Return the CTE ``level(priority)`` over these rows; ``first``: the priority to begin with, if not the highest."""
    highest = f"SELECT job.priority FROM vtqueue_job AS job INDEXED BY {index} WHERE {rows}"
    order = "ORDER BY job.priority DESC LIMIT 1"
    return f"""
    WITH RECURSIVE level(priority) AS (
        SELECT {first or f"({highest} {order})"}
        UNION ALL
        SELECT ({highest} AND job.priority < level.priority {order}) FROM level WHERE level.priority IS NOT NULL
    )"""


LEVELS = levels("vtqueue_job_due", WAITING)
LEVELS_OF_NAME = levels("vtqueue_job_queue", OF_NAME)
LEVELS_OF_BEST = levels("vtqueue_job_queue", OF_BEST, first="best.priority")

# Always true, but declared improbable, twice, so that the planner of SQLite (3.38 to 3.40) expects hardly any levels.
# Else, after ANALYZE, it expects four billion, and puts a Bloom filter before the index of the jobs. That is built from
# all rows for each statement, and, because the index has an expression, it is built wrong: nothing would be due.
LEVEL_HINT = "likelihood(level.priority IS NOT NULL, 1e-9) AND likelihood(level.priority IS NOT NULL, 1e-9)"

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


def due_statement(index: str, rows: str) -> str:
    """Return the statement that finds which of these rows are due; the index has them in claim order."""
    return f"""{levels(index, rows)}
SELECT json_group_array({DUE_ROW}) FROM (
    SELECT {DUE_VALUES}
    FROM level CROSS JOIN vtqueue_job AS job INDEXED BY {index}
    WHERE {LEVEL_HINT} AND {rows} AND job.priority = level.priority AND {DUE}
    LIMIT :limit
) AS due"""


DUE_ALL = due_statement("vtqueue_job_due", WAITING)
DUE_OF_ONE = due_statement("vtqueue_job_queue", f"job.queue_name = :name AND {WAITING}")

# A merge: ``best`` is a priority queue in claim order (the meaning of ORDER BY in a recursive CTE), with the first due
# row of each name at its start. Each row that leaves it belongs to the result, and the next row of its name takes its
# place: the next of the same instant, else of the same priority, else the first of a lower priority. Two ranges find
# the first two, for with one comparison of row values SQLite would walk over all rows of an instant again and again.
# The first range has no DUE: with it SQLite would walk a range of due_at instead of using the equality.
DUE_NAMED = f"""
WITH RECURSIVE best(name, rowid, priority, due_at) AS (
    SELECT name.value, job.rowid, job.priority, job.due_at
    FROM json_each(:names) AS name CROSS JOIN vtqueue_job AS job
    WHERE job.rowid = (
        {LEVELS_OF_NAME}
        SELECT job.rowid FROM level CROSS JOIN vtqueue_job AS job INDEXED BY vtqueue_job_queue
        WHERE {LEVEL_HINT} AND {OF_NAME} AND job.priority = level.priority AND {DUE} LIMIT 1
    )
    UNION ALL
    SELECT best.name, job.rowid, job.priority, job.due_at
    FROM best CROSS JOIN vtqueue_job AS job
    WHERE job.rowid = coalesce((
        SELECT job.rowid FROM vtqueue_job AS job INDEXED BY vtqueue_job_queue
        WHERE {OF_BEST} AND job.priority = best.priority AND job.due_at = best.due_at
          AND job.rowid > best.rowid LIMIT 1
    ), (
        SELECT job.rowid FROM vtqueue_job AS job INDEXED BY vtqueue_job_queue
        WHERE {OF_BEST} AND job.priority = best.priority AND job.due_at > best.due_at AND {DUE} LIMIT 1
    ), (
        {LEVELS_OF_BEST}
        SELECT job.rowid FROM level CROSS JOIN vtqueue_job AS job INDEXED BY vtqueue_job_queue
        WHERE {LEVEL_HINT} AND level.priority < best.priority
          AND {OF_BEST} AND job.priority = level.priority AND {DUE} LIMIT 1
    ))
    ORDER BY 3 DESC, 4, 2
    LIMIT :limit
)
SELECT json_group_array({DUE_ROW}) FROM (
    SELECT {DUE_VALUES} FROM best CROSS JOIN vtqueue_job AS job WHERE job.rowid = best.rowid
) AS due"""

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
    WHERE job.id IN (SELECT value FROM json_each(:ids)) AND +job.state = 'READY' AND +job.start_by <= :now
      AND (job.lease_until IS NULL OR job.lease_until <= :now)
) AS due"""

WAITING_AT_LEVEL = f"{WAITING} AND job.priority = level.priority"
EARLIEST_ALL = f"""{LEVELS}
SELECT min((
    SELECT job.due_at FROM vtqueue_job AS job INDEXED BY vtqueue_job_due
    WHERE {WAITING_AT_LEVEL} ORDER BY job.due_at LIMIT 1
)) FROM level WHERE level.priority IS NOT NULL"""

EARLIEST_NAMED = f"""
SELECT min((
    {LEVELS_OF_NAME}
    SELECT min((
        SELECT job.due_at FROM vtqueue_job AS job INDEXED BY vtqueue_job_queue
        WHERE job.queue_name = name.value AND {WAITING_AT_LEVEL} ORDER BY job.due_at LIMIT 1
    )) FROM level WHERE level.priority IS NOT NULL
)) FROM json_each(:names) AS name"""

# Hidden rows that may become visible again, of the queues that have any: rows that were given back and are hidden for a
# moment (no worker_id), and rows whose lease has ended, if the holder has had the time to renew it (core/grace.py).
NAME_HINT = LEVEL_HINT.replace("level.priority", "name.value")
GRACE = f"min(job.lease_us / {grace.GRACE_DIVISOR}, :grace)"
HIDDEN_OF_NAME = "job.queue_name = name.value AND (job.task_path = '') = :raw"
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
SELECT json_group_array(json_array(ended.rowid, ended.lease_ended)) FROM (
    SELECT job.rowid, job.state = 'RUNNING' AS lease_ended
    FROM {NAMES_HIDDEN} AS name CROSS JOIN vtqueue_job AS job INDEXED BY vtqueue_job_hidden
    WHERE {NAME_HINT} AND {IN_SCOPE} AND {HIDDEN_OF_NAME} AND {ENDED}
      AND NOT (:overflow AND {REAPPEARS})
    LIMIT :limit
) AS ended"""

# The time at which the first of these leases may be taken, or a bit later: half a second at the most.
FIRST_LEASE_END = f"""
SELECT min((
    SELECT job.lease_until + {GRACE} FROM vtqueue_job AS job INDEXED BY vtqueue_job_hidden
    WHERE {HIDDEN_OF_NAME} AND job.lease_until IS NOT NULL AND {NOT_RUN_BY_WORKER} ORDER BY job.lease_until LIMIT 1
)) FROM {NAMES_HIDDEN} AS name WHERE {IN_SCOPE}"""


class SQLiteDue(SQLiteConnection):
    """The part of an Engine that finds what may be claimed: what is due, whose lease has ended, and when."""

    def queue_names(self, limit: int | None = None) -> list[str]:
        rows = self._rows(QUEUE_NAMES, {"limit": -1 if limit is None else limit})
        return sorted({name for (name,) in rows})[:limit]

    def first_due(self, scope: Scope) -> int | None:
        values = scope_values(scope)
        due_at = None
        if scope.jobs_left != 0:
            due_at = self._value(EARLIEST_ALL if scope.queues is None else EARLIEST_NAMED, values)
        if due_at is not None:
            due_at = max(due_at, scope.not_before)
        expiry = self._value(FIRST_LEASE_END, {**values, "grace": grace.GRACE})
        return min((instant for instant in (due_at, expiry) if instant is not None), default=None)

    def ended(
        self, scope: Scope, limit: int, now: int, grace_period: grace.GracePeriod, *, overflow: bool = False
    ) -> list[HiddenRow]:
        values = {**scope_values(scope), **grace_period._asdict(), "rest": grace.REST, "now": now, "limit": limit}
        return [HiddenRow(*row) for row in self._list(ENDED_LEASES, {**values, "overflow": int(overflow)})]

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
