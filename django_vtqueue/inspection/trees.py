"""The tree of a job: the parents above it, and the children of all of them, from both tables."""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from ..core import steps
from ..engines import engine_for
from ..models import DeadLetter, Job

Entry: TypeAlias = Job | DeadLetter

MOST = 200  # nodes that are read
HIGHEST = 20  # parents above a job
LARGE: dict[type[Any], tuple[str, ...]] = {
    DeadLetter: ("payload", "history", "steps"),
    Job: ("payload", "history", "steps", "result", "copies"),
}


class Node(NamedTuple):
    """A job in a tree; ``depth``: how many parents it has above it there; ``parent``: whether it has children."""

    entry: Entry
    depth: int
    parent: bool


class Tree(NamedTuple):
    """The jobs of a tree, each before its children; ``more``: how many others are there, without those below them."""

    nodes: list[Node]
    more: int


def has_tree(entry: Entry) -> bool:
    """Return whether a job has a parent, or has had children."""
    try:
        return entry.parent_id is not None or any("children" in record for record in steps.read(entry.steps).done)
    except (ValueError, RecursionError):
        return False


def tree(entry: Entry, most: int = MOST) -> Tree:
    """Return the tree of a job: two queries for each level of it, and one or two for each parent above the job."""
    root = top(entry)
    found: dict[UUID, Entry] = {root.pk: root}
    below: dict[UUID | None, list[Entry]] = {}
    level, more = [root.pk], 0
    while level and not more:
        rows, more = children(level, entry._state.db, most - len(found))
        level = [row.pk for row in rows if row.pk not in found]
        found |= {row.pk: row for row in rows if row.pk in level}
        for pk in level:
            below.setdefault(found[pk].parent_id, []).append(found[pk])
    if entry.pk not in found:  # it is among those that are left out
        below.setdefault(entry.parent_id, []).append(entry)
        more = max(more - 1, 0)
    return Tree(list(walk(root, below)), more)


def top(entry: Entry) -> Entry:
    """Return the highest parent of a job that is there, so far as it is looked for."""
    for _ in range(HIGHEST):
        if entry.parent_id is None or not (above := find(entry.parent_id, entry._state.db)):
            break
        entry = above
    return entry


def find(job_id: UUID, database: str | None) -> Entry | None:
    rows = (lean(model, database).filter(pk=job_id).first() for model in (Job, DeadLetter))
    return next((row for row in rows if row), None)


def children(parents: list[UUID], database: str | None, room: int) -> tuple[list[Entry], int]:
    """Return children, in the order of their ids, and how many there are for which there is no room.

    Dead ones come first, then unfinished ones.
    """
    rows: list[Entry] = []
    more = 0
    for model in LARGE:
        some = lean(model, database).filter(parent_id__in=parents)
        left = room - len(rows)
        got = list(some[: left + 1])
        rows += got[:left]
        if len(got) > left:
            more += some.count() - left
    return sorted(rows, key=lambda row: row.pk), more


def lean(model: Any, database: str | None) -> Any:
    """Return rows without their large columns, in the order of an index; jobs with what they wait for."""
    rows = model.objects.using(database).defer(*LARGE[model])
    return rows.annotate(waits=engine_for(rows.db).waits()) if model is Job else rows


def walk(root: Entry, below: dict[UUID | None, list[Entry]]) -> Iterator[Node]:
    """Yield a job, then its children, each with those below it."""
    waiting = [(root, 0)]
    while waiting:
        entry, depth = waiting.pop()
        found = below.get(entry.pk, [])
        yield Node(entry, depth, bool(found))
        waiting += [(child, depth + 1) for child in reversed(found)]
