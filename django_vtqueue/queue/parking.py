"""What a claim judges of jobs with keys: which may start, which are parked, and for which a moment is booked."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ..core.job import Due, Handle
from ..core.rates import Rate
from ..engines import Engine
from ..engines.limits import Known, RateState
from .limits import SOON, KeyLimit, Limits, next_at_of, of_rate_key

LimitsOf = Mapping[tuple[str, str], KeyLimit]  # by queue and path of a task


def judge(
    engine: Engine, limits: Limits, due: Sequence[Due], limit: int, now: int, granted: Collection[Handle] = ()
) -> "Verdict":
    """Return which of these rows the first ``limit`` places of a claim may be given to; it writes nothing.

    Rows behind these places are not judged: they are claimed ahead, or left alone. ``granted``: rows that were
    allowed before others of their rate were moved; they use their rate first, whatever has come up ahead of them.
    """
    keyed = [row for row in due if row.keyed]
    awaited = {path for path in {row.task_path for row in keyed} if limits.awaits(path)}
    limits_of = {each: limits.of_key(*each) for each in {(row.queue_name, row.task_path) for row in keyed}}
    known = look_up(engine, keyed, limits_of)
    places, paces, verdict = Places(limits_of, known), Paces(limits, keyed, known, now), Verdict()
    for row in keyed if granted else ():
        if row.handle in granted:
            paces.start(row)
    for row in due:
        if len(verdict.allowed) >= limit or not row.keyed:
            verdict.allowed.append(row)
        elif row.task_path in awaited:
            verdict.booked[row.handle] = now + SOON
        elif not places.free(row):
            verdict.parked.append(row.handle)
        elif row.handle not in granted and (moment := paces.moment(row)):
            verdict.booked[row.handle] = moment
        else:
            places.start(row)
            verdict.allowed.append(row)
    verdict.first, verdict.rates = places.waiting, paces.changed()
    return verdict


def look_up(engine: Engine, rows: Sequence[Due], limits_of: LimitsOf) -> Known:
    """Return what is known of the keys of rows."""
    keys = {key for row in rows if (key := row.concurrency_key) is not None}
    ordered = [each for each, limit in limits_of.items() if limit.ordered]
    first = {row.concurrency_key or "" for row in rows if (row.queue_name, row.task_path) in ordered} if ordered else ()
    rate_keys = {key for row in rows if (key := row.rate_key) is not None}
    return engine.look_up(keys=keys, first=first, rates=[of_rate_key(key) for key in rate_keys], booked=rate_keys)


@dataclass(slots=True)
class Verdict:
    """Which due rows a claim may lease, and which it may not: those are to be parked, or have a moment ``booked``.

    ``first``: jobs that are the first of their key: one that is parked is to be put back. ``rates``: their states after
    the claim.
    """

    allowed: list[Due] = field(default_factory=list)
    parked: list[Handle] = field(default_factory=list)
    booked: dict[Handle, int] = field(default_factory=dict)
    first: set[Handle] = field(default_factory=set)
    rates: dict[str, RateState] = field(default_factory=dict)

    def put_aside(self, engine: Engine) -> int:
        """Park and move what is not allowed; return how many jobs."""
        if self.parked:
            engine.park(self.parked)
        if self.first:
            engine.unpark_rows(sorted(self.first))
        if self.booked:
            engine.book(self.booked)
        return len(self.parked) + len(self.booked)


class Places:
    """The places that are free of the concurrency keys of due rows. ``waiting``: those whose turn it is instead."""

    def __init__(self, limits_of: LimitsOf, known: Known) -> None:
        self.waiting: set[Handle] = set()
        self._limits_of, self._first = limits_of, known.first
        self._running = Counter(known.keys)  # a key that was damaged, with a NUL, is not among these

    def free(self, row: Due) -> bool:
        """Return whether a row may start, as far as its concurrency key says it."""
        if (key := row.concurrency_key) is None:
            return True
        most, ordered = self._limits_of[row.queue_name, row.task_path]
        if ordered and (first := self._first.get(key, row.handle)) != row.handle:
            self.waiting.add(first)
            return False
        return most is None or self._running[key] < most

    def start(self, row: Due) -> None:
        """Note that a row starts."""
        if row.concurrency_key is not None:
            self._running[row.concurrency_key] += 1


class Paces:
    """When jobs of the rate keys of due rows may start."""

    def __init__(self, limits: Limits, rows: Sequence[Due], known: Known, now: int) -> None:
        self._now = now
        self._of: dict[str, Pace] = {}
        self._rates: dict[str, dict[str, Rate | None]] = {}  # by path of a task, and key
        states: dict[str, dict[str, RateState | None]] = {}
        for row in rows:
            if (key := row.rate_key) is not None:
                states.setdefault(row.task_path, {})[key] = known.rates.get(of_rate_key(key))
        for path, of_keys in states.items():
            self._rates[path] = limits.rates_of(path, of_keys)
            for key, rate in self._rates[path].items():
                if rate and key not in self._of:
                    self._of[key] = Pace.of(of_keys[key], known.booked.get(key), rate, now)

    def moment(self, row: Due) -> int | None:
        """Return the moment that is booked for a row now; None if it starts, which is noted."""
        key = row.rate_key
        if key is None or (rate := self._rates[row.task_path][key]) is None:
            return None
        return self._of[key].moment(rate, self._now, moved=row.moved_from is not None)

    def start(self, row: Due) -> None:
        """Note that a row starts."""
        key = row.rate_key
        if key is not None and (rate := self._rates[row.task_path][key]) is not None:
            self._of[key].start(rate, self._now)

    def changed(self) -> dict[str, RateState]:
        """Return the states of the rates under which rows start, after these starts."""
        of = self._of.items()
        return {of_rate_key(key): RateState(pace.next_at, pace.interval) for key, pace in of if pace.started}


@dataclass(slots=True)
class Pace:
    """When jobs of one rate key may start: see RateState. ``last``: the last moment that is booked for one of them.

    ``waited``: whether one that was moved before waits for the one before it.
    """

    next_at: int
    interval: int
    last: int | None
    waited: bool = False
    started: bool = False

    @classmethod
    def of(cls, state: RateState | None, line: tuple[int, str] | None, rate: Rate, now: int) -> "Pace":
        """Return the pace of a key with this state, and this end of its line; ``rate``: that of its task."""
        if state and line:  # what a clock that was ahead has made of it is set right by the look
            return cls(state.next_at, state.interval, line[0])
        return cls(next_at_of(state, rate, now), state.interval if state else rate.interval, line[0] if line else None)

    def moment(self, rate: Rate, now: int, *, moved: bool) -> int | None:
        """Return the moment that is booked for a job now; None if it starts, which is noted.

        A new job goes to the end of the line. One that was moved before starts when its moment has come. If the one
        before it was a bit late it waits for as long; if it is late itself, for nothing was claimed, it goes to the
        end.
        """
        stale, last = self.interval != rate.interval, self.last
        earliest = rate.allowed_at(self.next_at)
        if earliest <= now and (moved or stale or last is None or last <= now):
            self.start(rate, now)
            return None
        if stale and last is not None:  # the line of the old rate is being given back
            return now + SOON
        if moved and earliest - now < rate.interval and not self.waited:
            self.waited = True
            return earliest
        self.last = max(earliest, now + 1, 0 if last is None else last + rate.interval)
        return self.last

    def start(self, rate: Rate, now: int) -> None:
        """Note that a job starts."""
        self.next_at, self.interval, self.started = rate.started(self.next_at, now), rate.interval, True
