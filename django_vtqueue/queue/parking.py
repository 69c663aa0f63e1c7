"""What a claim judges of jobs with keys: which may start, which are parked, and for which a moment is booked."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ..core.job import Due, Handle
from ..core.rates import Rate
from ..engines import Engine
from ..engines.limits import Known, RateState
from .limits import NO_QUEUES, SOON, KeyLimit, LimitedQueues, Limits, Room, next_at_of, of_rate_key

LimitsOf = Mapping[tuple[str, str], KeyLimit]  # by queue and path of a task


class Judge:
    """What a claim knows of its limited queues, and of the keys of due rows: all of it from one look-up."""

    def __init__(self, engine: Engine, limits: Limits, rows: Sequence[Due], queues: LimitedQueues = NO_QUEUES) -> None:
        self._limits, self._queues = limits, queues
        self._limits_of: dict[tuple[str, str], KeyLimit] = {}
        self._awaited: set[str] = set()  # paths of tasks that are being imported
        keys: set[str] = set()
        first: set[str] = set()
        booked: set[str] = set()
        for row in (row for row in rows if row.may_be_limited):
            if (kind := (row.queue_name, row.task_path)) not in self._limits_of:
                if limits.awaits(row.task_path):  # before its limits are read, for this may load them
                    self._awaited.add(row.task_path)
                self._limits_of[kind] = limits.of_key(*kind)
            if (key := row.concurrency_key) is not None:
                (first if self._limits_of[kind].ordered else keys).add(key)
            if (key := row.rate_key) is not None:
                booked.add(key)
        rates = [*queues.rates, *map(of_rate_key, booked)]
        self._known = engine.look_up(queues=queues.most, keys=keys | first, first=first, rates=rates, booked=booked)

    def rooms(self, now: int) -> dict[str, Room]:
        """Return the room that the limited queues have now."""
        return self._queues.rooms(self._known, now)

    def verdict(self, due: Sequence[Due], limit: int, now: int, granted: Collection[Handle] = ()) -> "Verdict":
        """Return which of these rows the first ``limit`` places of a claim may be given to; it writes nothing.

        Rows behind these places are not judged: they are claimed ahead, or left alone. ``granted``: rows that were
        allowed before others of their rate were moved; they use their rate first, whatever has come up ahead of them.
        """
        places, paces = Places(self._limits_of, self._known), Paces(self._limits, self._limits_of, self._known, now)
        verdict = Verdict()
        for row in due if granted else ():
            if row.handle in granted:
                paces.start(row)
        for row in due:
            if len(verdict.allowed) >= limit or not row.may_be_limited:
                verdict.allowed.append(row)
            elif row.task_path in self._awaited:
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
        self._running = defaultdict(int, known.keys)  # a key that was damaged, with a NUL, is not among these

    def free(self, row: Due) -> bool:
        """Return whether a row may start, as far as its concurrency key says it."""
        if (key := row.concurrency_key) is None:
            return True
        limit = self._limits_of[row.queue_name, row.task_path]
        if limit.ordered and (first := self._first.get(key, row.handle)) != row.handle:
            self.waiting.add(first)
            return False
        return limit.most is None or self._running[key] < limit.most

    def start(self, row: Due) -> None:
        """Note that a row starts."""
        if row.concurrency_key is not None:
            self._running[row.concurrency_key] += 1


class Paces:
    """When jobs of the rate keys of due rows may start."""

    def __init__(self, limits: Limits, limits_of: LimitsOf, known: Known, now: int) -> None:
        self._limits, self._limits_of, self._known, self._now = limits, limits_of, known, now
        self._of: dict[str, Pace] = {}

    def moment(self, row: Due) -> int | None:
        """Return the moment that is booked for a row now; None if it starts, which is noted."""
        pace, rate = self._pace(row)
        return pace.moment(rate, self._now, moved=row.moved_from is not None) if pace and rate else None

    def start(self, row: Due) -> None:
        """Note that a row starts."""
        pace, rate = self._pace(row)
        if pace and rate:
            pace.start(rate, self._now)

    def _pace(self, row: Due) -> "tuple[Pace | None, Rate | None]":
        """Return the pace of a row's key, and the rate of its task; None if it has none."""
        if (key := row.rate_key) is None:
            return None, None
        state = self._known.rates.get(of_rate_key(key))
        rate = self._limits.rate_of(self._limits_of[row.queue_name, row.task_path], key, state)
        if rate and key not in self._of:
            self._of[key] = Pace.of(state, self._known.booked.get(key), rate, self._now)
        return self._of.get(key), rate

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
