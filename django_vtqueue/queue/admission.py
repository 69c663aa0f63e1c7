"""What a claim decides about jobs with keys: which may start, which are parked, and for which a moment is booked."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..core.job import Due, Handle
from ..core.rates import RateLimit
from ..engines import Engine
from ..engines.contract_parts import RateState
from .limits import BEING_PUT_BACK, SOON, KeyLimit, Limits, of_rate_key
from .quotas import NO_QUEUES, LimitedQueues, Quota


class Line(NamedTuple):
    """The end of the line of a rate key: the last moment that is booked for a job, and the burst of that job's task.

    That many starts may have been early there, and a task with a smaller burst has to wait until they are not.
    """

    due_at: int
    burst: int


class Admission:
    """What a claim knows of its limited queues, and of the keys of due rows: all of it from one look-up."""

    def __init__(self, engine: Engine, limits: Limits, rows: Sequence[Due], queues: LimitedQueues = NO_QUEUES) -> None:
        self._limits, self._queues = limits, queues
        kinds = {(row.queue_name, row.task_path) for row in rows if row.may_be_limited}
        self._limits_of = {kind: limits.of_key(*kind) for kind in kinds}
        keys = {key for row in rows if (key := row.concurrency_key) is not None}
        self._rates = {key: of_rate_key(key) for row in rows if (key := row.rate_key) is not None}
        first = {key for row in rows if row.ordered and (key := row.concurrency_key) is not None}
        rates = [*queues.rates, *self._rates.values()]
        self._known = engine.look_up(queues=queues.most, keys=keys, first=first, rates=rates, booked=self._rates)
        self._last = {key: Line(at, self._burst_of(path)) for key, (at, path) in self._known.booked.items()}
        self._waited: set[str] = set()  # rate keys of which a job that was moved before waits for the one before it

    def quotas(self, now: int) -> dict[str, Quota]:
        """Return the quotas of the limited queues now."""
        return self._queues.quotas(self._known, now)

    def decide(self, due: Sequence[Due], limit: int, now: int, granted: Collection[Handle] = ()) -> "Decision":
        """Return which of these rows the first ``limit`` places of a claim may be given to; it writes nothing.

        Rows behind these places are not judged: they are claimed ahead, or left alone. ``granted``: rows that were
        allowed before others of their rate were moved; they use their rate first, whatever has come up ahead of them.
        It is asked for once: what starts is counted from then on.
        """
        decision, running = Decision(), self._known.keys
        for row in due if granted else ():
            if row.handle in granted and row.may_be_limited:
                self._moment(row, self._limits_of[row.queue_name, row.task_path], now, decision, granted=True)
        for row in due:
            if len(decision.allowed) >= limit or not row.may_be_limited:
                decision.allowed.append(row)
            elif not (own := self._limits_of[row.queue_name, row.task_path]).loaded:
                decision.to_load.add(row.handle)
                decision.allowed.append(row)
            elif not self._has_place(row, own, decision):
                decision.parked.append(row.handle)
            elif row.handle not in granted and (moment := self._moment(row, own, now, decision)):
                decision.booked[row.handle] = moment
            else:
                if (key := row.concurrency_key) is not None:
                    running[key] = running.get(key, 0) + 1
                decision.allowed.append(row)
        return decision

    def _has_place(self, row: Due, limit: KeyLimit, decision: "Decision") -> bool:
        """Return whether a row may start, as far as its concurrency key says it; note whose turn it is instead."""
        if (key := row.concurrency_key) is None:
            return True
        if row.ordered and limit.ordered and (first := self._known.first.get(key, row.handle)) != row.handle:
            decision.first.add(first)
            return False
        return limit.most is None or self._known.keys.get(key, 0) < limit.most

    def _moment(
        self, row: Due, limit: KeyLimit, now: int, decision: "Decision", *, granted: bool = False
    ) -> int | None:
        """Return the moment that is booked for a row now; None if its rate lets it start, which is noted.

        A new job goes to the end of the line. One that was moved before starts when its moment has come. If the one
        before it was a bit late it waits for as long; if it is late itself, for nothing was claimed, it goes to the
        end. ``granted``: it starts in any case.
        """
        if (key := row.rate_key) is None:
            return None
        name, line = self._rates[key], self._last.get(key)
        rate, state = self._rate(row, name, limit, now, decision, booked=line is not None)
        if not rate:
            return None
        next_at, interval = state or RateState(now, rate.interval)
        earliest, moved = rate.allowed_at(next_at), row.moved_from is not None
        if granted or (earliest <= now and (moved or line is None or line.due_at < now)):
            decision.rates[name] = self._known.rates[name] = RateState(rate.started(next_at, now), interval)
            return None
        if interval == BEING_PUT_BACK:
            return now + SOON
        if moved and earliest - now < rate.interval and key not in self._waited:
            self._waited.add(key)
            return earliest
        if line is not None:
            earliest = max(earliest, rate.allowed_behind(line.due_at, line.burst))
        self._last[key] = Line(max(earliest, now + 1), rate.burst)
        return self._last[key].due_at

    def _rate(
        self, row: Due, name: str, limit: KeyLimit, now: int, decision: "Decision", *, booked: bool
    ) -> tuple[RateLimit | None, RateState | None]:
        """Return the rate by which a row is judged, and the state of its rate key, which has this ``name``.

        While moments are booked it is the rate of the state; else the key has the rate of this row's task from now on.
        """
        state = self._known.rates.get(name)
        if booked or not limit.rate:
            return limit.rate_in(state), state
        if state and (state.interval != limit.rate.interval or state.next_at > limit.rate.latest(now)):
            known, state = state, self._limits.state_by(limit.rate, row.task_path, state, now)
            if state != known and name not in decision.rates:
                decision.mended[name] = self._known.rates[name] = state
        return limit.rate, state

    def _burst_of(self, task_path: str) -> int:
        """Return the burst of a task; 1 if it has no rate here."""
        rate = self._limits.of_key("", task_path).rate
        return rate.burst if rate else 1


@dataclass(slots=True)
class Decision:
    """Which due rows a claim may lease, and which it may not: those are to be parked, or have a moment ``booked``.

    ``to_load``: allowed ones of a task that is not loaded here: they only load it. ``first``: jobs that are the first
    of their key: one that is parked is to be put back. ``rates``: their states after the claim; ``mended``: those that
    are to be changed, whether something starts or not.
    """

    allowed: list[Due] = field(default_factory=list)
    to_load: set[Handle] = field(default_factory=set)
    parked: list[Handle] = field(default_factory=list)
    booked: dict[Handle, int] = field(default_factory=dict)
    first: set[Handle] = field(default_factory=set)
    rates: dict[str, RateState] = field(default_factory=dict)
    mended: dict[str, RateState] = field(default_factory=dict)

    def put_aside(self, engine: Engine) -> int:
        """Park and move what is not allowed, and mend states; return how many jobs."""
        if self.parked:
            engine.park(self.parked)
        if self.first:
            engine.unpark_rows(sorted(self.first))
        if self.booked:
            engine.book(self.booked)
        if self.mended:
            engine.set_rates(self.mended)
        return len(self.parked) + len(self.booked)
