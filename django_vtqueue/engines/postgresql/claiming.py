"""Claiming on PostgreSQL: what is due, whose lease has ended, and when there will be more."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ...core.clock import SECOND
from ...core.grace import GRACE, REST, GracePeriod
from ...core.job import Due, Ended, Scope
from . import due
from .connection import PostgreSQLConnection
from .places import DueWalk, Walk

WIDER, OTHERS = 2, 100  # rows that are looked at for each that is wanted, and beside these: other claims lock some
MOST_NAMES = 20  # of a scope whose walk begins at places: it seeks 201 of them for each name

Served = tuple[tuple[str, ...] | None, bool]  # queues, and whether of raw payloads


class PostgreSQLClaiming(PostgreSQLConnection):
    """The part of an Engine that finds what may be claimed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._due: dict[Served, DueWalk] = defaultdict(self._new_due_walk)
        self._hidden: dict[Served, Walk] = defaultdict(self._new_hidden_walk)

    def search_all(self) -> None:
        self._due.clear()
        self._hidden.clear()

    def _walks(self, scope: Scope) -> tuple[DueWalk, Walk]:
        """Return the two walks of a scope: over what is due, and over what is hidden.

        Only a control loop has walks that rest, since it goes on with them; other code claims once and wants all.
        """
        if self.traced or len(scope.queues or ()) > MOST_NAMES:
            return self._new_due_walk(), self._new_hidden_walk()
        served = scope.queues, scope.raw
        return self._due[served], self._hidden[served]

    def _new_due_walk(self) -> DueWalk:
        return DueWalk(lambda: self._read("vtqueue_job_due", "vtqueue_job_queue"))

    def _new_hidden_walk(self) -> Walk:
        return Walk(lambda: self._read("vtqueue_job_hidden"))

    def _read(self, *indexes: str) -> int:
        return int(self._value(due.ENTRIES_READ, {"names": list(indexes)}))

    def first_due(self, scope: Scope) -> int | None:
        due_walk, hidden = walks = self._walks(scope)
        instants = [] if scope.jobs_left == 0 else [self._earliest(scope, due_walk)]
        if not hidden.rests():
            values = {**due.given(scope), "grace": GRACE}
            instants.append(hidden.made(lambda: self._value(due.FIRST_LEASE_END, values)))
        now = self.now()
        instants += [now + round(seconds * SECOND) for walk in walks if (seconds := walk.rests())]
        return min((instant for instant in instants if instant is not None), default=None)

    def _earliest(self, scope: Scope, walk: DueWalk) -> int | None:
        values = due.given(scope)
        if walk.rests():
            due_at = self._value(due.SEARCH_FROM_PLACES.earliest_of(scope), {**values, **walk.given()})
        else:
            due_at = walk.made(lambda: self._value(due.SEARCH_FROM_FIRST.earliest_of(scope), values))
        return None if due_at is None else max(due_at, scope.not_before)

    def ended(
        self, scope: Scope, limit: int, now: int, grace_period: GracePeriod, *, overflow: bool = False
    ) -> list[Ended]:
        _, walk = self._walks(scope)
        if walk.rests():
            return []
        given = {**due.given(scope), **grace_period._asdict(), "overflow": overflow}
        values = {**given, "rest": REST, "now": now, "limit": limit}
        return [Ended(*row) for row in walk.made(lambda: self._found(due.ENDED_LEASES, values))]

    def due(self, scope: Scope, limit: int, now: int, *, named: bool = False) -> list[Due]:
        values = {**due.given(scope), "now": now, "limit": limit, "wider": WIDER * limit + OTHERS}
        if scope.queues and len(scope.queues) == 1:
            values["name"] = scope.queues[0]
        walk, _ = self._walks(scope)
        if walk.rests():
            rows = self._found(due.SEARCH_FROM_PLACES.due_of(scope), {**values, **walk.given()})
        else:
            rows = walk.made(lambda: self._found(due.SEARCH_FROM_FIRST.due_of(scope), values))
        found = [Due(*row) for row in rows]
        if walk.rests():
            walk.found(found, limit, now)
        return found

    def overdue(self, limit: int, now: int) -> list[Due]:
        return [Due(*row) for row in self._found(due.OVERDUE, {"now": now, "limit": limit})]

    def _found(self, sql: str, values: dict[str, Any]) -> Sequence[tuple[Any, ...]]:
        return self._rows(due.locking(sql, self._in_transaction), values)
