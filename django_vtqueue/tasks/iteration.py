"""Loops of durable tasks: each item is done once, and after a crash the loop goes on with the one that was under way.

What is done inside of an item is forgotten when the item is done. Which item is under way is stored before it begins,
so that its steps and waits are not taken for those of another item.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from django.db.models import Model, QuerySet

from ..core.encoding import legible
from ..core.steps import ITERATE, SNOOZE, Record
from ..exceptions import StepError
from .ledger import Ledger

CHUNK = 500  # rows of a queryset that are read at once


def iterate(ledger: Ledger, name: str, source: Any) -> Iterator[Any]:
    """See JobContext.iterate."""
    new = Record(kind=ITERATE, name=name, began=ledger.now(), counted=not isinstance(source, QuerySet))
    record = ledger.next(ITERATE, name) or ledger.add(new)
    if record.get("ended"):
        return
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
        if source.query.is_sliced or source.query.combinator:
            raise StepError("iterate takes a queryset that can be filtered further: no slice [:n], and no union().")
        yield from rows(source.order_by("pk"), behind, under_way)
    elif isinstance(source, Sequence):
        yield from ((index + 1, source[index]) for index in range(behind or 0, len(source)))
    else:
        raise StepError(
            f"iterate takes a queryset, a range or another sequence, not {type(source).__name__}: it must find the "
            "item again behind which it goes on. Give list() of it, if that is the same each time."
        )


def rows(source: "QuerySet[Any]", behind: Any, under_way: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the rows of a queryset by primary key, some at a time; begin at the one that is under way, if one is.

    A row between it and the last done one was added since: it is passed over, as in a loop that nothing interrupts.
    """
    rest = source if behind is None else source.filter(pk__gt=behind)
    if under_way is not None:
        rest = source.filter(pk__gte=under_way)
    while some := list(rest[:CHUNK]):
        for row in some:
            if not isinstance(row, Model):
                raise StepError("iterate takes a queryset of rows, without values(): it goes on by their primary keys.")
            behind = row.pk if isinstance(row.pk, int) else legible(str(row.pk), "primary key")
            yield behind, row
        rest = source.filter(pk__gt=behind)
