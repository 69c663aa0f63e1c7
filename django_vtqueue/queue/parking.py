"""What a claim judges of jobs with keys: which may start, which are parked, and for which a moment is reserved."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ..core.job import Due, Handle
from ..core.rates import Rate
from ..engines import Engine
from ..engines.limits import RateState
from .limits import SOON, Limits, next_at_of, of_rate_key


def judge(
    engine: Engine, limits: Limits, due: Sequence[Due], limit: int, now: int, granted: Collection[Handle] = ()
) -> "Verdict":
    """Return which of these rows the first ``limit`` places of a claim may be given to; it writes nothing.

    Rows behind these places are not judged: they are claimed ahead, or left alone. ``granted``: rows that were
    allowed before others of their rate were moved; they use their rate first, whatever has come up ahead of them.
    """
    awaited = {path for path in {row.task_path for row in due if row.keys} if limits.awaits(path)}
    places, paces, verdict = Places(engine, limits, due), Paces(engine, limits, due, now), Verdict()
    for row in due if granted else ():
        if row.handle in granted:
            paces.take(row)
    for row in due:
        if not row.keys or len(verdict.allowed) >= limit:
            verdict.allowed.append(row)
        elif row.task_path in awaited:
            verdict.reserved[row.handle] = now + SOON
        elif not places.free(row):
            verdict.parked.append(row.handle)
        elif row.handle not in granted and (moment := paces.moment(row)):
            verdict.reserved[row.handle] = moment
        else:
            places.take(row)
            if row.handle not in granted:
                paces.take(row)
            verdict.allowed.append(row)
    verdict.first, verdict.rates = places.waiting, paces.changed
    return verdict


@dataclass(slots=True)
class Verdict:
    """Which due rows a claim may lease, and which it may not: those are to be parked, or have a moment ``reserved``.

    ``first``: jobs that are the first of their key: one that is parked is to be put back. ``rates``: their states after
    the claim.
    """

    allowed: list[Due] = field(default_factory=list)
    parked: list[Handle] = field(default_factory=list)
    reserved: dict[Handle, int] = field(default_factory=dict)
    first: set[Handle] = field(default_factory=set)
    rates: dict[str, RateState] = field(default_factory=dict)

    def put_aside(self, engine: Engine) -> int:
        """Park and move what is not allowed; return how many jobs."""
        if self.parked:
            engine.park(self.parked)
        if self.first:
            engine.put_back(sorted(self.first))
        if self.reserved:
            engine.reserve(self.reserved)
        return len(self.parked) + len(self.reserved)


class Places:
    """The places that are free of the concurrency keys of due rows. ``waiting``: those whose turn it is instead."""

    def __init__(self, engine: Engine, limits: Limits, due: Sequence[Due]) -> None:
        self.waiting: set[Handle] = set()
        keyed = [(row, row.keys[0], row.keys[1]) for row in due if row.keys and row.keys[1] is not None]
        of = {(queue_name, row.task_path): None for row, queue_name, _ in keyed}
        found = {each: limits.of_key(*each) for each in of}
        self._limits = {row.handle: found[queue_name, row.task_path] for row, queue_name, _ in keyed}
        keys = {key or "" for _, _, key in keyed}
        ordered = {key or "" for row, _, key in keyed if self._limits[row.handle].ordered}
        self._running = Counter(engine.held_of_keys(keys)) if keys else Counter[str]()
        self._first = engine.first_of_keys(ordered) if ordered else {}

    def free(self, row: Due) -> bool:
        """Return whether a row may start, as far as its concurrency key says it."""
        key = row.keys[1] if row.keys else None
        if key is None:
            return True
        limit = self._limits[row.handle]
        if limit.ordered and self._first[key] != row.handle:
            self.waiting.add(self._first[key])
            return False
        return limit.most is None or self._running[key] < limit.most

    def take(self, row: Due) -> None:
        """Note that a row starts."""
        if row.keys and row.keys[1] is not None:
            self._running[row.keys[1]] += 1


class Paces:
    """When jobs of the rate keys of due rows may start. ``changed``: the states of the rates after those that do."""

    def __init__(self, engine: Engine, limits: Limits, due: Sequence[Due], now: int) -> None:
        self.changed: dict[str, RateState] = {}
        self._now = now
        self._waited: set[str] = set()
        keyed = [(row.handle, row.task_path, key) for row in due if row.keys and (key := row.keys[2]) is not None]
        keys = {key for _, _, key in keyed}
        self._states = engine.rates(map(of_rate_key, keys)) if keys else {}
        lines = engine.reserved(keys) if keys else {}
        self._last = {key: moment for key, (moment, _) in lines.items()}
        of = {(path, key): None for _, path, key in keyed}
        found = {(path, key): limits.rate_of(path, key, self._states.get(of_rate_key(key))) for path, key in of}
        self._rates = {handle: found[path, key] for handle, path, key in keyed}

    def moment(self, row: Due) -> int | None:
        """Return the moment that is reserved for a row now; None if it may start.

        A new job goes to the end of the line. One that was moved before starts when its moment has come. If the one
        before it was a bit late it waits for as long; if it is late itself, for nothing was claimed, it goes to the
        end.
        """
        rate, key = self._rates.get(row.handle), row.keys[2] if row.keys else None
        if rate is None or key is None:
            return None
        state, last = self._states.get(of_rate_key(key)), self._last.get(key)
        stale = state is not None and state.interval != rate.interval
        earliest = rate.allowed_at(self._next_at(key, rate))
        moved = row.keys is not None and row.keys[3] is not None
        if earliest <= self._now and (moved or stale or last is None or last <= self._now):
            return None
        if stale and last is not None:  # the line of the old rate is being given back
            return self._now + SOON
        if moved and earliest - self._now < rate.interval and key not in self._waited:
            self._waited.add(key)
            return earliest
        self._last[key] = max(earliest, self._now + 1, 0 if last is None else last + rate.interval)
        return self._last[key]

    def take(self, row: Due) -> None:
        """Note that a row starts."""
        rate, key = self._rates.get(row.handle), row.keys[2] if row.keys else None
        if rate is not None and key is not None:
            after = RateState(rate.started(self._next_at(key, rate), self._now), rate.interval)
            self._states[of_rate_key(key)] = self.changed[of_rate_key(key)] = after

    def _next_at(self, key: str, rate: Rate) -> int:
        state = self._states.get(of_rate_key(key))
        if state and key in self._last:  # what a clock that was ahead has made of it is set right by the look
            return state.next_at
        return next_at_of(state, rate, self._now)
