"""Where a walk over an index begins while the server must keep the rows of the past.

As long as another transaction sees the database as it was (a report, a dump, a session that was left open), nothing
that has changed since can be removed from an index: 800 jobs a second are half a million dead entries after ten
minutes, all of them before the first row that waits, and each claim walks over them anew, some 0.2 µs each. So a walk
over very many rests for twenty times as long. Meanwhile due rows are looked for from the places on at which they were
found last, and no lease is ended: what is due with an older time, such as a job of a worker that has died, is found by
the next whole walk.

On a busy machine each walk may be slow. So the server is asked how many entries a session has read. It knows that for
all of the last second, or of the transaction. Only if these are many is it asked before and after the next walks.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...core.clock import SECOND
from ...core.job import Due

T = TypeVar("T")

SLOW = 0.01  # seconds: a faster walk is not asked about
MANY = 20_000  # entries of an index
REST, LONGEST = 20, 30.0  # times as long as the walk, and seconds at the most
SUSPECTED = 60.0  # seconds for which walks are counted after a slow one that may have been long
LATE = SECOND // 2  # microseconds after its time until a job that is published is to be seen by all
LOWEST, HIGHEST = -100, 100  # priority
Place = tuple[int, str]  # due_at and id, the order in a level
FIRST: Place = (0, "0" * 32)


class Walk:
    """A walk that rests after it was long. ``entries``: how many entries of its indexes this session has read."""

    def __init__(self, entries: Callable[[], int]) -> None:
        self._entries = entries
        self._counted_until = self._rests_until = 0.0  # monotonic

    def made(self, walk: Callable[[], T]) -> T:
        """Make it; return what it returns."""
        counted = time.monotonic() < self._counted_until
        before = self._entries() if counted else 0
        began = time.monotonic()
        found = walk()
        took = time.monotonic() - began
        if took > SLOW and self._entries() - before > MANY:
            ended = time.monotonic()
            self._counted_until = ended + SUSPECTED
            if counted:
                self._rests_until = ended + min(REST * took, LONGEST)
        return found

    def rests(self) -> float:
        """Return for how many seconds it is not to be made."""
        return max(self._rests_until - time.monotonic(), 0.0)


class DueWalk(Walk):
    """The walk to what is due, and in each priority the place from which on something may wait."""

    def __init__(self, entries: Callable[[], int]) -> None:
        super().__init__(entries)
        self._places: dict[int, Place] = {}  # by priority

    def given(self) -> dict[str, Any]:
        """Return what the statements of ``due.SEARCH_FROM_PLACES`` are given."""
        levels = range(HIGHEST, LOWEST - 1, -1)
        moments, handles = zip(*(self._places.get(level, FIRST) for level in levels), strict=True)
        return {"levels": list(levels), "moments": list(moments), "handles": list(handles)}

    def found(self, rows: Sequence[Due], limit: int, now: int) -> None:
        """Note what a walk has found: where it ended at the limit, it has not seen the priorities after that."""
        before: Place = now - LATE, FIRST[1]
        seen = rows[-1].priority if len(rows) == limit else LOWEST
        self._places.update(dict.fromkeys(range(HIGHEST, seen - 1, -1), before))
        for row in reversed(rows):
            self._places[row.priority] = min((row.due_at, str(row.handle)), before)
