"""The quotas of limited queues: how many more of their jobs may run, and how many may start now."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..core.rates import RateLimit
from ..engines.contract_parts import Known, RateState


class Quota(NamedTuple):
    """How many more jobs of a queue may run, and how many may start now (None: any number); see Scope."""

    jobs_left: int | None = None
    starts_left: int | None = None
    not_before: int = 0

    def allows(self, starts: int) -> bool:
        """Return whether so many jobs may start now."""
        return (self.jobs_left is None or self.jobs_left >= starts) and (
            self.starts_left is None or self.starts_left >= starts
        )


def of_queue(name: str) -> str:
    """Return the key of the state of a queue's rate."""
    return f"queue:{name}"


class LimitedQueues(NamedTuple):
    """Queues with limits of their own: of those that have one how many jobs run at once, the rate, and its key."""

    names: Sequence[str]
    most: Mapping[str, int]
    rate_limits: Mapping[str, RateLimit]
    rates: Sequence[str]

    def quotas(self, known: Known, now: int) -> dict[str, Quota]:
        """Return the quotas that they have now."""
        quotas: dict[str, Quota] = {}
        for name in self.names:
            jobs_left = max(self.most[name] - known.queues[name], 0) if name in self.most else None
            if rate := self.rate_limits.get(name):
                next_at = next_at_of(known.rates.get(of_queue(name)), rate, now)
                quotas[name] = Quota(jobs_left, rate.starts_left(next_at, now), rate.allowed_at(next_at))
            else:
                quotas[name] = Quota(jobs_left)
        return quotas


NO_QUEUES = LimitedQueues((), {}, {}, ())


def next_at_of(state: RateState | None, rate: RateLimit, now: int) -> int:
    """Return when the next start is due, without what a clock that was ahead has made of it."""
    return min(state.next_at, rate.latest(now)) if state else now
