"""Schedules as people see them: each with its state and its last runs."""

from collections.abc import Iterable
from itertools import chain
from typing import Any, NamedTuple

from ..core.ticks import Ticks
from ..engines import engine_for
from ..models import Schedule
from .declaring import vanished
from .runs import read, states_of, with_states

ACTIVE, PAUSED, VANISHED, OVER = "active", "paused", "vanished", "over"


class Listed(NamedTuple):
    """``state``: active, paused, vanished (see declaring.py), over (it never comes again).

    ``runs``: the latest first, each with its state; see schedules/runs.py.
    """

    row: Schedule
    state: str
    words: str
    runs: list[dict[str, Any]]


def listed(database: str, rows: Iterable[Schedule] | None = None) -> list[Listed]:
    """Return these schedules, or all of a database, by name."""
    now = engine_for(database).now()
    rows = list(Schedule.objects.using(database).order_by("name") if rows is None else rows)
    gone = vanished(rows, database, now) if rows else set()
    runs = {row.name: read(row.recent) for row in rows}
    known = states_of(chain.from_iterable(runs.values()), database, now)
    return [Listed(row, state_of(row, gone), words(row), with_states(runs[row.name], known)) for row in rows]


def words(row: Schedule) -> str:
    return Ticks(row.expression, row.time_zone).in_words()


def state_of(row: Schedule, gone: set[str]) -> str:
    if row.name in gone:
        return VANISHED
    if row.paused_at is not None:
        return PAUSED
    return OVER if row.next_at is None else ACTIVE
