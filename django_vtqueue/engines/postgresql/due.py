"""The statements that find, on PostgreSQL, which jobs are due, and when the next one is: of all queues, or named ones.

An index holds the READY rows in claim order, so what a claim takes is the beginning of one range. Each claim first puts
jobs into the line whose moment has come (aside.py).

While another transaction is open for long, what was claimed since it began stays in the indexes, before the rows that
are READY. Then a claim begins where the last ones have found something (``places.py``), in each of the 201 priorities.

A claim locks the rows that it finds, and passes over those that another one has locked. In the same way it passes over
jobs with a key about whose limit another transaction decides: so it never waits for such a key, and no two claims
count the same places. These locks end with the transaction.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ...core import grace
from ...core.clock import LAST_INSTANT, SECOND
from ...core.copies import DEFAULT_COPIES, ROUNDS
from ...core.job import Due, Handle, Scope
from ...core.names import is_reserved
from .aside import OF_KIND, PostgreSQLAside, Served, scope_values
from .limits import OF_CONCURRENCY, OF_RATE, lock_of
from .places import DueWalk, Walk
from .statements import hexed, hidden

WIDER, BESIDE = 2, 100  # rows that are looked at for each that is wanted, and beside these: other claims lock some
MOST_NAMES = 20  # of a scope whose walk begins at places: it seeks 201 of them for each name


def distinct_names(rows: str) -> str:
    """Return the distinct queue names of these rows, each found by one seek in an index that begins with the name."""
    name = f"SELECT job.queue_name FROM vtqueue_job AS job WHERE {rows}"
    return f"""(
    WITH RECURSIVE name(value) AS (
        (SELECT ({name} ORDER BY job.queue_name LIMIT 1))
        UNION ALL
        SELECT ({name} AND job.queue_name > name.value ORDER BY job.queue_name LIMIT 1)
        FROM name WHERE name.value IS NOT NULL
    )
    SELECT value FROM name WHERE value IS NOT NULL
)"""


# A comparison with the name is what the index of names wants; no claim from all queues may use that one.
NAMES_READY = distinct_names("job.queue_name >= '' AND job.state = 'READY'")
NAMES_ASIDE = distinct_names("job.queue_name >= '' AND job.wake_at IS NOT NULL")
NAMES_HELD = distinct_names("job.lease_until IS NOT NULL")
QUEUE_NAMES = f"""
SELECT value FROM {NAMES_READY} AS ready UNION SELECT value FROM {NAMES_ASIDE} AS aside
UNION SELECT value FROM {NAMES_HELD} AS held"""

READY = f"job.state = 'READY' AND {OF_KIND}"
OF_ALL = f"{READY} AND job.priority >= -100"  # which the index of all queues wants; no other query may use that one
OF_NAME = f"job.queue_name = name.value AND {READY}"

DUE = "job.due_at <= %(now)s"
FRESH = "job.claims = 0 AND job.max_attempts <> 1 AND job.start_by IS NULL AND job.unique_until <> 'start'"
DUE_VALUES = f"""{hexed("job.id")}, job.priority, job.due_at, job.claims, ({FRESH})::int, job.task_path, job.start_by,
    job.queue_name, job.concurrency_key, job.rate_key, job.moved_from, job.ordered::int"""
FREE = f"""(job.concurrency_key IS NULL OR pg_try_advisory_xact_lock({lock_of(OF_CONCURRENCY, "job.concurrency_key")}))
      AND (job.rate_key IS NULL OR pg_try_advisory_xact_lock({lock_of(OF_RATE, "'key:' || job.rate_key")}))"""
ORDER = "ORDER BY job.priority DESC, job.due_at, job.id"

Search = Callable[[str, str, str, str], str]  # see from_first


def from_first(values: str, rows: str, limit: str, lock: str = "{lock}") -> str:
    """Return the query of the first due rows among READY ones, which an index has in claim order."""
    return f"""
    SELECT {values} FROM vtqueue_job AS job
    WHERE {rows} AND {DUE}{"{free}" if lock else ""} {ORDER} LIMIT {limit} {lock}"""


# The place from which on to look, in each priority.
LEVELS = """(
    SELECT * FROM unnest(%(levels)s::smallint[], %(moments)s::bigint[], %(handles)s::uuid[])
) AS level(priority, due_at, id)"""


def from_places(values: str, rows: str, limit: str, lock: str = "{lock}") -> str:
    """Return the query of the first due rows behind the places that are given."""
    return f"""
    SELECT found.* FROM {LEVELS} CROSS JOIN LATERAL (
        SELECT {values} FROM vtqueue_job AS job
        WHERE {rows} AND job.priority = level.priority AND (job.due_at, job.id) >= (level.due_at, level.id)
          AND {DUE}{"{free}" if lock else ""} ORDER BY job.due_at, job.id LIMIT {limit} {lock}
    ) AS found WHERE level.due_at <= %(now)s LIMIT {limit}"""


def due_named(search: Search) -> str:
    """Return the statement that finds what is due in several queues.

    It finds the names with the best first rows, of each of these its best rows, and the best of all, sorted. Then row
    after row is locked until there are enough; as one join the planner may lock the keys of all rows of the table.
    ``wider``: other claims may have locked the first ones.
    """
    place = "job.id, job.priority, job.due_at"
    return f"""
