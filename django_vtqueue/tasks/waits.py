"""What durable tasks wait for: a moment, an event, or their children."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from ..core import clock, history, steps
from ..core.encoding import dumps
from ..core.steps import EVENT, GATHER, SLEEP, SNOOZE, Record
from ..exceptions import StepError, StepsTooLarge
from .calls import TaskCall
from .compat import TaskResult
from .ledger import Ledger

OF_CHILD = 220  # bytes that the steps of a parent have of a child that has ended, with a short result


def sleep(ledger: Ledger, name: str, duration: float | timedelta) -> None:
    """See JobContext.sleep."""
    lasts = clock.microseconds(duration)
    if ledger.next(SLEEP, name):
        return
    since, until = ledger.term(lasts)
    if until > ledger.now():
        raise ledger.suspend(SLEEP, name, until, since)
    ledger.add(Record(kind=SLEEP, name=name, began=since, at=until))


def wait_for(ledger: Ledger, name: str, timeout: float | timedelta | None, default: Any = None) -> Any:
    """See JobContext.wait_for."""
    lasts = None if timeout is None else clock.microseconds(timeout)
    if record := ledger.next(EVENT, name):
        return default if record.get("late") else record.get("value")
    since, until = ledger.term(lasts)
    if (index := ledger.event(name)) is None:  # it may have come since the beginning of this attempt
        ledger.read_events()
        index = ledger.event(name)
    if index is None and until > ledger.now():
        raise ledger.suspend(EVENT, name, until, since)
    record = Record(kind=EVENT, name=name, began=since, at=ledger.now())
    if index is None:
        record["late"] = True
    else:
        record["value"] = ledger.stored.events[index].get("value")
    ledger.add(record, index)
    return default if index is None else record.get("value")


def gather(ledger: Ledger, name: str, calls: Sequence[TaskCall], again: Sequence[str] = ()) -> list[TaskResult]:
    """See JobContext.gather; ``again``: the jobs of these calls, which have failed: each is taken once more."""
    several = isinstance(calls, Sequence) and all(isinstance(each, TaskCall) for each in calls)
    if ledger.children is None or not several:
        raise StepError(f'gather {name!r} takes a list of call(task, …): gather("send", [call(send, 7)]).')
    record, requeue = ledger.next(GATHER, name), history.last_requeue(ledger.held.history)
    if record is None and len(calls) > (most := (ledger.limit - len(dumps(ledger.done))) // OF_CHILD):
        raise StepsTooLarge(
            f"gather {name!r} has {len(calls):,} children; max_steps_bytes ({ledger.limit:,}) allows {most:,} "
            "here. Gather fewer at once, in context.iterate(…), or raise the limit of the queue."
        )
    if record is None or (requeue and "value" not in record):
        with ledger.making(), ledger.transaction(ledger.engine.atomic):
            if record is None:
                ids = ledger.children.enqueue(calls, ledger.held.id, again)
                record = ledger.add(Record(kind=GATHER, name=name, began=ledger.now(), children=ids))
            else:
                ledger.write()  # first of all: on SQLite a transaction that has read may be refused the lock
            if requeue:
                ledger.children.requeue(record["children"], requeue["ended"], requeue["worker"])
            if ledger.engine.cancel_requests([ledger.held]):  # the row is locked now: a later one sees these children
                raise ledger.suspend(SNOOZE, name, ledger.held.due_at, ledger.now())
        ledger.children.announce()
    ids = record["children"]
    if len(ids) != len(calls):
        raise ledger.note_mismatch(
            f"gather {name!r} has {len(ids)} children as it is stored, but its code asks for {len(calls)} now. The "
            "calls must be the same each time: have a step return their arguments."
        )
    if ledger.position == len(ledger.done):
        read_children(ledger, name, record)
    return ledger.children.results(ids, record["value"], calls)


def read_children(ledger: Ledger, name: str, record: Record) -> None:
    """Store what became of children: of all at first, later of those that had failed and were requeued since."""
    assert ledger.children
    ended = ledger.children.ended(record["children"], record.get("value"))
    if ended is None:
        since = record["began"]
        raise ledger.suspend(GATHER, name, steps.look_again_at(since, ledger.now()), since)
    if ended != record.get("value"):
        record["value"], record["at"] = ended, ledger.now()
        with ledger.transaction(ledger.engine.atomic):
            ledger.write()
            ledger.children.was_read(record["children"])
