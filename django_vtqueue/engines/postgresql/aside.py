"""The statements that put jobs into the line on PostgreSQL whose moment has come, and find the next such moment.

SCHEDULED, WAITING and BLOCKED rows have a ``wake_at``; indexes hold them in that order. Rows that have woken leave dead
entries there, before all others, while another transaction is open for long. Then a look begins where the last one has
ended; see places.py.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from ...core.job import Scope
from .connection import PostgreSQLConnection
from .places import LATE, Walk

T = TypeVar("T")
Served = tuple[tuple[str, ...] | None, bool]  # queues, and whether of raw payloads

# A subquery, not the value itself: ``= false`` would become ``task_path <> ''``, which no index has.
OF_KIND = "(job.task_path = '') = (SELECT %(raw)s)"
ASIDE = f"{OF_KIND} AND job.wake_at >= %(since)s"
OF_ALL = f"vtqueue_job AS job WHERE {ASIDE}"
NAMED = f"vtqueue_job AS job WHERE job.queue_name = ANY(%(names)s::text[]) AND {ASIDE}"

# Rows that another claim has locked are woken by that one.
WAKE = """
UPDATE vtqueue_job SET state = 'READY', due_at = wake_at, wake_at = NULL WHERE id = ANY(ARRAY(
    SELECT job.id FROM {} AND job.wake_at <= %(now)s ORDER BY job.wake_at LIMIT %(limit)s FOR UPDATE OF job SKIP LOCKED
))"""
ANY_TO_WAKE = "SELECT EXISTS (SELECT 1 FROM {} AND job.wake_at <= %(now)s)::int"

FIRST = f"SELECT job.wake_at FROM vtqueue_job AS job WHERE {{}}{ASIDE} ORDER BY job.wake_at LIMIT 1"
FIRST_TO_WAKE = f"SELECT ({FIRST.format('')})"
FIRST_NAMED_TO_WAKE = f"""
SELECT min(({FIRST.format("job.queue_name = name.value AND ")})) FROM unnest(%(names)s::text[]) AS name(value)"""

# How many entries of indexes this session has read in this transaction, and before it in the last second.
ENTRIES_READ = """
SELECT coalesce(sum(pg_stat_get_xact_tuples_returned(to_regclass(name))), 0) FROM unnest(%(names)s::text[]) AS name"""


@lru_cache
def scope_values(scope: Scope) -> Mapping[str, Any]:
    """Return what statements are given of a scope: each of its names once. Each claim asks for the same again."""
    names = None if scope.queues is None else sorted(set(scope.queues))
    return {"raw": scope.raw, "names": names, "worker": scope.worker}


class AsideWalk(Walk):
    """The walk to what has woken. ``woken_to``: all that was to wake before this instant is in the line."""

    woken_to = 0

    @property
    def since(self) -> int:
        """The instant from which on a look begins."""
        return self.woken_to if self.rests() else 0


class PostgreSQLAside(PostgreSQLConnection):
    """The part of an Engine that puts jobs into the line whose moment has come."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._aside: dict[Served, AsideWalk] = defaultdict(self._new_aside_walk)

    def search_all(self) -> None:
        self._aside.clear()

    def _read(self, *indexes: str) -> int:
        return int(self._value(ENTRIES_READ, {"names": list(indexes)}))

    def _new_aside_walk(self) -> AsideWalk:
        return AsideWalk(lambda: self._read("vtqueue_job_wake", "vtqueue_job_aside"))

    def _aside_walk(self, scope: Scope) -> AsideWalk:
        return self._new_aside_walk() if self.traced else self._aside[scope.queues, scope.raw]

    def wake(self, scope: Scope, now: int, limit: int) -> int:
        sql = WAKE.format(OF_ALL if scope.queues is None else NAMED)
        woken = self._look_aside(scope, lambda values: self._run(sql, {**values, "now": now, "limit": limit}))
        if woken < limit:
            self._aside_walk(scope).woken_to = now - LATE
        return woken

    def to_wake(self, scope: Scope, now: int, limit: int) -> int:
        sql = ANY_TO_WAKE.format(OF_ALL if scope.queues is None else NAMED)
        return int(self._look_aside(scope, lambda values: self._value(sql, {**values, "now": now})))

    def _first_to_wake(self, scope: Scope) -> int | None:
        """Return the first moment at which a job of a scope is to wake."""
        sql = FIRST_TO_WAKE if scope.queues is None else FIRST_NAMED_TO_WAKE
        first: int | None = self._look_aside(scope, lambda values: self._value(sql, values))
        return first

    def _look_aside(self, scope: Scope, look: Callable[[dict[str, Any]], T]) -> T:
        """Return what ``look`` returns; it is given the values of a statement of this file."""
        walk = self._aside_walk(scope)
        values = {**scope_values(scope), "since": walk.since}
        return look(values) if walk.since else walk.made(lambda: look(values))
