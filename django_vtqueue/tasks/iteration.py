"""Loops of durable tasks: each item is done once, and after a crash the loop goes on with the one that was under way.

What is done inside of an item is forgotten when the item is done. Which item is under way is stored before it begins,
so that its steps and waits are not taken for those of another item.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from django.db.models import QuerySet

from ..core.steps import ITERATE, SNOOZE, Record
from ..exceptions import StepError
from .ledger import Ledger
from .rows import rows


def iterate(ledger: Ledger, name: str, source: Any) -> Iterator[Any]:
    """See JobContext.iterate."""
    new = Record(kind=ITERATE, name=name, began=ledger.now(), counted=not isinstance(source, QuerySet))
    record = ledger.next(ITERATE, name) or ledger.begin_loop(new)
    if record.get("ended"):
        return
    if record.get("counted") is isinstance(source, QuerySet):
        raise ledger.note_mismatch(
            f"The loop {name!r} goes through {'rows' if record['counted'] is False else 'a sequence'} as it is stored, "
            f"but its code gives it {type(source).__name__}. Give it the same each time, or repeat steps from "
            f"{ledger.position} to begin it again."
        )
    base = ledger.position
    begun = len(ledger.done) > base or ledger.stored.waiting is not None  # the item under way has made something
    for behind, item in items(source, record.get("next"), record.get("item") if begun else None):
        if not begun:
            record["item"] = behind
            ledger.back_to(base)
            if ledger.to_suspend or ledger.held.worker_stops:
                raise ledger.suspend(SNOOZE, name, ledger.held.due_at, ledger.now())
        elif record.get("item") != behind:
            break
        begun = False
        yield item
        ledger.check(ITERATE, name)
        if ledger.done[base - 1 : base] != [record]:
            raise StepError(
                f"iterate {name!r}: another loop, which began before it, has gone on to its next item. A loop inside "
                "of an item ends with that; two loops do not go side by side, as in zip(…)."
            )
        record["next"] = behind
    if begun:
        raise ledger.item_is_gone(name, record.get("item"))
    record["ended"], record["at"] = True, ledger.now()
    record.pop("next", None)
    record.pop("item", None)
    ledger.back_to(base)


def items(source: Any, behind: Any, under_way: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the items of a queryset or a sequence, each with what comes behind it; begin with what is ``behind``.

    ``under_way``: what comes behind the item that has begun; None if none has.
    """
    if isinstance(source, QuerySet):
        yield from rows(source, behind, under_way)
    elif isinstance(source, Sequence):
        yield from ((index + 1, source[index]) for index in range(behind or 0, len(source)))
    else:
        raise StepError(
            f"iterate takes a queryset, a range or another sequence, not {type(source).__name__}: it must find the "
            "item again behind which it goes on. Give list() of it, if that is the same each time."
        )
