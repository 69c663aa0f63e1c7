"""How jobs that limits hold up come back: at the end of a job of their key, and by a look once a second.

The look puts back what is held up without a reason that still holds: the code has another limit now, or a holder has
gone in a way that no settlement tells of. It writes nothing where nothing is to be done.
"""

import time
from collections.abc import Iterable, Mapping, Sequence

from ..core.clock import SECOND
from ..core.rates import RateLimit
from ..core.settlement import Settlement
from ..engines import Engine, options_for
from ..engines.contract_parts import Parked, RateState
from .clock_repair import ClockRepair
from .limits import BEING_PUT_BACK, SOON, KeyLimit, Limits, of_rate_key
from .quotas import of_queue

PERIOD = 1.0  # seconds
UNPARKED_BATCH = 500  # jobs, with which a look ends
KEYS_BATCH = 200  # that a look goes through
LOOK_AGAIN = 0.1  # seconds, after a look that has failed
SWEEPING_SHARE = 0.1  # of the time, that sweeps take; the looks of one follow each other at once
RATE_KEY = of_rate_key("")


def unpark_after(engine: Engine, settlements: Sequence[Settlement]) -> None:
    """Unpark as many jobs of each key as jobs of it have ended, or are held no more.

    One at least: the end of a job that only waited may be what the next one of an ordered key has waited for. If any
    are unparked, all settlements with a key say so.
    """
    ended: dict[str, int] = {}
    for settlement in settlements:
        if (key := settlement.job.concurrency_key) is not None:
            ended[key] = ended.get(key, 0) + (1 if settlement.job.worker_id else 0)
    if not ended:
        return
    engine.lock_keys(ended)
    if engine.unpark({key: count or 1 for key, count in ended.items()}):
        for settlement in settlements:
            settlement.unparked = settlement.job.concurrency_key is not None


def _names(keys: Iterable[str]) -> list[str]:
    """Return the rate keys of those states that are of rate keys; the others are of queues."""
    return [key.removeprefix(RATE_KEY) for key in keys if key.startswith(RATE_KEY)]


def _is_in_line(parked: Parked, limit: KeyLimit) -> bool:
    """Return whether the jobs of a key wait for their turn: they were stored in order, and their code wants it so.

    Or their code is not known here.
    """
    return parked.stuck is not None and (limit.ordered or not limit.loaded)


