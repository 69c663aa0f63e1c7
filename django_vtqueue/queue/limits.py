"""Limits: how many jobs of a queue or of a key run at once, in which order, and how often they start.

They are judged by the claim, in its transaction, and counted from the rows that are held: no counter can be wrong. The
limit is what the code of the claiming process says, so a change holds as soon as that code runs. A job of a task that
is not loaded there is claimed without a judgement: the module of its task is imported, and the job is released.

A queue that is at its limit, or over its rate, is left out, as a paused one is. A job whose key is at its limit is
parked (admission.py): it is due no more, so it costs other claims nothing. It is unparked when a job of its key ends,
in the transaction of that settlement (unparking.py), and judged again by the next claim. A job that is over the rate of
its key is moved to a moment that is booked for it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from ..conf import Options, Policy
from ..core.clock import SECOND
from ..core.job import Due, Scope
from ..core.rates import RateLimit, rate_for
from ..core.shares import Shares
from ..engines import Engine
from ..engines.contract_parts import RateState
from .pauses import earliest, unpaused, without
from .quotas import NO_QUEUES, LimitedQueues, Quota, of_queue

AMONG = 100  # jobs of a key at least, of which those that are due are counted
OTHER_RATE_STAYS = 60.0  # seconds for which a rate stays as other code has set it, after this code has set it
BEING_PUT_BACK = 0  # the interval of a rate whose booked jobs are being put back
SOON = SECOND  # microseconds by which a job is put off while booked ones are put back

TaskOptions = Callable[[str], Mapping[str, Any] | None]


class KeyLimit(NamedTuple):
    """How many jobs of a key run at once (None: any number), whether in the order in which they were stored, how often.

    ``rate``: None for any. ``loaded``: whether all this is known here.
    """

    most: int | None = None
    ordered: bool = False
    rate: RateLimit | None = None
    loaded: bool = True

    def rate_in(self, state: RateState | None) -> RateLimit | None:
        """Return the rate for jobs of a rate key with this state.

        While moments are booked, the stored rate holds for every process that shares the key, whatever its own code
        says; it ends when unparking.py has put those jobs back.
        """
        if not state or state.interval == BEING_PUT_BACK or not self.rate:
            return self.rate
        return RateLimit(state.interval, self.rate.burst)


ONE = KeyLimit(1, loaded=False)  # of a task that is not loaded: one of its jobs is enough to load it


def of_rate_key(key: str) -> str:
    """Return the key of the state of a rate key's rate."""
    return f"key:{key}"


