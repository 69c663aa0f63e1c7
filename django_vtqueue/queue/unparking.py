"""How jobs that limits hold up come back: at the end of a job of their key, and by a look once a second.

The look puts back what is held up without a reason that still holds: the code has another limit now, or a holder has
gone in a way that no settlement tells of. It writes nothing where nothing is to be done.
"""

import time
from collections.abc import Iterable, Sequence

from ..core.clock import SECOND
from ..core.rates import RateLimit
from ..core.settlement import Settlement
from ..engines import Engine, options_for
from ..engines.contract_parts import Parked, RateState
from .clock_repair import ClockRepair
from .limits import BEING_PUT_BACK, SOON, KeyLimit, Limits, of_rate_key
from .quotas import of_queue

PERIOD = 1.0  # seconds
UNPARKED_BATCH = 500  # jobs of a key
KEYS_BATCH = 200  # that one look goes through
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
    if ended and engine.unpark({key: count or 1 for key, count in ended.items()}):
        for settlement in settlements:
            settlement.unparked = settlement.job.concurrency_key is not None


def _names(keys: Iterable[str]) -> list[str]:
    """Return the rate keys of those states that are of rate keys; the others are of queues."""
    return [key.removeprefix(RATE_KEY) for key in keys if key.startswith(RATE_KEY)]


def _is_in_line(limit: KeyLimit) -> bool:
    """Return whether a job that was stored in order waits for its turn: its code says so, or is not known here."""
    return limit.ordered or not limit.loaded


class Unparking:
    """The sweep of one claimer, which goes on where it ended the last time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._parked_after = self._rates_after = ""  # the keys behind which to go on; "": it begins anew
        self._next_at = 0.0  # monotonic

    def sweep(self, engine: Engine) -> tuple[int, bool]:
        """Put jobs back into the line; return how many, and whether there may be more."""
        parked, booked = self.sweep_keys(engine), self.sweep_rates(engine)
        more = max(parked, booked) >= UNPARKED_BATCH or bool(self._parked_after or self._rates_after)
        return parked + booked, more

    def sweep_if_due(self, engine: Engine) -> bool:
        """Put jobs back into the line, if the last look is a second ago; return whether some may be due now.

        For code that claims without a worker, when it finds nothing that is due.
        """
        if time.monotonic() < self._next_at:
            return False
        self._next_at = time.monotonic() + PERIOD
        return self.sweep_keys(engine) + self.sweep_rates(engine) > 0

    def sweep_keys(self, engine: Engine) -> int:
        """Unpark jobs of concurrency keys that are not at their limit; return how many.

        One key in a transaction: two looks, or a look and a settlement, may want the same keys in another order.
        """
        found, back = engine.parked(self._parked_after, KEYS_BATCH), 0
        for parked in found:
            if self._to_unpark(engine, parked):
                with engine.transaction():
                    back += self._unpark(engine, parked, self._to_unpark(engine, parked))
        self._parked_after = found[-1].key if len(found) == KEYS_BATCH else ""
        return back

    def _unpark(self, engine: Engine, parked: Parked, count: int) -> int:
        """Unpark up to so many jobs of a key; return how many."""
        ordered = parked.stuck is not None and not _is_in_line(self._limits.of_key(parked.queue_name, parked.task_path))
        return engine.unpark({parked.key: count}, ordered=ordered) if count else 0

    def _to_unpark(self, engine: Engine, parked: Parked) -> int:
        """Return how many parked jobs of a key are to be unparked: as many as may run.

        What another backend serves is left to its own workers, which know its limits.
        """
        name = parked.queue_name
        if not self._limits.options.serves(name) and options_for(name, engine.alias).serves(name):
            return 0
        limit, count = self._limits.of_key(parked.queue_name, parked.task_path), UNPARKED_BATCH
        if limit.most is not None:
            count = min(count, max(limit.most - engine.held_of_keys([parked.key])[parked.key], 0))
        return min(count, parked.stuck) if parked.stuck is not None and _is_in_line(limit) else count

    def sweep_rates(self, engine: Engine) -> int:
        """Put back jobs whose rate has changed, or was used by a clock that was ahead; return how many.

        Rates that are unused are forgotten.
        """
        found, now, back = engine.all_rates(self._rates_after, KEYS_BATCH), engine.now(), 0
        booked = engine.look_up(booked=_names(key for key, _ in found)).booked
        unused: list[str] = []
        for key, state in found:
            name = key.removeprefix(RATE_KEY)
            if key.startswith(RATE_KEY) and name in booked:
                back += self._unbook(engine, name, state, booked[name].task_path, now)
            elif state.next_at <= now:
                unused.append(key)
            elif (rate := self._limits.rate_of_queue(key)) and state.interval != rate.interval:
                back += self._take_over(engine, key, rate)
        if unused:
            with engine.transaction():
                known = engine.look_up(rates=unused, booked=_names(unused))
                over = [key for key, (next_at, _) in known.rates.items() if next_at <= now]
                engine.forget_rates([key for key in over if key.removeprefix(RATE_KEY) not in known.booked])
        self._rates_after = found[-1][0] if len(found) == KEYS_BATCH else ""
        return back

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

    def _unbook(self, engine: Engine, key: str, state: RateState, task_path: str, now: int) -> int:
        """Put back the jobs of a rate key, if the moments booked for them are not those of the rate now."""
        limit = self._limits.of_key("", task_path)
        if not limit.loaded and state.interval != BEING_PUT_BACK:
            return 0
        name, rate = of_rate_key(key), self._limits.rate_now(limit, key, state)
        if rate and self._limits.state_by(rate, task_path, state, now) == state:
            return 0
        with engine.transaction():
            state = engine.rates([name]).get(name, state)  # a claim may have used it
            back = engine.unbook(key, now + 2 * SOON if rate else now, UNPARKED_BATCH)
            if rate:
                next_at, interval = self._limits.state_by(rate, task_path, state, now)
                is_over = back < UNPARKED_BATCH
                engine.set_rates({name: RateState(next_at, interval if is_over else BEING_PUT_BACK)})
                if is_over:
                    self._limits.set_right(key)
        return back
