"""``vtqueue slots``: who holds which time slot, and how much a cycle has time for."""

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from django.core.management.base import CommandError

from ...backend import VTQueueBackend
from ...core.clock import SECOND
from ...core.humanize import duration
from ...engines import engine_for
from ...inspection import holdings as inspection
from ...inspection.holdings import Holding
from ...patterns.slot_rows import Cycle, Stored
from ...slots import capacity, check, next_turn
from ..output import add_json, as_json, iso, table

HELP = "Shows who holds which time slot; with --slots, --period and --item-seconds, how much a cycle has time for."


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a cycle (default: all)")
    figures = parser.add_argument_group("how much a cycle has time for; no database is read")
    figures.add_argument("--slots", type=int, metavar="N", help="instances that share the cycle")
    figures.add_argument("--period", type=float, metavar="S", help="seconds of the whole cycle")
    figures.add_argument("--item-seconds", type=float, metavar="S", help="seconds that one item takes")
    figures.add_argument(
        "--guard", type=float, default=0.0, metavar="S", help="seconds left free at both ends of a turn"
    )
    add_json(parser)


def run(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Show the cycles, or the table for the figures given."""
    figures = (options["slots"], options["period"], options["item_seconds"])
    if any(figure is not None for figure in figures):
        if None in figures or options["names"]:
            raise CommandError("Give --slots, --period and --item-seconds, and no NAME: vtqueue slots --slots 5 ...")
        return as_table(capacities(*figures, options["guard"]), options["json"])
    with engine_for(backend.database).snapshot() as now:
        chosen = read(backend.database, options["names"], now)
    return as_programs_read(chosen, now) if options["json"] else shown(chosen, now)


# -- who holds which slot ----------------------------------------------------------------------------------------------


class Read(NamedTuple):
    """A cycle, and who holds its slots."""

    name: str
    stored: Stored
    slots: list[Holding]


def read(database: str, names: Sequence[str], now: int) -> list[Read]:
    """Return the cycles with these names, or all; raise CommandError if one is not there."""
    found = inspection.cycles(database)
    if unknown := [name for name in names if name not in found]:
        raise CommandError(f"There is no cycle {', '.join(unknown)}. Cycles: {', '.join(found) or 'none'}.")
    return [
        Read(name, stored, inspection.slots(database, name, stored.cycle, now) if stored.cycle else [])
        for name, stored in found.items()
        if not names or name in names
    ]


def shown(chosen: Sequence[Read], now: int) -> Iterator[str]:
    if not chosen:
        yield "No instance has joined a cycle yet: SlotCycle(name, slots, period).join()"
    for number, each in enumerate(chosen):
        yield from [""] * bool(number)
        yield from lines(*each, now)


def lines(name: str, stored: Stored, slots: Sequence[Holding], now: int) -> Iterator[str]:
    """Yield a line about a cycle, and one about each slot of it."""
    cycle = stored.cycle
    if cycle is None:
        yield f"{name}: no cycle is in force."
    else:
        apart = f", guard {cycle.guard:g} s (clocks may differ by {2 * cycle.guard:g} s)" if cycle.guard else ""
        yield f"{name}: {in_words(cycle)}{apart}"
    if wanted := stored.wanted:
        yield f"To be changed, as soon as no slot is held, to: {in_words(wanted)}, guard {wanted.guard:g} s"
    if cycle:
        rows = [("slot", "holder", "token", "lease ends", "next turn", "")]
        yield from table([*rows, *(row(each, cycle, now) for each in slots)])


def in_words(cycle: Cycle) -> str:
    return f"{cycle.slots} slot{'s' * (cycle.slots != 1)} in {cycle.period:g} s"


def row(each: Holding, cycle: Cycle, now: int) -> tuple[Any, ...]:
    """Return the columns of a slot."""
    turn = f"in {duration(begin(each, cycle, now) - now)}"
    return each.key, each.holder or "(free)", each.token, ends(each, now), turn, each.remark


def ends(each: Holding, now: int) -> str:
    """Return when the lease of a slot ends if it is not renewed; "-" if it is free."""
    return "-" if each.until is None else f"in {duration(each.until - now)}"


def begin(each: Holding, cycle: Cycle, now: int) -> int:
    """Return when the next turn of a slot begins, in microseconds."""
    return round(next_turn(now / SECOND, int(each.key), *cycle)[0] * SECOND)


def as_programs_read(chosen: Sequence[Read], now: int) -> Iterator[str]:
    yield as_json([described_cycle(*each, now) for each in chosen])


def described_cycle(name: str, stored: Stored, slots: Sequence[Holding], now: int) -> dict[str, Any]:
    """Return what a program reads of a cycle."""
    cycle, wanted = stored

    def described(each: Holding, cycle: Cycle) -> dict[str, Any]:
        return {"number": int(each.key), "next_turn": iso(begin(each, cycle, now)), **holding(each)}

    return {
        "name": name,
        "cycle": cycle and cycle._asdict(),
        "wanted": wanted and wanted._asdict(),
        "slots": [described(each, cycle) for each in slots] if cycle else [],
    }


def holding(each: Holding) -> dict[str, Any]:
    """Return what a program reads of a slot or a lease: who holds it."""
    return {
        "holder": each.holder or None,
        "token": each.token,
        "since": iso(each.since),
        "until": iso(each.until),
        "remark": each.remark,
        "id": str(each.job.pk),
    }


# -- how much a cycle has time for -------------------------------------------------------------------------------------


def capacities(slots: int, period: float, item: float, guard: float) -> list[dict[str, Any]]:
    """Return what this cycle has time for, and others with it: one instance, more of them, a longer cycle."""
    try:
        capacity(slots, period, item, guard)
    except ValueError as error:
        raise CommandError(str(error)) from None
    others = [(1, period), (slots, period), (5 * slots, period), (slots, 5 * period), (5 * slots, 5 * period)]
    return [of_cycle(*other, item, guard) for other in dict.fromkeys(others) if is_cycle(*other, guard)]


def is_cycle(slots: int, period: float, guard: float) -> bool:
    try:
        check(slots, period, guard)
    except ValueError:
        return False
    return True


def of_cycle(slots: int, period: float, item: float, guard: float) -> dict[str, Any]:
    items, turn = capacity(slots, period, item, guard), period / slots - 2 * guard
    return {
        "slots": slots,
        "period": period,
        "turn": turn,
        "items_a_turn": items // slots,
        "items_a_cycle": items,
        "noticed_after_mean": period / 2 if items else None,
        "noticed_after_longest": period + turn if items else None,
    }


def as_table(rows: list[dict[str, Any]], json: bool) -> Iterator[str]:
    if json:
        yield as_json(rows)
        return
    names = ("instances", "cycle", "turn", "items a turn", "items a cycle", "noticed after, mean", "at the latest")
    yield from table([names, *(tuple(map(figure, row.items())) for row in rows)])
    yield "Items a cycle: the cycle divided by the seconds of an item, however many instances share it."
    if not all(row["items_a_cycle"] for row in rows):
        yield "0 items: one takes longer than a turn, so nothing is ever noticed. Have a longer period, or fewer slots."


def figure(item: tuple[str, Any]) -> str:
    """Return a value as the table has it: counts with commas, all else in seconds."""
    name, value = item
    if value is None:
        return "never"
    return f"{value:,}" if name == "slots" or name.startswith("items") else f"{value:g} s"
