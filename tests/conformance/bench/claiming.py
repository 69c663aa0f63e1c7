"""What a claim serves, how long it waits for holders that may be alive, and what it took."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from django_vtqueue.core.grace import GRACE, GracePeriod
from django_vtqueue.core.job import Scope
from django_vtqueue.engines import Engine
from django_vtqueue.queue import claims
from django_vtqueue.queue.claims import NO_GRACE, Claims, collect

from .endings import Held
from .moments import SECOND

MOST_BURIED = claims.OVERDUE_BATCH  # jobs that have expired, by one claim: other writers wait meanwhile


class Served(NamedTuple):
    """What a claim takes: tasks or raw payloads, of these queues (None: of all).

    ``worker``: one that takes no second copy of a job that it runs.
    """

    queues: tuple[str, ...] | None
    raw: bool
    worker: str = ""


def payloads_of(*queues: str) -> Served:
    """Return raw payloads of these queues, as what a claim serves; without a name those of all queues."""
    return Served(queues or None, raw=True)


def tasks_of(*queues: str) -> Served:
    """Return tasks of these queues, as what a claim serves; without a name those of all queues."""
    return Served(queues or None, raw=False)


def scopes_of(served: Sequence[Served]) -> list[Scope]:
    """Return what a claim is given of this."""
    return [Scope(*each) for each in served]


Patience = GracePeriod  # of a claim: the time that it leaves to holders whose lease has ended
IMPATIENT = NO_GRACE
PATIENT = GracePeriod(GRACE)


def after_a_gap(length: float, ago: float) -> GracePeriod:
    """Return the patience of a claim after all were stopped for ``length`` seconds, which ended so long ago."""
    return GracePeriod(GRACE, 0, json.dumps([[round(ago * SECOND), round(length * SECOND)]]))


class Taken:
    """What a claim took, before its commit is known; ``everything``: nothing more was due.

    ``count``: how many jobs are handed out; ``buried``: the jobs of which it has made dead letters.
    """

    def __init__(self, engine: Engine, taken: claims.Taken) -> None:
        self._engine, self._taken = engine, taken
        self.count, self.everything = len(taken.rows), taken.everything
        self.buried: list[Held] = [ending.job for ending in taken.buried]

    def collect(self) -> list[Held]:
        """Return the jobs, without those that another claim has taken since; ended leases are renewed first."""
        return collect(self._engine, self._taken)

    def read(self) -> list[Held]:
        """Return the jobs inside the transaction of the claim."""
        return [*self._engine.read([row.handle for row in self._taken.rows]).values()]


class Claimer:
    """The claims of one worker, which remembers what it has found before."""

    def __init__(
        self,
        engine: Engine,
        transaction: Callable[[], AbstractContextManager[None]],
        overflow: Mapping[str, tuple[int, int]] | None = None,
        lease: float | None = None,
        *,
        begins_later: bool = False,
    ) -> None:
        self._engine, self._transaction = engine, transaction
        lease_us = None if lease is None else round(lease * SECOND)
        self._claims = Claims(engine, overflow=overflow or {}, lease_us=lease_us)
        if begins_later:
            self._claims.begins_later = lambda path: True

    def take(
        self,
        served: Sequence[Served],
        limit: int,
        worker: str,
        instant: int,
        *,
        ahead: int = 0,
        patience: GracePeriod = IMPATIENT,
    ) -> Taken:
        """Claim in one transaction, in the order of the line."""
        with self._transaction():
            found = self._claims.claim(scopes_of(served), limit, worker, instant, ahead=ahead, grace_period=patience)
        return Taken(self._engine, found)
