"""An instance that waits for a row of a reserved queue, then holds it: what leaders and time slots have in common."""

import logging
import os
import random
import threading
import warnings
from collections.abc import Callable
from contextlib import closing
from typing import Any
from weakref import WeakSet

from django.db import Error, OperationalError, connections

from ..core import clock
from ..core.allowed import seconds
from ..core.backoff import busy_pause
from ..core.grace import RENEWED_AFTER
from ..core.ids import new_id, new_worker_id
from ..core.job import HeldJob
from ..engines import Engine, Trouble, new_engine
from ..exceptions import LeaseLost
from ..queue.doorbell import LOOK, RUNG, Doorbell
from ..queue.schema import mismatch
from ..runtime.aside import logging_aside
from .reserved import ReservedRows

logger = logging.getLogger("django_vtqueue")

LOOK_AT_CLOCK = 1.0  # seconds between two looks of the thread that renews: its waits stand still in a suspended machine
RETRY = 0.05  # seconds between two tries to renew, while the database refuses; while it is locked, see busy_pause
SHORTEST = 0.1  # seconds of a lease: a commit, and a thread that shares the interpreter, may take some 10 ms
MARGIN, LONGEST_MARGIN = 0.1, 1.0  # of the lease, and seconds: by so much a holder believes in it less than others do