WITH shown AS MATERIALIZED (
    SELECT name.value FROM unnest(%(names)s::text[]) AS name(value)
    CROSS JOIN LATERAL ({search(place, OF_NAME, "1", "")}) AS job
    {ORDER} LIMIT %(wider)s
), best AS MATERIALIZED (
    SELECT job.* FROM shown AS name CROSS JOIN LATERAL ({search(place, OF_NAME, "%(wider)s", "")}) AS job
    {ORDER} LIMIT %(wider)s
)
SELECT due.* FROM best CROSS JOIN LATERAL (
    SELECT {DUE_VALUES} FROM vtqueue_job AS job
    WHERE job.id = best.id AND {hidden(f"{READY} AND {DUE}")}{{free}} LIMIT 1 {{lock}}
) AS due LIMIT %(limit)s"""


# Of all queues and kinds, for what no claim comes across: a job that has started in time has no start_by any more.
OVERDUE = f"""
SELECT {DUE_VALUES} FROM vtqueue_job AS job
WHERE job.finished_at IS NULL AND job.lease_until IS NULL AND job.start_by <= %(now)s
ORDER BY job.start_by LIMIT %(limit)s {{lock}}"""

OVERDUE_AMONG = f"""
SELECT {DUE_VALUES} FROM vtqueue_job AS job
WHERE job.id = ANY(%(ids)s::uuid[]) AND {hidden("job.finished_at IS NULL AND job.start_by <= %(now)s")}
  AND (job.lease_until IS NULL OR job.worker_id = '' AND job.lease_until <= %(now)s)
