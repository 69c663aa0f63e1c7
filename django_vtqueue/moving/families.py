"""Jobs with their parents and children, which are of use in one database only."""

from collections.abc import Collection, Iterable
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from ..core.ids import slices
from ..models import DeadLetter, Job

Edges = set[tuple[UUID, UUID]]  # child and parent


def edges_of(alias: str, ids: Collection[UUID]) -> Edges:
    """Return who is a child of whom among jobs, dead letters, and all that they are related to."""
    edges: Edges = set()
    tables = [model._base_manager.using(alias).filter(parent_id__isnull=False) for model in (Job, DeadLetter)]
    if not any(rows.exists() for rows in tables):
        return edges
    known: set[UUID] = set()
    new = set(ids)
    while new:
        for some in slices(sorted(new)):
            for rows in tables:
                found = rows.values_list("pk", "parent_id")
                edges |= {*found.filter(pk__in=some), *found.filter(parent_id__in=some)}
        known |= new
        new = {job_id for edge in edges for job_id in edge} - known
    return edges


def spread(ids: Iterable[UUID], edges: Edges) -> set[UUID]:
    """Return ids with all that they are related to."""
    neighbours: dict[UUID, set[UUID]] = {}
    for child, parent in edges:
        neighbours.setdefault(child, set()).add(parent)
        neighbours.setdefault(parent, set()).add(child)
    found, new = set(), set(ids)
    while new:
        found |= new
        new = {other for job_id in new for other in neighbours.get(job_id, ())} - found
    return found


def present(rows: QuerySet[Any], ids: Iterable[UUID]) -> set[UUID]:
    """Return which of these ids are among rows.

    Under ``select_for_update`` the rows are locked, and those that another transaction has locked are left out.
    """
    return {key for some in slices(sorted(ids)) for key in rows.filter(pk__in=some).values_list("pk", flat=True)}