class Unparking:
    """The sweeps of one claimer: each goes through all keys, by looks at some. ``next_at``: the next look (monotonic).

    A look that puts back too much does no harm, for claims judge each job again. So it locks no concurrency key.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._parked_after: str | None = ""  # the key behind which the sweep goes on; None: it is through
        self._rates_after: str | None = ""
        self._took = 0.0  # seconds, by this sweep
        self.next_at = 0.0

    def look(self, engine: Engine) -> int:
        """Put jobs of the next keys back into the line; return how many."""
        began = time.monotonic()
        self.next_at = began + LOOK_AGAIN
        back = 0 if self._parked_after is None else self.sweep_keys(engine)
        back += 0 if self._rates_after is None else self.sweep_rates(engine)
        self.next_at = time.monotonic()
        self._took += self.next_at - began
        if self._parked_after is None and self._rates_after is None:
            self._parked_after = self._rates_after = ""
            self.next_at += max(PERIOD, self._took / SWEEPING_SHARE)
            self._took = 0.0
        return back

    def look_if_due(self, engine: Engine) -> bool:
        """Put jobs of the next keys back into the line, if it is time; return whether some may be due now.

        For code that claims without a worker, when it finds nothing that is due.
        """
        return time.monotonic() >= self.next_at and self.look(engine) > 0

    def sweep_keys(self, engine: Engine) -> int:
        """Unpark jobs of the next concurrency keys that are not at their limit; return how many.

        Jobs of keys without a limit go first, some of each key, until few are left.
        """
        found = engine.parked(self._parked_after or "", KEYS_BATCH)
        limits = {parked: self._limits.of_key(parked.queue_name, parked.task_path) for parked in found}
        limits = {parked: limit for parked, limit in limits.items() if self._is_of_mine(engine, parked.queue_name)}
        free = [parked for parked, limit in limits.items() if limit.most is None]
        back = self._unpark(engine, {parked: UNPARKED_BATCH // len(free) + 1 for parked in free}, limits)
        if back >= UNPARKED_BATCH:  # they may have more
            return back
        self._parked_after = found[-1].key if len(found) == KEYS_BATCH else None
        counts: dict[Parked, int] = {}
        for parked, room in self._rooms(engine, limits).items():
            if sum(counts.values()) >= UNPARKED_BATCH:
                self._parked_after = [*counts][-1].key
                break
            counts[parked] = room
        return back + self._unpark(engine, counts, limits)

    def _is_of_mine(self, engine: Engine, queue_name: str) -> bool:
        """Return whether the limits of a queue are known here; what another backend serves is left to its workers."""
        return self._limits.options.serves(queue_name) or not options_for(queue_name, engine.alias).serves(queue_name)

    def _rooms(self, engine: Engine, limits: Mapping[Parked, KeyLimit]) -> dict[Parked, int]:
        """Return how many jobs of keys with a limit may be unparked: as many as may run."""
        most = {parked: limit.most for parked, limit in limits.items() if limit.most is not None}
        held = engine.held_of_keys([parked.key for parked in most])
        rooms = {parked: min(max(number - held[parked.key], 0), UNPARKED_BATCH) for parked, number in most.items()}
        for parked in rooms:
            if parked.stuck == 0 and _is_in_line(parked, limits[parked]):
                rooms[parked] = 0
        return rooms

    def _unpark(self, engine: Engine, counts: Mapping[Parked, int], limits: Mapping[Parked, KeyLimit]) -> int:
        """Unpark up to so many jobs of each of these keys; return how many."""
        back = 0
        for ordered in (False, True):
            some = {
                parked.key: count
                for parked, count in counts.items()
                if count and ordered == (parked.stuck is not None and not _is_in_line(parked, limits[parked]))
            }
            if some:
                with engine.transaction():
                    back += engine.unpark(some, ordered=ordered)
        return back

    def sweep_rates(self, engine: Engine) -> int:
        """Put back jobs whose rate has changed, or was used by a clock that was ahead; return how many.

        Rates that are unused are forgotten.
        """
        found, now, back = engine.all_rates(self._rates_after or "", KEYS_BATCH), engine.now(), 0
        booked = engine.look_up(booked=_names(key for key, _ in found)).booked
        unused: list[str] = []
        changed: dict[str, str] = {}
        for key, state in found:
            name = key.removeprefix(RATE_KEY)
            if key.startswith(RATE_KEY) and name in booked:
                if self._is_changed(name, state, booked[name].task_path, now):
                    changed[name] = booked[name].task_path
            elif state.next_at <= now:
                unused.append(key)
            elif (rate := self._limits.rate_of_queue(key)) and state.interval != rate.interval:
                back += self._take_over(engine, key, rate)
        if unused:
            with engine.transaction():
                known = engine.look_up(rates=unused, booked=_names(unused))
                over = [key for key, (next_at, _) in known.rates.items() if next_at <= now]
                engine.forget_rates([key for key in over if key.removeprefix(RATE_KEY) not in known.booked])
        unbooked = self._unbook(engine, changed, dict(found), now) if changed else 0
        if unbooked < UNPARKED_BATCH:  # else these keys may have more
            self._rates_after = found[-1][0] if len(found) == KEYS_BATCH else None
        return back + unbooked

    def _take_over(self, engine: Engine, key: str, rate: RateLimit) -> int:
        """Have as many starts be owed to the rate of a queue in this code as are owed to the one that is stored.

        During a deploy each process does so once in a while only, as with the rate of a key.
        """
        if self._limits.was_set_right(key):
            return 0
        with engine.transaction():
            engine.lock_queues((), [key])
            now, state = engine.now(), engine.rates([key]).get(key)
            if state and state.next_at > now and state.interval != rate.interval:
                owed = (state.next_at - now) * rate.interval // state.interval + 1  # rounded up
                engine.set_rates({key: RateState(now + owed, rate.interval)})
        self._limits.set_right(key)
        return 1

    def cut_rates(self, engine: Engine, clock_repair: ClockRepair) -> None:
        """If a clock was ahead, have the rates of queues that it has used owe a whole burst, and no more than that."""
        found = {of_queue(name): policy.rate_limit for name, policy in self._limits.queues.items() if policy.rate_limit}
        if not (clock_repair.was_ahead and found):
            return
        with engine.transaction():
            engine.lock_queues((), sorted(found))
            now, cut = engine.now(), {}
            for key, (next_at, interval) in engine.rates(found).items():
                if next_at > (latest := RateLimit(interval, found[key].burst).latest(now)) + SECOND:
                    cut[key] = RateState(latest, interval)
            if cut:
                engine.set_rates(cut)
        clock_repair.was_ahead = False

    def _is_changed(self, key: str, state: RateState, task_path: str, now: int) -> bool:
        """Return whether the moments booked for the jobs of a rate key are not those of the rate now."""
        limit = self._limits.of_key("", task_path)
        if not limit.loaded and state.interval != BEING_PUT_BACK:
            return False
        rate = self._limits.rate_now(limit, key, state)
        return not rate or self._limits.state_by(rate, task_path, state, now) != state

    def _unbook(self, engine: Engine, changed: Mapping[str, str], found: Mapping[str, RateState], now: int) -> int:
        """Put back jobs of rate keys with changed rates, key after key, and have their states be by the new rates.

        ``changed``: the task of each key; ``found``: the states as they were read. Return how many jobs.
        """
        back, states = 0, {}
        with engine.transaction():
            known = {**found, **engine.rates([of_rate_key(key) for key in changed])}  # claims may have used them
            for key, task_path in changed.items():
                state = known[of_rate_key(key)]
                if not self._is_changed(key, state, task_path, now):
                    continue  # another process has put it right
                rate = self._limits.rate_now(self._limits.of_key("", task_path), key, state)
                here = engine.unbook(key, now + 2 * SOON if rate else now, UNPARKED_BATCH)
                back += here
                if rate:
                    next_at, interval = self._limits.state_by(rate, task_path, state, now)
                    is_over = here < UNPARKED_BATCH
                    states[of_rate_key(key)] = RateState(next_at, interval if is_over else BEING_PUT_BACK)
                    if is_over:
                        self._limits.set_right(key)
                if back >= UNPARKED_BATCH:
                    break
            if states:
                engine.set_rates(states)
        return back
