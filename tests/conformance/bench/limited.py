"""Limits in the hands of a test: what the code of a worker says of its tasks and queues, and its claims by that."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import pytest
from django.db.models import F, Q

from django_vtqueue.conf import parse
from django_vtqueue.core.clock import LAST
from django_vtqueue.core.rates import RateLimit, rate_for
from django_vtqueue.core.shares import Shares
from django_vtqueue.engines.contract_parts import RateState
from django_vtqueue.models import Rate
from django_vtqueue.queue import claims, limits, unparking
from django_vtqueue.queue.claims import Claims
from django_vtqueue.queue.clock_repair import ClockRepair
from django_vtqueue.queue.limits import Limits, of_rate_key
from django_vtqueue.queue.quotas import of_queue
from django_vtqueue.queue.unparking import Unparking
from tests.fake_clock import at

from .claiming import Served, Taken, scopes_of
from .endings import Ending, Held, release, success
from .moments import SECOND, moment, seconds_at
from .queue import Bench

OPTIONS: dict[str, dict[str, Any]] = {
    "app.two": {"concurrency": 2},
    "app.one": {"concurrency": 1},
    "app.ordered": {"order_key": str},
    "app.plain": {},
}
OTHER_RATE_STAYS = limits.OTHER_RATE_STAYS  # seconds for which a rate stays that code of another deploy has set


class Limited:
    """Claims and settles as workers do, with limits that a test may change.

    ``tasks``: the options of the loaded ones. ``largest_burst``: of the tasks that share a rate key.
    """

    largest_burst = 1

    def __init__(self, bench: Bench, **queues: dict[str, Any]) -> None:
        self.bench, self.engine = bench, bench.engine
        self.tasks = dict(OPTIONS)
        self.queues(**queues)

    # What the code says

    def queues(self, **queues: dict[str, Any]) -> None:
        """Have the settings say this of queues, and of no others."""
        settings = parse({"QUEUES": [], "OPTIONS": {"queue_options": queues}})
        self.limits = Limits(settings, self.tasks.get, lambda path: self.largest_burst)

    def serve_only(self, *names: str) -> None:
        """Have the settings know these queues only."""
        self.limits = replace(self.limits, options=replace(self.limits.options, queues=frozenset(names)))

    def weigh(self, **weights: int) -> "Limited":
        """Have a worker serve queues by weights."""
        self.limits = replace(self.limits, shares=Shares(weights))
        return self

    def load(self, path: str, jobs: Iterable[Held], **options: Any) -> None:
        """Have a task be loaded, and release the jobs that were claimed for that."""
        self.tasks[path] = options
        self.end(*(release(job) for job in jobs if job.to_load))

    # Jobs

    def publish(
        self,
        task: str,
        *texts: str,
        key: str | None = None,
        queue: str = "q",
        due: float = 0,
        priority: int = 0,
        max_attempts: int = 3,
        **new: Any,
    ) -> None:
        keys = None if key is None else [key] * len(texts)
        new = {"ordered": "order_key" in self.tasks.get(task, {}), "concurrency_keys": keys, **new}
        self.bench.publish(*texts, queue=queue, due=due, priority=priority, max_attempts=max_attempts, task=task, **new)

    def take(self, now: float = 0, limit: int = 100, *, raw: bool = False, ahead: int = 0, **options: Any) -> Taken:
        return self.claimer()(now, limit, served=options.pop("served", [Served(None, raw)]), ahead=ahead)

    def claimer(self) -> Callable[..., Taken]:
        """Return the claims of one worker, which remembers what it has found before."""
        claims_of_one = Claims(self.engine, self.limits)

        def take(now: float = 0, limit: int = 100, *, served: list[Served], ahead: int = 0) -> Taken:
            with self.bench.transaction():
                return Taken(self.engine, claims_of_one.claim(scopes_of(served), limit, "w1", at(now), ahead=ahead))

        return take

    def claim(self, now: float = 0, limit: int = 100, **options: Any) -> dict[str, Held]:
        """Claim; return the jobs by their payloads, in claim order."""
        return by_name(self.take(now, limit, **options).collect())

    def end(self, *endings: Ending) -> None:
        assert self.bench.settle(*endings) == set()

    def done(self, *jobs: Held) -> None:
        self.end(*(success(job) for job in jobs))

    @property
    def parked(self) -> set[str]:
        """The payloads of the jobs that wait until another one of their key ends."""
        rows = self.bench.jobs.filter(state="BLOCKED")
        return set(rows.values_list("payload", flat=True))

    def park_all(self) -> None:
        """Have all jobs wait until another one of their key ends."""
        self.bench.park_all()

    def park(self, name: str) -> None:
        """Have a job that is parked already be parked once more."""
        self.engine.park([self._handles()[name]])

    def moments(self) -> list[float]:
        """Return the moments that are booked for jobs, in seconds from the start."""
        rows = self.bench.jobs.filter(lease_until=None, moved_from__isnull=False).order_by("visible_at", "pk")
        return [seconds_at(row.visible_at) for row in rows]

    def book(self, name: str, now: float) -> None:
        """Book a moment for a job."""
        self.engine.book({self._handles()[name]: at(now)})

    def book_all(self, now: float) -> None:
        """Have all jobs wait for one moment, as if it were booked for them."""
        self.bench.jobs.update(state="SCHEDULED", moved_from=F("due_at"), wake_at=moment(now))

    def keys_in_line(self) -> list[str]:
        """Return the concurrency key of each job that no limit has moved."""
        return [*self.bench.jobs.filter(state="READY").values_list("concurrency_key", flat=True)]

    def place(self, name: str) -> tuple[float | None, float | None]:
        """Return when a job enters the line (None: not until something happens), and its place if it is not in it."""
        row = self.bench.jobs.get(payload=name)
        if row.wake_at is None:
            return seconds_at(row.due_at), None
        return None if row.wake_at == LAST else seconds_at(row.wake_at), seconds_at(row.due_at)

    def stamp_places(self, now: float) -> None:
        """Have all that limits have moved be stored, and have had its place, at this moment."""
        held_up = Q(state="BLOCKED") | Q(state="SCHEDULED", moved_from__isnull=False)
        self.bench.jobs.filter(held_up).update(enqueued_at=moment(now), due_at=moment(now))

    def unfinished(self) -> dict[str, "Row"]:
        """Return the jobs that are not done, by their payloads."""
        columns = ("payload", "rate_key", "claims", "visible_at", "state", "moved_from")
        rows = self.bench.jobs.exclude(state="SUCCESSFUL").values_list(*columns)
        return {
            payload.strip('"'): Row(
                rate_key, claims, due_at, state in ("READY", "SCHEDULED") and moved_from is not None
            )
            for payload, rate_key, claims, due_at, state, moved_from in rows
        }

    def earliest(self, *served: Served) -> float | None:
        """Return from when on a job may be claimed; None: there is none."""
        found = self.limits.earliest(self.engine, scopes_of(served))
        return None if found is None else seconds_at(found)

    def _handles(self) -> dict[str, Any]:
        rows = self.bench.jobs.annotate(handle=self.engine.handle()).values_list("payload", "handle")
        return {payload.strip('"'): handle for payload, handle in rows}

    # The look once a second

    def looks(self) -> "Looks":
        """Return the looks of a worker, which go on where the last one has ended."""
        return Looks(self)

    def look(self) -> int:
        """Put back what is parked without a reason; return how many jobs."""
        return self.looks().at_keys()

    def look_at_rates(self) -> int:
        """Put back what waits for moments of a rate that is another one now; return how many jobs."""
        return self.looks().at_rates()

    # Rates

    def rates(self, *keys: str) -> dict[str, tuple[float, float]]:
        """Return of the rates in use of these keys when the next start is due, and the seconds between two."""
        found = self.engine.rates([of_rate_key(key) for key in keys])
        return {key: _seconds(found[of_rate_key(key)]) for key in keys if of_rate_key(key) in found}

    def rate_of_queue(self, name: str) -> tuple[float, float] | None:
        """Return the same of the rate of a queue; None if it is not in use."""
        found = self.engine.rates([of_queue(name)]).get(of_queue(name))
        return found and _seconds(found)

    def use_rates(self, next_at: float, interval: float, *keys: str) -> None:
        """Have rates of these keys be in use."""
        state = RateState(at(next_at), round(interval * SECOND))
        self.engine.set_rates({of_rate_key(key): state for key in keys})

    def use_rate_of_queue(self, name: str, next_at: float, interval: float) -> None:
        """Have the rate of a queue be in use."""
        self.engine.set_rates({of_queue(name): RateState(at(next_at), round(interval * SECOND))})

    def die_while_putting_back(self, key: str, next_at: float) -> None:
        """Leave the rate of a key as a worker does that dies while it puts jobs of that rate back."""
        self.engine.set_rates({of_rate_key(key): RateState(at(next_at), limits.BEING_PUT_BACK)})

    def keys_in_use(self) -> set[str]:
        """Return the rate keys whose rates are in use."""
        return {
            key.removeprefix(of_rate_key(""))
            for key in Rate.objects.using(self.bench.alias).values_list("key", flat=True)
        }

    def notice_clock_ahead(self) -> None:
        """Have a worker that has noticed that a clock was ahead set the rates of queues right, once for all."""
        clock_repair = ClockRepair(self.engine)
        clock_repair.was_ahead = True
        Unparking(self.limits).cut_rates(self.engine, clock_repair)
        assert not clock_repair.was_ahead


class Row(NamedTuple):
    """A job that is not done; ``booked``: it waits for a moment that was booked for it."""

    rate_key: str
    claims: int
    due_at: datetime
    booked: bool


class Looks:
    """The looks of one worker at what limits hold up."""

    most = 2 * unparking.UNPARKED_BATCH  # jobs that one look puts back

    def __init__(self, limited: Limited) -> None:
        self._engine, self._looks = limited.engine, Unparking(limited.limits)

    def at_keys(self) -> int:
        return self._looks.sweep_keys(self._engine)

    def at_rates(self) -> int:
        return self._looks.sweep_rates(self._engine)

    def go_on(self) -> int:
        """Look at the next keys; return how many jobs are put back. Fail if it is not time for it yet."""
        assert self._looks.next_at <= time.monotonic()
        return self.look()

    def look(self) -> int:
        """Look at the next keys, whether it is time or not; return how many jobs are put back."""
        return self._looks.look(self._engine)

    def sweep(self, most: int) -> int:
        """Return how many looks a sweep takes; fail if one has to wait, or puts back more than ``most`` jobs."""
        for number in range(1, 1000):
            assert self.go_on() <= most
            if self._looks.next_at > time.monotonic() + unparking.PERIOD / 2:
                return number
        pytest.fail("the sweep does not end")

    def rests(self) -> bool:
        """Return whether the next look is made a bit later, but sooner than after a whole sweep."""
        return 0 < self._looks.next_at - time.monotonic() < unparking.PERIOD


def by_name(jobs: Iterable[Held]) -> dict[str, Held]:
    return {job.payload.strip('"'): job for job in jobs}


def names(jobs: Iterable[str]) -> str:
    return " ".join(jobs)


RateArithmetic = RateLimit  # when the next start is allowed, in microseconds


def rate_of(options: Mapping[str, Any]) -> RateArithmetic:
    """Return the arithmetic of the rate that the options of a task say."""
    rate = rate_for(options["rate"], options.get("burst", 1))
    assert rate
    return rate


def small_looks(patch: pytest.MonkeyPatch, jobs: int, keys: int | None = None) -> None:
    """Have a look put back so many jobs, of so many keys, at the most."""
    patch.setattr(unparking, "UNPARKED_BATCH", jobs)
    if keys:
        patch.setattr(unparking, "KEYS_BATCH", keys)


def parks_at_most(patch: pytest.MonkeyPatch, jobs: int) -> None:
    """Have a claim park so many jobs at the most."""
    patch.setattr(claims, "SET_ASIDE_BATCH", jobs)


def limits_clock(patch: pytest.MonkeyPatch, seconds: Callable[[], float]) -> None:
    """Have the limits of a worker tell by this clock how long another rate stays."""
    patch.setattr("django_vtqueue.queue.limits.time.monotonic", seconds)


def _seconds(state: RateState) -> tuple[float, float]:
    return seconds_at(state.next_at), state.interval / SECOND
