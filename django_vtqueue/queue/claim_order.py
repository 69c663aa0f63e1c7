"""The due rows that a claim looks at: in claim order, of a limited queue only what its quota allows, or by shares."""

from collections.abc import Mapping, Sequence
from math import inf

from ..core.job import Due, Scope
from ..core.shares import Shares
from ..engines import Engine
from .limits import AMONG, Limits, has_own_key
from .quotas import Quota


def find_due(
    engine: Engine, limits: Limits, scopes: Sequence[Scope], quotas: Mapping[str, Quota], limit: int, now: int
) -> list[Due]:
    """Return the first ``limit`` due rows, in claim order, or as the shares of queues have it.

    There are no more of a limited queue than its quota allows, as far as that is known. Mostly no quota is used up, so
    all queues are looked at together first, and apart only if one is.
    """
    if not limits.shares and all(quota.allows(1) for quota in quotas.values()):
        due = find_together(engine, scopes, limit, now, named=bool(limits.queues))
        if not quotas or enough(quotas, due):
            return due
    parts = limits.with_quotas(engine, limits.one_queue_each(scopes), quotas)
    return find_apart(engine, parts, limit, now, limits.shares)


def enough(quotas: Mapping[str, Quota], rows: Sequence[Due]) -> bool:
    """Return whether the quotas allow all of these rows."""
    names = [row.queue_name for row in rows]
    return all(quota.allows(names.count(name)) for name, quota in quotas.items())


def find_together(engine: Engine, scopes: Sequence[Scope], limit: int, now: int, *, named: bool) -> list[Due]:
    """Return the first due rows of scopes, whatever the quotas of their queues are."""
    due = [row for scope in scopes for row in engine.due(scope, limit, now, named=named)]
    return in_order(due)[:limit] if len(scopes) > 1 else due


def find_apart(engine: Engine, scopes: Sequence[Scope], limit: int, now: int, shares: Shares | None) -> list[Due]:
    """Return the first due rows of scopes of which some have one queue: no more of it than its quota allows.

    With ``shares`` all have one.
    """
    found: list[Due] = []
    left: dict[tuple[str, str], float] = {}
    for scope in scopes:
        if scope.queues == () or scope.starts_left == 0 or (scope.jobs_left == 0 and not scope.raw):
            continue
        if not (shares or scope.limited):
            found += engine.due(scope, limit, now)
            continue
        [name] = scope.queues or ("",)
        left |= {(name, "jobs_left"): _any(scope.jobs_left), (name, "starts_left"): _any(scope.starts_left)}
        most = max(limit, AMONG) if scope.raw and scope.jobs_left is not None else limit
        found += engine.due(scope, most, now, named=True)
    due: list[Due] = []
    for row in in_order(found):
        name = row.queue_name
        uses = [(name, "starts_left")] if has_own_key(row) else [(name, "jobs_left"), (name, "starts_left")]
        if all(left.get(use) != 0 for use in uses):
            left.update((use, left[use] - 1) for use in uses if use in left)
            due.append(row)
    if shares:
        return shares.order({name: [row for row in due if row.queue_name == name] for name, _ in left}, limit)
    return due[:limit]


def _any(number: int | None) -> float:
    """Return a number of places; None: any number."""
    return inf if number is None else number


def in_order(rows: Sequence[Due]) -> list[Due]:
    """Return rows in claim order."""
    return sorted(rows, key=lambda row: (-row.priority, row.due_at, row.handle))
