"""The gate of a queue with a ``max_depth``: what this process knows of the room in it.

To count the jobs for each publish would cost more than the publish. So a process counts them together with the insert
of one job, in one transaction, and stores the next few (``allowance``) by the insert alone.
"""

import os
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from django.apps import apps
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Sum

from ..core import clock
from ..core.clock import SECOND
from ..core.counts import MINUTE, minute_of
from ..core.humanize import time_of
from ..core.job import Scope
from ..engines import Engine
from ..exceptions import QueueFull
from .unique import Duplicates

Inserted = tuple[BaseDatabaseWrapper | None, Duplicates]  # the connection that is to commit; what was not stored
Insert = Callable[[], Inserted]

KEPT_FOR = 0.5  # seconds for which a process relies on what it has counted
# A full queue is not counted again for FULL_FOR seconds per job above CHEAP: some 20 times what the count took.
FULL_FOR, CHEAP = 2e-6, 5000
FEW = 10  # jobs that a process may store without a count, or a hundredth of max_depth if that is more
SOONEST, DEFAULT, LATEST = 1.0, 10.0, 300.0  # seconds: ``retry_after`` at the least, if nothing was measured, at most

IS_FULL = "Queue {name!r} is full: its depth is {depth:,}, and its max_depth {most:,}."
NO_ROOM = "Queue {name!r} has no room for {jobs:,} jobs: its depth is {depth:,}, and its max_depth {most:,}."
NEVER_FITS = "Queue {name!r} never has room for {jobs:,} jobs at once: its max_depth is {most:,}."
NOTHING = " Nothing was stored."
RESUME = NOTHING + " The queue is paused{until}, so workers make no room: resume it, or raise max_depth."
TRY_AGAIN = NOTHING + " Try again in {seconds:.0f} s, start more workers, or raise max_depth."
IN_PARTS = NOTHING + " Publish them in smaller parts, or raise max_depth."


