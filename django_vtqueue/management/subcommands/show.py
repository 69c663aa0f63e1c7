"""``vtqueue show``: all that is known of a job, and why it is not running."""

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError

from ...backend import VTQueueBackend
from ...core import history, steps
from ...core.clock import from_instant
from ...core.humanize import duration, local, whole
from ...core.ids import SHORTEST, shown_worker
from ...core.masks import MASKED, Mask
from ...core.text import storable
from ...fields import StoredText
from ...inspection.state import state_word
from ...inspection.trees import ChildJob, children_of, has_tree, tree
from ...inspection.why import why
from ...models import DeadLetter, Job
from ...tasks.signatures import mask_of
from ..arguments import read_at_once
from ..output import add_json, as_json, in_json, iso
from .list import MOMENTS, described

LONGEST = 100  # characters of the result of a step
CHILDREN = 100  # of a step that are shown
HELP = "Shows all of a job: its arguments, how each attempt ended, and why it is not running."


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help=f"of a job, or its last {SHORTEST} digits or more")
    add_json(parser)


def run(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Show it line by line, its tracebacks whole, or as a JSON object."""
    with read_at_once(options["id"], backend.database) as (entry, limits, now):
        if entry is None:
            raise CommandError(f"There is no job {options['id']}. Those that are done are kept for result_ttl.")
        mask = mask_of(entry.task_path, entry.queue_name, backend.database)
        known = described(entry, now) | {"why": why(entry, now, limits)}
        made, events = steps_of(entry, Mask(mask.words))
        children = list(children_of(entry, made, Mask(mask.words), now, CHILDREN))
        family = list(tree_of(entry, now))
    attempts = history.read(entry.history)
    if isinstance(entry, Job) and entry.state == "SUCCESSFUL":
        damaged = isinstance(entry.result, StoredText) and mask.conceals(entry.result)
        known["result"] = MASKED if damaged else Mask(mask.words).hide(entry.result)
    if options["json"]:
        yield as_json(known | {"steps": made, "events": events, "history": [exported(attempt) for attempt in attempts]})
        return
    known |= {name: whole(local(getattr(entry, name))) for name in MOMENTS if known.get(name)}
    width = max(map(len, known))
    for name, value in known.items():
        if value not in ("", None):
            yield f"{name.ljust(width)}  {value if isinstance(value, str) else in_json(value)}"
    for number, (record, some) in enumerate(zip(made, children, strict=True), 1):
        yield f"{f'step {number}'.ljust(width)}  {step_line(record)}"
        for child in some:
            yield f"{'child'.ljust(width)}  {child_line(child)}"
    for event in events:
        yield f"{'event'.ljust(width)}  {event_line(event)}"
    for line in family:
        yield f"{'tree'.ljust(width)}  {line}"
    for attempt in attempts:
        yield ""
        yield summary(attempt)
        yield from str(attempt.get("traceback") or attempt.get("message") or "").rstrip().splitlines()


def steps_of(entry: Job | DeadLetter, mask: Mask) -> tuple[list[dict[str, Any]], ...]:
    """Return what a durable task has done, and the events that it has not asked for, with what is secret hidden.

    Nothing if that is damaged.
    """
    found = steps.readable(entry.steps, entry.earlier_steps)
    return tuple([{**each, "value": mask.hide(each.get("value"))} for each in some] for some in found[:2])


def tree_of(entry: Job | DeadLetter, now: int) -> Iterator[str]:
    """Yield the jobs that belong together, each with its children below it; nothing for a job that is alone."""
    if not has_tree(entry):
        return
    nodes, more = tree(entry)
    for node in nodes:
        yield f"{'  ' * node.depth}{node.entry.task_path} {node.entry.pk} {state_word(node.entry, now)}"
    if more:
        yield f"… and {more} other children"


def step_line(record: Any) -> str:
    """Return a step of a durable task in one line: what, when, how long it took, and the result."""
    at, began = record.get("at"), record.get("began")
    when = f" at {whole(local(from_instant(at)))}" if isinstance(at, int) else ""
    took = f" after {duration(max(at - began, 0))}" if isinstance(at, int) and isinstance(began, int) else ""
    behind = f", goes on behind {in_json(record['next'])}" if "next" in record else ""
    if (done := steps.items_done(record)) is not None:
        behind = f", goes on after {done} item{'s' * (done != 1)}"
    children = record.get("children")
    result = f": {len(children)} children" if isinstance(children, list) else shortened(record.get("value"))
    return f"{record.get('kind')} {record.get('name')}{when}{took}{behind}{result}"


def child_line(child: ChildJob) -> str:
    """Return a child of a step in one line: the end of its id, its state, and its result or why it has failed."""
    result = f": {storable(child.failure[:LONGEST])}" if child.failure else shortened(child.result)
    return f"…{storable(str(child.stored))[-8:]} {child.word or '(unknown)'}{result}"


def event_line(event: dict[str, Any]) -> str:
    """Return an event that no step has taken in one line: its name, when it came, and its value."""
    at = event.get("at")
    when = f" came at {whole(local(from_instant(at)))}" if isinstance(at, int) else ""
    return f"{event.get('name')}{when}, not asked for yet{shortened(event.get('value'))}"


def shortened(value: Any) -> str:
    """Return the value of a step, a child or an event for its line, behind a colon."""
    text = "" if value is None else f": {in_json(value)}"
    return f"{text[:LONGEST]}…" if len(text) > LONGEST else text


def exported(attempt: history.Entry) -> dict[str, Any]:
    """Return an entry of the history as programs read it."""
    moments = {name: iso(attempt[name]) for name in ("started", "ended") if isinstance(attempt.get(name), int)}
    return {**attempt, **moments}


def summary(attempt: history.Entry) -> str:
    """Return the head of an entry of the history."""
    if "omitted" in attempt:
        return f"{attempt['omitted']} attempts are not kept"
    ended = attempt.get("ended")
    when = f" at {whole(local(from_instant(ended)))}" if isinstance(ended, int) else ""
    number = f"attempt {attempt['number']}: " if attempt.get("number") else ""  # what people did has none
    by = f" {'on' if number else 'by'} {shown_worker(str(attempt['worker']))}" if attempt.get("worker") else ""
    return f"{number}{attempt.get('outcome')}{by}{when}"