@dataclass(frozen=True, eq=False)
class Limits:
    """The limits of a backend. ``task_options``: those of a task, by its path; None for one that is not loaded.

    ``shares``: those of the queues of a worker that weighs them. ``largest_burst``: of the tasks that share the rate
    key of a task, by its path.
    """

    options: Options = field(default_factory=Options)
    task_options: TaskOptions = lambda path: None
    largest_burst: Callable[[str], int] = lambda path: 1
    shares: Shares | None = None
    _set_right: dict[str, float] = field(default_factory=dict)  # rate keys, and until when (monotonic) they are left

    @cached_property
    def queues(self) -> Mapping[str, Policy]:
        """The queues that have a limit of their own."""
        return self.options.limited

    def known(self, task_path: str) -> bool:
        """Return whether the limits of a task are known here: it is loaded, or the job is a raw payload."""
        return not task_path or self.task_options(task_path) is not None

    def of_key(self, queue_name: str, task_path: str) -> KeyLimit:
        """Return the limit for the keys of a job."""
        if not task_path:
            return KeyLimit(self.options.policy(queue_name).concurrency)
        if (known := self.task_options(task_path)) is None:
            return ONE
        rate = rate_for(known.get("rate"), known.get("burst", 1))
        return KeyLimit(1, True, rate) if "order_key" in known else KeyLimit(known.get("concurrency"), False, rate)

    def rate_now(self, limit: KeyLimit, key: str, state: RateState) -> RateLimit | None:
        """Return the rate that a rate key with this state shall have; ``limit``: of a task of its jobs.

        During a deploy half of the workers may have another rate in their code. If each put the state right at once,
        all jobs would be moved again and again. So a rate that other code has set stays for OTHER_RATE_STAYS seconds.
        """
        return limit.rate_in(state) if self.was_set_right(key) else limit.rate

    def state_by(self, rate: RateLimit, task_path: str, state: RateState, now: int) -> RateState:
        """Return the state of a rate key as the rate of a task has it: the last start counts by the slower rate.

        A state that starts up to now cannot have made, not even with the largest burst, is of a clock that was ahead.
        """
        next_at, interval = state
        if interval not in (rate.interval, BEING_PUT_BACK):
            next_at += max(rate.interval - interval, 0)
        if next_at > rate.latest(now):
            largest = max(rate.burst, self.largest_burst(task_path))
            next_at = min(next_at, RateLimit(rate.interval, largest).latest(now))
        return RateState(next_at, rate.interval)

    def rate_of_queue(self, key: str) -> RateLimit | None:
        """Return the rate of a queue by the key of its state; None if it has none here, or it is no such key."""
        policy = self.queues.get(key.removeprefix(of_queue(""))) if key.startswith(of_queue("")) else None
        return policy.rate_limit if policy else None

    def was_set_right(self, key: str) -> bool:
        """Return whether this code has put the state of a rate right lately: if it is another now, others want it."""
        return time.monotonic() < self._set_right.get(key, 0.0)

    def set_right(self, key: str) -> None:
        """Note that the state of a rate is that of this code now."""
        now = time.monotonic()
        for old in [old for old, until in self._set_right.items() if until < now]:
            del self._set_right[old]
        self._set_right[key] = now + OTHER_RATE_STAYS

    # Queues

    def one_queue_each(self, scopes: Sequence[Scope]) -> Sequence[Scope]:
        """Return scopes with one queue each, where a worker weighs its queues."""
        if self.shares is None:
            return scopes
        return [scope._replace(queues=(name,)) for scope in scopes for name in dict.fromkeys(scope.queues or ())]

    def limited(self, scopes: Sequence[Scope]) -> LimitedQueues:
        """Return the limited queues of these scopes."""
        return _limited(self, *[scope.queues for scope in scopes]) if self.queues else NO_QUEUES

    def quotas(self, engine: Engine, scopes: Sequence[Scope], now: int) -> dict[str, Quota]:
        """Return the quotas of the limited queues of these scopes now, for those who want to know nothing else."""
        limited = self.limited(scopes)
        return limited.quotas(engine.look_up(queues=limited.most, rates=limited.rates), now) if limited.names else {}

    def with_quotas(self, engine: Engine, scopes: Sequence[Scope], quotas: Mapping[str, Quota]) -> Sequence[Scope]:
        """Return scopes in which each queue with a quota has one of its own."""
        parts: list[Scope] = []
        for scope in scopes:
            own = [name for name in quotas if scope.queues is None or name in scope.queues]
            parts.append(without(engine, scope, own))
            parts += [scope._replace(queues=(name,), **quotas[name]._asdict()) for name in own]
        return parts

    def started(self, quotas: Mapping[str, Quota], rows: Sequence[Due], now: int) -> dict[str, RateState]:
        """Return the states of the rates of queues after the starts of these rows, which had these quotas."""
        after: dict[str, RateState] = {}
        names = [row.queue_name for row in rows]
        for name, quota in quotas.items():
            if (rate := self.queues[name].rate_limit) and (count := names.count(name)):
                next_at = rate.started(quota.not_before + rate.tolerance, now, count)
                after[of_queue(name)] = RateState(next_at, rate.interval)
        return after

    def earliest(self, engine: Engine, scopes: Sequence[Scope]) -> int | None:
        """Return pauses.earliest, without what waits in queues at their limits, or over their rates."""
        if not self.queues:
            return earliest(engine, scopes)
        now = engine.now()
        quotas = self.quotas(engine, scopes, now)
        parts = self.with_quotas(engine, unpaused(engine, scopes, now), quotas)
        full = [scope for scope in parts if scope.raw and scope.jobs_left == 0 and scope.starts_left != 0]
        if any(has_own_key(row) for scope in full for row in engine.due(scope, AMONG, now)):
            return now
        return earliest(engine, self.with_quotas(engine, scopes, quotas))


NO_LIMITS = Limits()


@lru_cache
def _limited(limits: Limits, *scopes: tuple[str, ...] | None) -> LimitedQueues:
    """Return the limited queues of scopes with these queues. Each claim asks for the same again."""
    names = [name for name in limits.queues if any(queues is None or name in queues for queues in scopes)]
    most = {name: number for name in names if (number := limits.queues[name].concurrency) is not None}
    rate_limits = {name: rate for name in names if (rate := limits.queues[name].rate_limit)}
    return LimitedQueues(names, most, rate_limits, [of_queue(name) for name in rate_limits])


def has_own_key(row: Due) -> bool:
    """Return whether a row is a raw job that counts for its own concurrency key, not for its queue."""
    return not row.task_path and row.concurrency_key is not None
