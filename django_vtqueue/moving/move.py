"""A move: passes over the source, until nothing is left that may go."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from django.db import OperationalError

from ..core.clock import SECOND
from ..core.counts import HOUR, MINUTE
from ..core.gaps import GapWatch
from ..core.ids import process_worker_id
from ..core.job import Scope
from ..engines import Trouble, engine_for
from ..models import HourlyThroughput, Job, QueueState, Rate, Requeue, Throughput
from ..patterns.reserved import ReservedRows
from ..queue.ended_leases import end_leases
from ..queue.workers import live_workers
from ..runtime.async_code import interrupting
from .channel import Channel, Overtaken
from .parts import Batch, Parts
from .rows import Refusals, is_unreadable, read

ENDED_BATCH = 100  # leases
WRITTEN_UP = 30 * SECOND  # microseconds after which a worker has written what it has counted of a minute or an hour
TRIES_AGAIN, PATIENCE = 0.5, 30.0  # seconds: between two tries after an error that passes; until it is raised

T = TypeVar("T")


class Move:
    """Moves what a queue has stored from one database to another; both are aliases.

    ``arrived`` is called with the number of rows after each batch; ``moved``: how many that were.
    """

    def __init__(self, source: str, target: str, arrived: Callable[[int], None] = lambda rows: None) -> None:
        self.source, self.target, self.arrived = source, target, arrived
        self.moved = 0
        self.channel, self.parts = Channel(source, target), Parts(source, target)
        self._gaps = GapWatch()

    @property
    def refusals(self) -> Refusals:
        """What stays in the source because the target has refused it, and why."""
        return self.parts.refusals

    def go(self, *, wait: bool = False, every: float = 1.0) -> None:
        """Move what may be moved; with ``wait`` until all jobs and dead letters have gone that can go.

        It also waits until the leases and time slots are free whose lease has ended. ``every``: seconds between two
        passes. Raise MoveRefused, or a DatabaseError that does not pass within 30 seconds; then the next call goes on.
        """
        self._patiently(self.channel.open)
        while True:
            began = time.monotonic()
            self._pass()
            if not wait or not self._patiently(self._may_go):
                break
            self._gaps.note_work(time.monotonic() - began)
            time.sleep(every)
            self._gaps.note_work(every)
        self._patiently(self.channel.close)

    def _pass(self) -> None:
        self.refusals.clear()  # what was refused may fit now
        self._patiently(self._end_leases)
        self._patiently(self._free_reserved)
        parts, now = self.parts, engine_for(self.source).now()
        ended = partial(parts.take, Requeue, ended_at__isnull=False)
        for take in (parts.take_ordered, parts.take_jobs, parts.take_letters, ended, parts.take_schedules):
            self._take_all(take)
        at_work = bool(live_workers(self.source, now))
        for model, length in ((Throughput, MINUTE), (HourlyThroughput, HOUR)):
            before = now - WRITTEN_UP
            before -= before % length
            self._take_all(partial(parts.take, model, starts_at__lt=before if at_work else now + length))
        if not parts.unfinished().exists():
            for take in (partial(parts.take, Rate), partial(parts.take, QueueState), parts.take_reserved):
                self._take_all(take)

    def _take_all(self, take: Callable[[Any], Batch]) -> None:
        """Have all of a part arrive."""
        after = None
        while True:
            self._patiently(self._deliver)
            taken = self._patiently(partial(self._load, take, after))
            if taken is None:
                continue  # another run was faster: its batch is delivered first
            self._patiently(self._deliver)
            if (after := taken.last) is None:
                return

    def _load(self, take: Callable[[Any], Batch], after: Any) -> Batch | None:
        """Take the next rows into the outbox; return None, and take nothing, if there are others in it."""
        try:
            with engine_for(self.source).atomic():
                taken = take(after)
                if taken.tables:
                    self.channel.load(taken.tables)
                return taken
        except Overtaken:
            return None

    def _deliver(self) -> None:
        self.refusals.update(self.channel.deliver(self._arrived))

    def _arrived(self, rows: int) -> None:
        self.moved += rows
        self.arrived(rows)

    def _end_leases(self) -> None:
        """Have jobs whose holder is gone be due again, as a claim would: perhaps no worker of the source is left."""
        engine = engine_for(self.source)
        now = engine.now()
        self._gaps.notice_gap(now)
        names = tuple(engine.queue_names())  # not of leases and time slots: their instances have a rule of their own
        with engine.transaction():
            self._gaps.note_lock(0)
            for scope in (Scope(names, raw) for raw in (False, True)):
                if ended := engine.ended(scope, ENDED_BATCH, now, self._gaps.grace_period(), overflow=True):
                    end_leases(engine, ended, process_worker_id(), now)

    def _may_go(self) -> bool:
        """Return whether something is left that a later pass may take."""
        return bool(self.parts.to_go() or self.parts.ended())

    def _free_reserved(self) -> None:
        """Free the leases and time slots whose holder is gone, by the rule of an instance that waits for one."""
        held = set(self.parts.held().values_list("pk", flat=True))
        keys: dict[str, dict[UUID, str]] = {}
        for job_id, row in read(Job, self.source, sorted(held)).items():
            keys.setdefault(row["queue_name"], {})[job_id] = row["unique_key"]
        self.parts.note_unreadable("Job", held.difference(*keys.values()))
        for name, some in keys.items():
            try:
                ReservedRows(name, self.source, some.values()).free_ended(process_worker_id())
            except OperationalError as error:
                if not is_unreadable(error):
                    raise
                self.parts.note_unreadable("Job", set(some))  # another row of theirs cannot be read

    def _patiently(self, act: Callable[[], T]) -> T:
        """Do something that may be done again, also if it is not known whether it was done."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                with interrupting(lambda: None):  # else Ctrl-C could break off what ends a transaction, too
                    return act()
            except Exception as error:
                engines = [engine_for(self.source), engine_for(self.target)]
                troubles = {engine.trouble(error) for engine in engines} - {None}
                if not troubles or Trouble.RIGHTS in troubles or time.monotonic() > until:
                    raise
                for engine in engines:
                    engine.disconnect()
                time.sleep(TRIES_AGAIN)