ORDER BY job.id {{lock}}"""

LOCK = "FOR UPDATE OF job SKIP LOCKED"


@lru_cache
def locking(sql: str, claiming: bool) -> str:
    """Return a statement of this file; ``claiming``: it locks what it finds, until the transaction ends."""
    return sql.format(free=f" AND {FREE}" if claiming else "", lock=LOCK if claiming else "")


def earliest(rows: str, search: Search) -> str:
    """Return the query of the time of the first of these rows that is due; from the first row on, of the first at all.

    That a READY row is due later is the work of a clock that was ahead.
    """
    due = f"({search('job.due_at', rows, '1', '')})"
    later = f"(SELECT job.due_at FROM vtqueue_job AS job WHERE {rows} {ORDER} LIMIT 1)"
    return due if search is from_places else f"coalesce({due}, {later})"


class Walks(NamedTuple):
    """The statements that walk over what waits: what is due, of all queues, of one, of several; the earliest times."""

    all: str
    one: str
    named: str
    earliest: str
    earliest_named: str

    def due_of(self, scope: Scope) -> str:
        """Return the statement that finds what is due in a scope."""
        if scope.queues is None:
            return self.all
        return self.one if len(scope.queues) == 1 else self.named

    def earliest_of(self, scope: Scope) -> str:
        """Return the statement that finds the earliest time in a scope."""
        return self.earliest if scope.queues is None else self.earliest_named


def walks(search: Search) -> Walks:
    """Return the statements that begin at the first rows, or at places."""
    of_one = f"job.queue_name = %(name)s AND {READY}"
    return Walks(
        search(DUE_VALUES, OF_ALL, "%(limit)s", "{lock}"),
        search(DUE_VALUES, of_one, "%(limit)s", "{lock}"),
        due_named(search),
        f"SELECT {earliest(OF_ALL, search)}",
        f"SELECT min({earliest(OF_NAME, search)}) FROM unnest(%(names)s::text[]) AS name(value)",
    )


SEARCH_FROM_FIRST, SEARCH_FROM_PLACES = walks(from_first), walks(from_places)

# Rows whose lease has ended, of the queues that have any: if the holder has had the time to renew it (core/grace.py),
# or gave it back as it ended (no worker_id).
GRACE = f"least(job.lease_us / {grace.GRACE_DIVISOR}, %(grace)s)"
HELD_OF_NAME = f"job.queue_name = name.value AND {OF_KIND}"
IN_SCOPE = "(%(names)s::text[] IS NULL OR name.value = ANY(%(names)s::text[]))"
ENDED = f"""job.lease_until <= %(now)s
      AND (job.worker_id IN ('', %(own)s) OR job.lease_until <= %(now)s - {GRACE}
          AND job.lease_until <= %(now)s::bigint - %(free)s::bigint AND NOT EXISTS (
          SELECT 1 FROM json_array_elements(%(gaps)s::json) AS gap(value)
          WHERE (gap.value ->> 0)::float8 < least(job.lease_us / {grace.REST_DIVISOR}, %(rest)s)
            AND (gap.value ->> 1)::float8 > job.lease_us / {grace.GAP_DIVISOR}
      ))"""
# With overflow the end of a lease does not end the attempt; see the same condition in engines/sqlite/due.py.
REAPPEARS = f"""(job.copies IS NOT NULL AND job.started_at IS NOT NULL AND job.cancelled_at IS NULL AND (
          SELECT count(*) < {ROUNDS} * coalesce(max((copy.value ->> 3)::int), {DEFAULT_COPIES})
          FROM json_each(job.copies::json) AS copy
      ))"""
NOT_RUN_BY_WORKER = """(job.copies IS NULL OR %(worker)s = ''
      OR strpos(job.copies, to_json(%(worker)s::text)::text) = 0)"""


def of_held(conditions: str) -> str:
    """Return the FROM and the WHERE of held rows of a scope whose lease has ended."""
    return f"""