def allowance(room: int, max_depth: int) -> int:
    """Return how many jobs a process that has seen so much room may store before it counts again.

    A hundredth of ``max_depth`` (or FEW), but no more than a quarter of the room; a thousandth where a count is dear.
    """
    return min(room, max(min(room // 4, max(max_depth // 100, FEW)), max_depth // 1000))


def retry_after(missing: int, max_depth: int, rate: float) -> float:
    """Return the seconds after which there is room for ``missing`` jobs, and a tenth of ``max_depth`` beside.

    ``rate``: jobs that end in a second. Without the tenth the queue would be full again at once.
    """
    return min(max((missing + max_depth / 10) / rate, SOONEST), LATEST) if rate > 0 else DEFAULT


def full_for(depth: int) -> float:
    """Return the seconds for which a full queue is not counted again."""
    return max(depth - CHEAP, 0) * FULL_FOR


def in_transaction(alias: str) -> bool:
    """Return whether this thread is inside a transaction of the caller's."""
    return connections[alias].in_atomic_block or not connections[alias].get_autocommit()


class NoRoom(Exception):
    """Takes an insert back."""


class Full(NamedTuple):
    """A count that found no room. ``oldest``: since when the first job is due, None: none is; ``until``: monotonic.

    ``pause``: until when the queue is paused, as a text; None: it is not.
    """

    depth: int
    oldest: int | None
    rate: float
    until: float
    pause: str | None = None


class Gate:
    """What this process knows of the room in a queue, for all its threads.

    ``_left``: how many jobs may be stored by the insert alone, for a while after ``_counted`` (monotonic); ``_full``:
    what was found if there was no room; ``_tried``: when an insert had none. ``_test``: the test in which all this is
    true, for the tests of a TestCase are rolled back.
    """

    def __init__(self, queue_name: str, max_depth: int) -> None:
        self.queue_name, self.max_depth = queue_name, max_depth
        self._lock = threading.Lock()
        self._left, self._counted, self._tried = 0, 0.0, 0.0
        self._full: Full | None = None
        self._rate = 0.0, 0.0  # until when (monotonic), and what
        self._test: object = None

    def publish(self, insert: Insert, engine: Engine, jobs: int, *, keyed: bool = False) -> Inserted:
        """Return what ``insert`` returns if there is room for so many jobs; raise QueueFull if not.

        ``keyed``: some have unique keys, so that fewer may be stored, or none: that is known after the insert only.
        """
        if self._take(jobs, test_of(engine.alias)):
            return insert()
        if not keyed and (full := self._known_full(engine, jobs)):
            raise self._refusal(full, engine.now(), jobs)
        stored, depth, counted = jobs, 0, 0.0
        try:
            with engine.atomic():  # the insert first: a transaction that has read before may not be allowed to write
                done = insert()
                stored = jobs - len(done[1])
                depth, counted = engine.depth(self.queue_name, self.max_depth + jobs), time.monotonic()
                if stored and depth > self.max_depth:
                    raise NoRoom
        except NoRoom:
            self._tried = counted
            raise self._refusal(self._note_full(engine, depth - stored), engine.now(), stored) from None
        with self._lock:
            if counted > self._counted:
                self._left, self._counted, self._full = allowance(self.max_depth - depth, self.max_depth), counted, None
        return done

    def check(self, engine: Engine, jobs: int) -> None:
        """Raise QueueFull if there is no room for so many jobs, which are stored later."""
        if (depth := engine.depth(self.queue_name, self.max_depth)) + jobs > self.max_depth:
            raise self._refusal(self._note_full(engine, depth), engine.now(), jobs)

    def _take(self, jobs: int, test: object) -> bool:
        """Return whether so many jobs may be stored without a count; then they are deducted."""
        with self._lock:
            if test is not self._test:
                self._test, self._left, self._full, self._rate = test, 0, None, (0.0, 0.0)
            taken = jobs <= self._left and time.monotonic() < self._counted + KEPT_FOR
            self._left = self._left - jobs if taken else 0
            return taken

    def _known_full(self, engine: Engine, jobs: int) -> Full | None:
        """Return what is known of a full queue; None if there may be room.

        If it was full the last time, that is a look without the right to write, for which the workers wait. Now and
        then it is tried all the same: while the caller has a cursor open, its connection reads what was there before.
        """
        full = self._full
        if jobs > self.max_depth:
            return self._note_full(engine, engine.depth(self.queue_name, self.max_depth))
        if full and time.monotonic() >= full.until:
            if time.monotonic() >= self._tried + KEPT_FOR or in_transaction(engine.alias):
                return None  # in a transaction the right to write is there, or must be asked for before a read
            depth = engine.depth(self.queue_name, self.max_depth)
            full = self._note_full(engine, depth) if depth + jobs > self.max_depth else None
        return full if full and full.depth + jobs > self.max_depth else None

    def _note_full(self, engine: Engine, depth: int) -> Full:
        dues = [engine.first_due(Scope((self.queue_name,), raw)) for raw in (False, True)]
        oldest = min((due for due in dues if due is not None), default=None)
        if (now := time.monotonic()) >= self._rate[0]:
            self._rate = now + KEPT_FOR, ended_a_second(engine, self.queue_name)
        pause = pause_of(engine, self.queue_name)
        self._full = full = Full(depth, oldest, self._rate[1], now + full_for(depth), pause)
        return full

    def _refusal(self, full: Full, now: int, jobs: int) -> QueueFull:
        age = 0.0 if full.oldest is None else max(now - full.oldest, 0) / SECOND
        seconds, text = LATEST, NEVER_FITS + IN_PARTS
        if jobs <= self.max_depth:
            seconds = retry_after(full.depth + jobs - self.max_depth, self.max_depth, full.rate)
            text = (NO_ROOM if jobs > 1 else IS_FULL) + (TRY_AGAIN if full.pause is None else RESUME)
        known = {"name": self.queue_name, "most": self.max_depth, "depth": full.depth, "until": full.pause}
        text = text.format(jobs=jobs, seconds=seconds, **known)
        return QueueFull(self.queue_name, full.depth, age, seconds, text)


@lru_cache(maxsize=1000)
def gate_of(alias: str, queue_name: str, max_depth: int) -> Gate:
    """Return the one gate of a queue; a forked child has its own."""
    return Gate(queue_name, max_depth)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=gate_of.cache_clear)


def test_of(alias: str) -> object:
    """Return the transaction that a TestCase has begun for its present test; None outside of one."""
    blocks: list[Any] = connections[alias].atomic_blocks
    return next((block for block in reversed(blocks) if block._from_testcase), None)


def pause_of(engine: Engine, queue_name: str) -> str | None:
    """Return until when a queue is paused, "" for no end; None for one that is not paused."""
    pauses = engine.pauses()
    if queue_name not in pauses or ((until := pauses[queue_name]) is not None and until <= engine.now()):
        return None
    return "" if until is None else f" until {time_of(clock.from_instant(until))}"


def ended_a_second(engine: Engine, queue_name: str) -> float:
    """Return how many jobs of a queue have ended a second, in this minute and the two before, as workers count it."""
    now = engine.now()
    first = minute_of(now) - 2 * MINUTE
    table = apps.get_model("vtqueue", "Throughput")
    rows = table._base_manager.using(engine.alias).filter(queue_name=queue_name)
    rows = rows.filter(starts_at__in=[first, first + MINUTE, first + 2 * MINUTE])
    ended = rows.aggregate(number=Sum(F("succeeded") + F("dead")))["number"] or 0
    return float(ended * SECOND / (now - first))
