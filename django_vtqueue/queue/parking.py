"""What a claim judges of jobs with keys: which may start, which are parked, and for which a moment is booked."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ..core.job import Due, Handle
from ..engines import Engine
from ..engines.limits import Known, RateState
from .limits import NO_QUEUES, SOON, KeyLimit, LimitedQueues, Limits, Room, of_rate_key


class Judge:
    """What a claim knows of its limited queues, and of the keys of due rows: all of it from one look-up."""

    def __init__(self, engine: Engine, limits: Limits, rows: Sequence[Due], queues: LimitedQueues = NO_QUEUES) -> None:
        self._limits, self._queues = limits, queues
        kinds = {(row.queue_name, row.task_path) for row in rows if row.may_be_limited}
        self._limits_of = {kind: limits.of_key_or_import(*kind) for kind in kinds}
        keys = {row.concurrency_key for row in rows if row.concurrency_key is not None}
        booked = {row.rate_key for row in rows if row.rate_key is not None}
        first = keys if any(limit and limit.ordered for limit in self._limits_of.values()) else ()
        rates = [*queues.rates, *map(of_rate_key, booked)]
        self._known = engine.look_up(queues=queues.most, keys=keys, first=first, rates=rates, booked=booked)

    def rooms(self, now: int) -> dict[str, Room]:
        """Return the room that the limited queues have now."""
        return self._queues.rooms(self._known, now)

    def verdict(self, due: Sequence[Due], limit: int, now: int, granted: Collection[Handle] = ()) -> "Verdict":
        """Return which of these rows the first ``limit`` places of a claim may be given to; it writes nothing.

        Rows behind these places are not judged: they are claimed ahead, or left alone. ``granted``: rows that were
        allowed before others of their rate were moved; they use their rate first, whatever has come up ahead of them.
        """
        places, paces, verdict = Places(self._known), Paces(self._limits, self._known, now), Verdict()
        for row in due if granted else ():
            if row.handle in granted and row.rate_key is not None and (own := self._limit_of(row)):
                paces.moment(row, own, granted=True)
        for row in due:
            if len(verdict.allowed) >= limit or not row.may_be_limited:
                verdict.allowed.append(row)
            elif not (own := self._limit_of(row)):
                verdict.booked[row.handle] = now + SOON
            elif not places.free(row, own):
                verdict.parked.append(row.handle)
            elif row.handle not in granted and (moment := paces.moment(row, own)):
                verdict.booked[row.handle] = moment
            else:
                places.start(row)
                verdict.allowed.append(row)
        verdict.first, verdict.rates = places.waiting, paces.states
        return verdict

    def _limit_of(self, row: Due) -> KeyLimit | None:
        """Return the limit for the keys of a row; None if its task is being imported."""
        return self._limits_of[row.queue_name, row.task_path]


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

    def __init__(self, known: Known) -> None:
        self.waiting: set[Handle] = set()
        self._first = known.first
        self._running = defaultdict(int, known.keys)  # a key that was damaged, with a NUL, is not among these

    def free(self, row: Due, limit: KeyLimit) -> bool:
        """Return whether a row may start, as far as its concurrency key says it."""
        if (key := row.concurrency_key) is None:
            return True
        if limit.ordered and (first := self._first.get(key, row.handle)) != row.handle:
            self.waiting.add(first)
            return False
        return limit.most is None or self._running[key] < limit.most

    def start(self, row: Due) -> None:
        """Note that a row starts."""
        if row.concurrency_key is not None:
            self._running[row.concurrency_key] += 1


class Paces:
    """When jobs of the rate keys of due rows may start. ``states``: those of their rates, after the starts."""

    def __init__(self, limits: Limits, known: Known, now: int) -> None:
        self.states: dict[str, RateState] = {}
        self._limits, self._known, self._now = limits, known, now
        self._last = {key: moment for key, (moment, _) in known.booked.items()}  # the last moments that are booked
        self._waited: set[str] = set()  # keys of which a job that was moved before waits for the one before it

    def moment(self, row: Due, limit: KeyLimit, *, granted: bool = False) -> int | None:
        """Return the moment that is booked for a row now; None if it starts, which is noted.

        A new job goes to the end of the line. One that was moved before starts when its moment has come. If the one
        before it was a bit late it waits for as long; if it is late itself, for nothing was claimed, it goes to the
        end. ``granted``: it starts in any case.
        """
        if (key := row.rate_key) is None:
            return None
        name, now, last = of_rate_key(key), self._now, self._last.get(key)
        state = self.states.get(name) or self._known.rates.get(name)
        if not (rate := self._limits.rate_of(limit, key, state)):
            return None
        next_at, interval = state or (now, rate.interval)
        if key not in self._known.booked:  # what a clock that was ahead has made of a line is set right by the look
            next_at = min(next_at, rate.latest(now))
        earliest = rate.allowed_at(next_at)
        moved, stale = row.moved_from is not None, interval != rate.interval
        if granted or (earliest <= now and (moved or stale or last is None or last <= now)):
            self.states[name] = rate.started(next_at, now), rate.interval
            return None
        if stale and last is not None:  # the line of the old rate is being given back
            return now + SOON
        if moved and earliest - now < rate.interval and key not in self._waited:
            self._waited.add(key)
            return earliest
        self._last[key] = max(earliest, now + 1, 0 if last is None else last + rate.interval)
        return self._last[key]