FROM {NAMES_HELD} AS name CROSS JOIN LATERAL (
    SELECT job.* FROM vtqueue_job AS job
    WHERE {IN_SCOPE} AND {HELD_OF_NAME} AND {ENDED} AND {conditions}"""


ENDED_LEASES = f"""
SELECT {hexed("ended.id")}
{of_held(f"NOT (%(overflow)s AND {REAPPEARS})")}{{free}} LIMIT %(limit)s {{lock}}
) AS ended LIMIT %(limit)s"""

# Only what runs has an ended lease here, so hardly more rows than there are slots: they may be sorted.
REAPPEARED = f"""
SELECT {hexed("found.id")}, found.priority, found.due_at, found.claims, 0, found.task_path
{of_held(f"{REAPPEARS} AND {NOT_RUN_BY_WORKER}")}
    {ORDER} LIMIT %(limit)s {{lock}}
) AS found ORDER BY found.priority DESC, found.due_at, found.id LIMIT %(limit)s"""

# The time at which the first of these leases has ended, and may be taken. One that a person has set may be so late that
# no number of the database is beyond it.
FIRST_LEASE_END = f"""
SELECT min((
    SELECT least(job.lease_until, {LAST_INSTANT}) + {GRACE} FROM vtqueue_job AS job
    WHERE {HELD_OF_NAME} AND job.lease_until IS NOT NULL AND {NOT_RUN_BY_WORKER} ORDER BY job.lease_until LIMIT 1
)) FROM {NAMES_HELD} AS name WHERE {IN_SCOPE}"""


class PostgreSQLDue(PostgreSQLAside):
    """The part of an Engine that finds what may be claimed: what is due, whose lease has ended, and when."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._due: dict[Served, DueWalk] = defaultdict(self._new_due_walk)
        self._held: dict[Served, Walk] = defaultdict(self._new_held_walk)

    def search_all(self) -> None:
        super().search_all()
        self._due.clear()
        self._held.clear()

    def _walks(self, scope: Scope) -> tuple[DueWalk, Walk]:
        """Return the two walks of a scope: over what is due, and over what is held.

        Only a control loop has walks that rest, since it goes on with them; other code claims once and wants all.
        """
        if self.traced or len(scope.queues or ()) > MOST_NAMES:
            return self._new_due_walk(), self._new_held_walk()
        served = scope.queues, scope.raw
        return self._due[served], self._held[served]

    def _new_due_walk(self) -> DueWalk:
        return DueWalk(lambda: self._read("vtqueue_job_ready", "vtqueue_job_queue"))

    def _new_held_walk(self) -> Walk:
        return Walk(lambda: self._read("vtqueue_job_held"))

    def queue_names(self, limit: int | None = None) -> list[str]:
        # Sorted here: the database may have another order of letters.
        return sorted(name for (name,) in self._rows(QUEUE_NAMES) if not is_reserved(name))[:limit]

    def first_due(self, scope: Scope) -> int | None:
        due_walk, held = walks = self._walks(scope)
        instants = [] if scope.jobs_left == 0 else [self._earliest(scope, due_walk)]
        if not held.rests():
            values = {**scope_values(scope), "grace": grace.GRACE}
            instants.append(held.made(lambda: self._value(FIRST_LEASE_END, values)))
        now = self.now()
        instants += [now + round(seconds * SECOND) for walk in walks if (seconds := walk.rests())]
        return min((instant for instant in instants if instant is not None), default=None)

    def _earliest(self, scope: Scope, walk: DueWalk) -> int | None:
        values = {**scope_values(scope), "now": self.now()}
        if walk.rests():
            ready = self._value(SEARCH_FROM_PLACES.earliest_of(scope), {**values, **walk.given()})
        else:
            ready = walk.made(lambda: self._value(SEARCH_FROM_FIRST.earliest_of(scope), values))
        moments = ready, self._first_to_wake(scope)
        due_at = min((instant for instant in moments if instant is not None), default=None)
        return None if due_at is None else max(due_at, scope.not_before)

    def ended(
        self, scope: Scope, limit: int, now: int, grace_period: grace.GracePeriod, *, overflow: bool = False
    ) -> list[Handle]:
        _, walk = self._walks(scope)
        if walk.rests():
            return []
        values = {**scope_values(scope), **grace_period._asdict(), "rest": grace.REST, "now": now, "limit": limit}
        values["overflow"] = overflow
        return [handle for (handle,) in walk.made(lambda: self._found(ENDED_LEASES, values))]

    def due(self, scope: Scope, limit: int, now: int, *, named: bool = False) -> list[Due]:
        values = {**scope_values(scope), "now": now, "limit": limit, "wider": WIDER * limit + BESIDE}
        if scope.queues and len(scope.queues) == 1:
            values["name"] = scope.queues[0]
        walk, _ = self._walks(scope)
        if walk.rests():
            rows = self._found(SEARCH_FROM_PLACES.due_of(scope), {**values, **walk.given()})
        else:
            rows = walk.made(lambda: self._found(SEARCH_FROM_FIRST.due_of(scope), values))
        found = [Due(*row) for row in rows]
        if walk.rests():
            walk.found(found, limit, now)
        return found

    def overdue(self, limit: int, now: int) -> list[Due]:
        return [Due(*row) for row in self._found(OVERDUE, {"now": now, "limit": limit})]

    def overdue_among(self, job_ids: Sequence[str], now: int) -> list[Due]:
        return [Due(*row) for row in self._found(OVERDUE_AMONG, {"ids": list(job_ids), "now": now})]

    def _found(self, sql: str, values: dict[str, Any]) -> Sequence[tuple[Any, ...]]:
        return self._rows(locking(sql, self._in_transaction), values)
