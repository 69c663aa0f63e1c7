"""The ticks of a recurring job: when they are, which of the missed ones are run, and what people may write for them.

An expression has the five fields of cron, or is "every N" (seconds). Both name fixed instants, whenever one asks: so
the tick after an old one is the same for every worker, and no delay of one tick moves the next.
"""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import islice
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from .clock import EPOCH, MICROSECOND, SECOND, microseconds
from .humanize import duration

ONE, ALL, SKIP = "one", "all", "skip"  # what becomes of missed ticks
MOST_MISSED = 100  # missed ticks that are run one by one
LATE = 60 * SECOND  # a tick that is fired later than this was missed
FARTHEST = 50 * 366 * 86_400 * SECOND  # from one tick to the next one, as in cronsim
EVERY = "every "
LONGEST = 255  # characters of an expression
MALFORMED = (CronSimError, AssertionError, ValueError, TypeError, RecursionError)  # what cronsim raises
SIX = (
    " Some libraries have a sixth field, the seconds, as the first one or as the last one: leave it out. A period of "
    "seconds is every=timedelta(seconds=30) in code, and 'every 30' in the admin."
)
NICKNAMES = {
    "@HOURLY": "0 * * * *",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@WEEKLY": "0 0 * * 0",
    "@MONTHLY": "0 0 1 * *",
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
}
FIELDS = "minute (0-59), hour (0-23), day of the month (1-31), month (1-12), day of the week (0-7)"


def every(period: float | timedelta) -> str:
    """Return the expression of a period; raise ValueError if it is not whole seconds, 1 or more."""
    try:
        found = microseconds(period)
    except (ValueError, TypeError):
        found = 0
    if found < SECOND or found % SECOND:
        raise ValueError(
            f"every is {period!r}, but must be a timedelta (or seconds) of whole seconds, 1 or more: "
            "every=timedelta(minutes=5)."
        )
    return f"{EVERY}{found // SECOND}"


def checked(expression: str) -> str:
    """Return an expression in its stored form; raise ValueError that says what is wrong with it.

    One that never comes, as the 30th of February, is none of these: see ``Ticks.after``.
    """
    if not isinstance(expression, str):
        raise ValueError(f"A cron expression is a text such as '0 3 * * *', not {expression!r:.100}.")
    if expression.startswith(EVERY):
        seconds = expression.removeprefix(EVERY)
        if not re.fullmatch("[0-9]{1,11}", seconds) or not int(seconds):
            raise ValueError(
                f"The period {expression!r:.100} is wrong: say 'every' and whole seconds, 1 or more, as in 'every 300'."
            )
        return every(int(seconds))
    fields = expression.upper().split()
    if len(fields) != 5:
        number = f"{len(fields)} field{'' if len(fields) == 1 else 's'}"
        hint = SIX if len(fields) == 6 else ""
        if instead := NICKNAMES.get(" ".join(fields)):
            hint = f" Instead of {fields[0].lower()} write '{instead}'."
        raise ValueError(f"The cron expression {expression!r:.100} has {number}, but must have five: {FIELDS}.{hint}")
    if wrong := _refusal(fields):
        raise ValueError(f"The cron expression {expression!r:.100} is wrong: {wrong}. Its fields are: {FIELDS}.")
    if len(found := " ".join(fields)) > LONGEST:
        raise ValueError(
            f"The cron expression {expression!r:.100} has {len(found)} characters; {LONGEST} are allowed. Say it by "
            "ranges and steps, such as 0-59/2, or by several schedules."
        )
    return found


def _refusal(fields: list[str]) -> str:
    """Return what cronsim has against five fields; "" if it is only that their day is in no such month."""
    try:
        CronSim(" ".join(fields), EPOCH)
    except MALFORMED as error:
        any_month = [*fields[:3], "*", fields[4]]
        return "" if fields != any_month and "day-of-month" in str(error) and not _refusal(any_month) else str(error)
    return ""


def zone(name: str) -> ZoneInfo:
    """Return a time zone by its name; raise ValueError if this machine knows none of that name."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not there, no name of a file, a folder
        raise ValueError(
            f"There is no time zone {name!r:.100} on this machine: give a name such as 'Europe/Paris', or install "
            "the time zones (python -m pip install tzdata)."
        ) from None


@dataclass(frozen=True)
class Ticks:
    """The instants of an expression; ``time_zone``: of its fields, "" for a period, which is counted from 1970."""

    expression: str
    time_zone: str = ""

    @cached_property
    def _period(self) -> int:
        found = re.fullmatch(f"{EVERY}([0-9]{{1,11}})", self.expression)
        return int(found[1]) * SECOND if found else 0

    @cached_property
    def _zone(self) -> ZoneInfo:
        return zone(self.time_zone or "UTC")

    def after(self, instant: int) -> int | None:
        """Return the first tick later than an instant; None for a period of more than 50 years, and for no expression.

        None, too, if a cron expression has none within 50 years.

        Raise ValueError if this machine does not know the time zone.
        """
        if self._period:
            return instant - instant % self._period + self._period if self._period <= FARTHEST else None
        # In an hour that comes twice cronsim may return what is over: a fixed time is that of the first one.
        return next((tick for tick in self._cron(instant) if tick > instant), None)

    def within(self, first: int, last: int) -> Iterator[int]:
        """Yield the ticks from ``first`` to ``last``, both included."""
        tick = self.after(first - 1)
        while tick is not None and tick <= last:
            yield tick
            tick = self.after(tick)

    def upcoming(self, instant: int, count: int) -> list[int]:
        """Return the first ticks later than an instant."""
        found: list[int] = []
        while len(found) < count and (tick := self.after(found[-1] if found else instant)) is not None:
            found.append(tick)
        return found

    def back(self, instant: int, count: int) -> int:
        """Return an instant with about so many ticks between it and the later one given."""
        if self._period:
            return instant - count * self._period
        return min(islice(self._cron(instant, reverse=True), count), default=instant)

    def in_words(self) -> str:
        """Return the expression as a sentence in English, without its time zone."""
        if self._period:
            return f"Every {duration(self._period)}"
        try:
            return CronSim(self.expression, EPOCH).explain()
        except MALFORMED:
            return "Never"

    def _cron(self, instant: int, *, reverse: bool = False) -> Iterator[int]:
        name = self._zone
        try:
            start = (EPOCH + timedelta(0, 0, instant)).astimezone(name)
            for moment in CronSim(self.expression, start, reverse):
                yield (moment - EPOCH) // MICROSECOND
        except (*MALFORMED, OverflowError):  # a day that is in no such month, a damaged row; the end of time
            return


def to_run(ticks: Ticks, next_at: int, now: int, missed: str) -> tuple[list[int], bool]:
    """Return which of the ticks from ``next_at`` to ``now`` are run, and whether more than these were wanted.

    ``missed``: "one": the first one, for all; "all": the last MOST_MISSED; "skip": the last one, if it is not LATE.
    """
    if missed == ONE:
        return [next_at], False
    first = max(next_at, now - LATE if missed == SKIP else ticks.back(now, MOST_MISSED + 1))
    found = deque(ticks.within(first, now), maxlen=MOST_MISSED + 1)
    if missed == SKIP:
        return list(found)[-1:], False
    return list(found)[-MOST_MISSED:], len(found) > MOST_MISSED or first > next_at