class Holder:
    """One instance: it waits for one of the rows of a reserved queue, and holds it until it gives it back or loses it.

    ``name``: for people; ``ttl``: the lease in seconds; ``renewing``: whether a thread renews it each third of that;
    ``on_lost``: called once, in that thread or the caller's, when it is known that the lease was lost. Threads may
    share it; a forked child holds nothing.
    """

    renewed_after = RENEWED_AFTER

    def __init__(
        self,
        name: str,
        rows: ReservedRows,
        ttl: Any,
        *,
        renewing: bool = True,
        on_lost: Callable[[], object] | None = None,
    ) -> None:
        self.name, self.rows, self.ttl = name, rows, seconds(ttl, "ttl", SHORTEST)
        self.renewing, self.on_lost = renewing, on_lost
        self._bell: Doorbell | None = None  # proves the death of this process
        self._begin()
        _holders.add(self)

    def _begin(self) -> None:
        """Begin without a row; so does a forked child, which has locks of its own."""
        self.job: HeldJob | None = None
        self._worker_id = new_worker_id()
        self._held_until = self._renew_at = 0.0  # boot clock
        self._done = threading.Event()
        self._changing = threading.RLock()  # held while the row is taken, renewed, or given back
        self._deciding = threading.RLock()  # held for a moment, while it is decided whether the row is held, or lost
        self.in_block = False  # of a ``with``

    def remaining(self) -> float:
        """Return for how many seconds it is certain that no other instance holds the row, if it is not renewed.

        It is 0 a margin (a tenth of the lease, at most 1 s) before another instance can take the row; then it stays
        0 until the row is acquired again.
        """
        with self._deciding:
            left = self._held_until - clock.since_boot()
            if left <= 0:
                self._held_until = 0.0
            return max(left, 0.0)

    @property
    def held(self) -> bool:
        """Whether this instance holds its row, by its own boot clock."""
        return self.remaining() > 0

    @property
    def _kept(self) -> bool:
        """Whether it holds its row, and has not let it end."""
        return self.held and not self._done.is_set()

    @property
    def held_until(self) -> float:
        """The moment (boot clock) until which ``held`` is True if the lease is not renewed; 0 if it is not held."""
        return self._held_until if self.held else 0.0

    @property
    def token(self) -> int | None:
        """The claim number of its row: it grows with each acquisition by any instance; None if it is not held."""
        return job.claims if (job := self.job) and self.held else None

    @property
    def descriptor(self) -> int:
        """The file descriptor of the doorbell that proves the death of this process; -1 if there is none."""
        bell = self._bell
        return bell.fileno() if bell else -1

    def acquire(self, blocking: bool = True, timeout: Any = None, stop: Callable[[], bool] = lambda: False) -> bool:
        """Hold a row: wait for one if ``blocking``, for at most ``timeout`` seconds; return whether it is held.

        ``stop``: is asked between two looks whether to wait no longer. Raise ValueError for what is no timeout.
        """
        left = clock.NEVER if timeout is None else seconds(timeout, "timeout")
        if self._kept:
            return True
        if blocking:
            return self._wait(left, stop)
        try:
            return self._take(self.rows.engine.shortest_wait)
        except Error as error:
            if self.rows.engine.trouble(error) is Trouble.BUSY:  # as for a timeout of 0
                return False
            raise

    def _wait(self, left: float, stop: Callable[[], bool]) -> bool:
        """Take a row as soon as one is free; return False if none was for so many seconds, or until ``stop()``."""
        until, troubled, shortest = clock.monotonic() + left, False, self.rows.engine.shortest_wait
        with closing(self.rows.bell(new_id()[-8:], RUNG)) as bell:
            while not (taken := self.attempt(max(left, shortest), troubled)):
                troubled = taken is None
                if (left := until - clock.monotonic()) <= 0 or stop():
                    return False
                bell.wait_for(min(LOOK, left))
        return True

    def attempt(self, wait: float, troubled: bool) -> bool | None:
        """Take a row if one is free; return None, and log why, while the database is locked, full or gone.

        ``wait``: seconds to wait for a lock. ``troubled``: it was so the last time, and is not logged again.
        """
        try:
            return self._take(wait)
        except Error as error:
            trouble = self.rows.engine.trouble(error)
            if trouble is Trouble.SCHEMA and (what := mismatch(self.rows.database)):
                raise OperationalError(f"{error}: {what}") from error
            if trouble is None:
                raise
            if not troubled:
                logger.warning("%s is waited for, but %s; waiting.", self.name, trouble.said(error))
            if trouble is not Trouble.BUSY:
                self.rows.engine.disconnect()
            return None

    def _take(self, wait: float) -> bool:
        """Take a row that is free; return whether one is held. The write lock is asked for only if one is free."""
        with self._changing:
            if self._kept:
                return True
            self.rows.refuse_in_transaction(f"{self.name} cannot be acquired")
            self.rows.look_at_database()
            with self.rows.engine.lock_timeout(wait):
                self.release(wait)  # what was lost, or let end
                self.rows.create(self.ttl)
                return self.rows.any_free(self._worker_id) and self._take_row()

    def _take_row(self) -> bool:
        bell, taken = self.rows.bell(self._worker_id), None
        try:
            taken = self.rows.take(self._worker_id, self.ttl)
        finally:
            if not taken:
                bell.close()
        if not taken:
            return False
        with self._deciding:
            self.job, began = taken
            self._bell, self._done = bell, threading.Event()
            self._renew_at, self._held_until = began + self.ttl * self.renewed_after, self._end_of(began)
            _holding.add(self)
        if not self.held:  # the commit has taken too long
            self.release()
            return False
        if self.renewing and not self.rows.engine.private():
            name = f"lease {self.name}"
            try:
                threading.Thread(target=self._keep_up, args=(self._done,), name=name, daemon=True).start()
            except RuntimeError:  # the system refuses it
                self.release()
                raise
        return True

    def renew(self) -> None:
        """Hold the row for one more lease from now on; raise LeaseLost if it is lost, be it in a wait for the lock."""
        self.rows.refuse_in_transaction(f"{self.name} cannot be renewed")
        self.check()
        try:
            with self._changing, self.rows.engine.lock_timeout(self.remaining() + RETRY):
                if self.job:
                    self._renew(self.job, self.rows.engine)
        except Error:
            self.check()
            raise
        self.check()

    def renews_in(self) -> float:
        """Return in how many seconds the lease is renewed, if it is not renewed before; 0 or less: now."""
        return self._renew_at - clock.since_boot()

    def check(self) -> None:
        """Raise LeaseLost if this instance does not hold its row."""
        done = self._done
        if not self.held:
            self._lose(done)
            raise LeaseLost(
                f"{self.name} is not held by this instance: it was not acquired, was released, or was not renewed in "
                "time, so that another instance may hold it. Stop the work that needs it, and acquire it again."
            )

    def let_end(self) -> None:
        """Renew the lease no more: it ends by itself, if it is not given back before."""
        self._done.set()

    def release(self, wait: float = clock.NEVER) -> None:
        """Give the row back, so that an instance that waits takes it at once; nothing happens if it is not held.

        ``wait``: seconds to wait for a lock. If it is not to be had, others take the row as that of a dead process.
        """
        self._done.set()
        with self._changing, self._deciding:
            job, self.job, self._held_until = self.job, None, 0.0
            bell, self._bell = self._bell, None
            _holding.discard(self)
        try:
            if job:
                with self.rows.engine.lock_timeout(wait):
                    self.rows.give_back(job)
        except BaseException:
            if bell:
                bell.let_go()  # it is left there, and proves that no process believes to hold the row
            raise
        if bell:
            bell.close()

    @logging_aside()
    def _keep_up(self, done: threading.Event) -> None:
        """Renew the lease when it is time to, until it is given back or lost."""
        engine, troubled = new_engine(self.rows.database, traced=False), 0.0
        try:
            with engine.without_lock_waits(pooled=False):  # the threads of this process may use up the pool
                while not done.wait(max(min(self.renews_in(), self.remaining(), LOOK_AT_CLOCK), 0.0005)):
                    if not self.held:
                        return
                    try:
                        if self._row_is_held(engine) and self.renews_in() > 0:
                            continue
                        self._renew_aside(engine, done)
                        troubled = 0.0
                    except Exception as error:
                        troubled = troubled or self._say(error)
                        now = clock.since_boot()
                        self._renew_at = now + self._pause(engine, error, now - troubled)
        finally:
            try:
                self._lose(done)
            finally:
                connections.close_all()

    def _row_is_held(self, engine: Engine) -> bool:
        """Return whether the row is as this instance believes: by hand, or in a restored database, it may be free."""
        engine.replaced()  # raises while the file of the database is being exchanged
        return not engine.changed() or bool((job := self.job) and self.rows.has(job))

    def _renew_aside(self, engine: Engine, done: threading.Event) -> None:
        if self._changing.acquire(timeout=min(LOOK, self.remaining())):  # else another thread renews it
            try:
                if self.job and not done.is_set():
                    with engine.lock_timeout(self.remaining()):
                        self._renew(self.job, engine)
            finally:
                self._changing.release()
        engine.tidy(early=False)

    def _say(self, error: Exception) -> float:
        logger.info("%s was not renewed (%s); trying again", self.name, error)
        return clock.since_boot()

    def _pause(self, engine: Engine, error: Exception, waited: float) -> float:
        """Return the seconds until the next try to renew."""
        if engine.trouble(error) is Trouble.BUSY:
            return busy_pause(waited, random.random(), self.remaining())
        engine.disconnect()
        return RETRY

    def _renew(self, job: HeldJob, engine: Engine) -> None:
        """Renew the lease, whatever the wall clock says; note it if it is lost. Nothing is renewed that has ended."""
        with engine.transaction():
            began = clock.since_boot()
            lost = not self.held or bool(engine.renew([job], engine.now())) or not self.rows.has(job)
        self._renew_at = began + self.ttl * self.renewed_after
        with self._deciding:  # what has been said to be lost while this waited stays so
            self._held_until = self._end_of(began) if self.held and not lost else 0.0

    def _end_of(self, began: float) -> float:
        """Return until when to believe in a lease that others may count from ``began`` on, or from later."""
        return began + self.ttl - min(self.ttl * MARGIN, LONGEST_MARGIN)

    def _lose(self, done: threading.Event) -> None:
        """Note that the lease is lost that ``done`` belongs to, and say so once; nothing happens if it was released."""
        with self._deciding:  # nothing is waited for, so on_lost comes in time
            if self.job is None or done is not self._done or done.is_set():
                return
            self.job, self._held_until = None, 0.0
            _holding.discard(self)
            done.set()
        try:
            if self.on_lost:
                self.on_lost()  # before a line that may be long in being written
        except KeyboardInterrupt:
            raise
        except BaseException:
            logger.exception("on_lost of %s has failed", self.name)
        finally:
            logger.warning("%s is lost: it was not renewed in time, or another instance has taken it", self.name)

    def dropped(self) -> None:
        """Warn that no code refers any more to what holds the row."""
        if self.held:
            until = "this process ends" if self.renewing else "its ttl is over"
            told = f"{self.name} is held, but was dropped: it stays held until {until}. Give it back, or use ``with``."
            warnings.warn(told, ResourceWarning, stacklevel=2)


_holders: "WeakSet[Holder]" = WeakSet()
_holding: "set[Holder]" = set()  # those with a row: one that is forgotten would close its doorbell, as if it were dead


def _forget() -> None:
    """Have a forked child hold nothing: rows and doorbells are its parent's."""
    _holding.clear()
    for holder in _holders:
        if holder._bell:
            holder._bell.let_go()
            holder._bell = None
        holder._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
