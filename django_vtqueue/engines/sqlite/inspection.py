"""The inspection of SQLite: see Inspection."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from ...core.counts import Chart
from ...core.ids import first_id
from ..inspection import Inspection
from .dead_letters import SQLiteLetterGroups
from .due import QUEUE_NAMES
from .lists import SQLiteLists
from .overview import SQLiteOverview
from .statistics import ARRIVALS, COUNTS, DEPTHS, HOURS, MINUTES, SERIES, SPANS, SUCCESSES


class SQLiteInspection(SQLiteLists, SQLiteLetterGroups, SQLiteOverview, Inspection):
    """See Inspection."""

    def series(self, chart: Chart) -> list[tuple[int, int, int, int]]:
        return self._rows(SERIES[HOURS if chart.hourly else MINUTES], asdict(chart))

    def depths(self, chart: Chart) -> list[tuple[int, int]]:
        return self._rows(DEPTHS[HOURS if chart.hourly else MINUTES], asdict(chart))

    def spans(self, chart: Chart, most: int) -> list[tuple[int, str, str]]:
        return self._rows(SPANS[HOURS if chart.hourly else MINUTES], asdict(chart) | {"most": most})

    def successes(self, tasks: Sequence[str], first: int, *, hourly: bool) -> list[tuple[str, int, int]]:
        values = {"tasks": json.dumps(list(tasks)), "first": first}
        return self._rows(SUCCESSES[HOURS if hourly else MINUTES], values)

    def counts(self, first: int, last: int) -> list[tuple[int, str, int, int, int, str, str]]:
        return self._rows(COUNTS, {"first": first, "last": last})

    def arrivals(self, since: int, until: int, limit: int) -> dict[str, int]:
        return dict(self._rows(ARRIVALS, {"first": first_id(since), "last": first_id(until), "limit": limit}))

    def queue_names(self) -> list[str]:
        return [name for (name,) in self._rows(QUEUE_NAMES, {})]
