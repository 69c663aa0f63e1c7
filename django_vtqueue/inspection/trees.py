"""The tree of a job: the parents above it, and the children of all of them, from both tables."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from ..core import states, steps
from ..core.encoding import decode
from ..core.ids import parse_id, slices
from ..core.masks import MASKED, Mask
from ..engines import engine_for
from ..models import DeadLetter, Job
from ..models.jobs import JobOrLetter
from .state import state_word

MOST_NODES = 200  # nodes that are read
HIGHEST = 20  # parents above a job
LARGE: dict[type[Any], tuple[str, ...]] = {
    DeadLetter: ("payload", "history", "steps", "earlier_steps"),
    Job: ("payload", "history", "steps", "earlier_steps", "result", "copies"),
}


ENDED = {states.SUCCESSFUL: "done", states.FAILED: "dead"}


class Node(NamedTuple):
    """A job in a tree; ``depth``: how many parents it has above it there; ``parent``: whether it has children."""

    entry: JobOrLetter
    depth: int
    parent: bool


class Tree(NamedTuple):
    """The jobs of a tree, each before its children; ``more``: how many others are there, without those below them."""

    nodes: list[Node]
    more: int


class ChildJob(NamedTuple):
    """A child of a step, whose id is ``stored`` so; ``word``: "" if its state is not known.

    ``result``: what it has returned, with what is secret hidden; ``failure``: why it has failed.
    """

    stored: Any
    job_id: UUID | None
    word: str = ""
    result: Any = None
    failure: str = ""


def children_of(
    parent: JobOrLetter, records: Iterable[Mapping[str, Any]], own: Mask, now: int, most: int
) -> Iterator[list[ChildJob]]:
    """Yield, for each step, its children: what became of each, when all of them have ended, until then their states.

    A child that has failed and was requeued is shown with its state, too. Nothing in a record is sure to have the right
    type.
    """
    known = [kept_of(record, own, most) for record in records]
    done = ENDED[states.SUCCESSFUL]
    rows = present(parent, [child.job_id for some in known for child in some if child.job_id and child.word != done])
    for some in known:
        yield [state_of(child, rows.get(child.job_id), now) for child in some]


def kept_of(record: Mapping[str, Any], own: Mask, most: int) -> list[ChildJob]:
    """Return the children of a step, as the steps have them."""
    ids: Any = record.get("children")
    some = [ChildJob(stored, parse_id(stored)) for stored in ids[:most]] if isinstance(ids, list) else []
    if isinstance(kept := record.get("value"), list):
        some = [ended(child, end, own) for child, end in zip(some, [*kept, *[None] * len(some)], strict=False)]
    return some


def state_of(child: ChildJob, row: JobOrLetter | None, now: int) -> ChildJob:
    """Return a child with its present state, if its end is not known, or it has failed and is a job again."""
    if row and (not child.word or isinstance(row, Job)):
        return ChildJob(child.stored, child.job_id, state_word(row, now))
    return child


def present(parent: JobOrLetter, ids: list[UUID]) -> dict[UUID | None, JobOrLetter]:
    """Return those children that are there, jobs and dead letters, without their large columns."""
    rows = (lean(model, parent._state.db).filter(pk__in=some) for model in LARGE for some in slices(ids))
    return {row.pk: row for some in rows for row in some}


def ended(child: ChildJob, kept: Any, own: Mask) -> ChildJob:
    """Return a child with its result, or why it has failed, as its parent has kept it."""
    if not isinstance(kept, dict):
        return child
    child = child._replace(word=ENDED.get(str(kept.get("state")), ""))
    match kept:
        case {"state": states.FAILED, "history": [*_, dict(last)]}:
            name = str(last.get("exception_class", "")).rpartition(".")[2]
            return child._replace(failure=f"{name}: {last.get('message', '')}")
    value = kept.get("result")
    try:
        return child._replace(result=own.hide(decode(value) if isinstance(value, str) else value))
    except (ValueError, RecursionError):
        return child._replace(result=MASKED if own.conceals(str(value)) else str(value))


def has_tree(entry: JobOrLetter) -> bool:
    """Return whether a job has a parent, or has had children."""
    made = steps.readable(entry.steps, entry.earlier_steps).done
    return entry.parent_id is not None or any("children" in record for record in made)


def tree(entry: JobOrLetter, most: int = MOST_NODES) -> Tree:
    """Return the tree of a job: two queries for each level of it, and one or two for each parent above the job."""
    root = top(entry)
    found: dict[UUID, JobOrLetter] = {root.pk: root}
    below: dict[UUID | None, list[JobOrLetter]] = {}
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


def top(entry: JobOrLetter) -> JobOrLetter:
    """Return the highest parent of a job that is there, so far as it is looked for."""
    for _ in range(HIGHEST):
        if entry.parent_id is None or not (above := find(entry.parent_id, entry._state.db)):
            break
        entry = above
    return entry


def find(job_id: UUID, database: str | None) -> JobOrLetter | None:
    rows = (lean(model, database).filter(pk=job_id).first() for model in (Job, DeadLetter))
    return next((row for row in rows if row), None)


def children(parents: list[UUID], database: str | None, room: int) -> tuple[list[JobOrLetter], int]:
    """Return children, in the order of their ids, and how many there are for which there is no room.

    Dead ones come first, then unfinished ones.
    """
    rows: list[JobOrLetter] = []
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


def walk(root: JobOrLetter, below: dict[UUID | None, list[JobOrLetter]]) -> Iterator[Node]:
    """Yield a job, then its children, each with those below it."""
    waiting = [(root, 0)]
    while waiting:
        entry, depth = waiting.pop()
        found = below.get(entry.pk, [])
        yield Node(entry, depth, bool(found))
        waiting += [(child, depth + 1) for child in reversed(found)]
