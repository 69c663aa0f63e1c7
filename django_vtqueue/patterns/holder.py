"""An instance that waits for a row of a reserved queue, then holds it: what leaders and time slots have in common."""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from django.db import DatabaseError, connections, transaction

from ..conf import Invalid, positive_duration
from ..core import clock
from ..core.encoding import dumps
from ..core.ids import new_id, new_worker_id
from ..core.job import HeldJob
from ..engines import database_for, new_engine
from ..exceptions import LeaseLost
from ..queue.consumer import until_done
from ..queue.doorbell import UNPROVEN, Doorbell
from .reserved import ReservedRows

logger = logging.getLogger("django_vtqueue")

LOOK = 0.1  # seconds between two looks at the rows, in case a doorbell was missed
RETRY = 0.05  # seconds between two tries to renew, while the database refuses
MARGIN, LONGEST_MARGIN = 0.1, 1.0  # of the lease, and seconds: by so much a holder believes in it less than others do


class Holder:
    """One instance: it waits for one of the rows of a reserved queue, and holds it until it gives it back or loses it.

    ``name``: for people; ``ttl``: the lease in seconds; ``renewing``: whether a thread renews it each third of that;
    ``on_lost``: called once, in that thread or the caller's, when it is known that the lease was lost.
    """

    renewed_after = 1 / 3  # of the lease

    def __init__(
        self,
        name: str,
        queue_name: str,
        keys: Sequence[str],
        ttl: Any,
        using: str | None,
        *,
        renewing: bool = True,
        on_lost: Callable[[], object] | None = None,
    ) -> None:
        try:
            self.ttl = positive_duration(ttl)
        except Invalid as allowed:
            raise ValueError(f"ttl is {ttl!r}, but must be {allowed}.") from None
        self.name, self.keys, self.renewing, self.on_lost = name, keys, renewing, on_lost
        self.rows = ReservedRows(queue_name, database_for(using))
        self.job: HeldJob | None = None
        self._worker_id, self._pid = "", 0
        self._held_until = self._renew_at = 0.0  # boot clock
        self._bell: Doorbell | None = None  # proves the death of this process
        self._done = threading.Event()
        self._changing = threading.Lock()  # held while the lease is renewed, given back, or found lost

    def remaining(self) -> float:
        """Return for how many seconds it is certain that no other instance holds the row, if it is not renewed.

        It is 0 a margin (a tenth of the lease, 1 s at the most) before another instance can take the row.
        """
        if self.job is None or self._pid != os.getpid():  # a forked child holds nothing
            return 0.0
        return max(self._held_until - clock.since_boot(), 0.0)

    @property
    def held(self) -> bool:
        """Whether this instance holds its row, by its own boot clock."""
        return self.remaining() > 0

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Hold a row: wait for one if ``blocking``, for ``timeout`` seconds at the most; return whether it is held."""
        if self.held:
            return True
        self._refuse_in_transaction()
        self.release()
        if self._pid != os.getpid():
            self._worker_id, self._pid = new_worker_id(), os.getpid()
        self.rows.create(self.keys, dumps, self.ttl)
        return self._take() or (blocking and self._wait(clock.NEVER if timeout is None else timeout))

    def _wait(self, seconds: float) -> bool:
        """Take a row as soon as one is free; return False if none was for so many seconds."""
        until, bell = time.monotonic() + seconds, self.rows.bell(f"{UNPROVEN}{new_id()[-8:]}")
        try:
            while (left := until - time.monotonic()) > 0:
                bell.wait_for(min(LOOK, left))
                if until_done(self.rows.engine, self._take):
                    return True
        finally:
            bell.close()
        return False

    def _take(self) -> bool:
        """Take a row that is free; return whether there was one. The write lock is asked for only if there is."""
        if not self.rows.free(self._worker_id):
            return False
        bell = self.rows.bell(self._worker_id)
        taken = None
        try:
            taken = self.rows.take(self._worker_id, self.ttl)
        finally:
            if not taken:
                bell.close()
        if not taken:
            return False
        self.job, began = taken
        self._bell, self._done = bell, threading.Event()
        self._count_from(began)
        if self.renewing and not self.rows.engine.private():
            threading.Thread(target=self._keep_up, args=(self._done,), name=f"lease {self.name}", daemon=True).start()
        return True

    def renew(self) -> None:
        """Hold the row for one more lease from now on; raise LeaseLost if it is lost."""
        self.check()
        with self._changing:
            if self.job and not self._renewed(self.job):
                self._held_until = 0.0
        self.check()

    def renews_in(self) -> float:
        """Return in how many seconds the thread will renew the lease, if nothing else does."""
        return self._renew_at - clock.since_boot()

    def check(self) -> None:
        """Raise LeaseLost if this instance does not hold its row."""
        if not self.held:
            self._lose(self._done)
            raise LeaseLost(
                f"{self.name} is not held by this instance: it was not acquired, was released, or was not renewed in "
                "time, so that another instance may hold it. Stop what needs it, and acquire it anew."
            )

    def release(self) -> None:
        """Give the row back, so that an instance that waits takes it at once; nothing happens if it is not held."""
        self._done.set()
        with self._changing:
            job, self.job = self.job, None
            bell, self._bell = self._bell, None
        try:
            if job and self._pid == os.getpid():
                self.rows.give_back(job)
        finally:
            if bell and self._pid == os.getpid():
                bell.close()

    def _keep_up(self, done: threading.Event) -> None:
        """Renew the lease when it is time to, until it is given back or lost."""
        engine = new_engine(self.rows.database, traced=False)
        try:
            while not done.wait(min(max(self.renews_in(), 0.001), max(self.remaining(), 0.001))):
                if self.renews_in() > 0 and self.held:
                    continue  # it was renewed meanwhile
                with self._changing:
                    job = self.job
                    if done.is_set() or job is None:
                        return
                    try:
                        if not self.held or not self._renewed(job, engine):
                            self._held_until = 0.0
                    except DatabaseError as error:
                        logger.warning("%s was not renewed (%s); trying again", self.name, error)
                        engine.disconnect()
                        self._renew_at = clock.since_boot() + RETRY
                if not self.held:
                    self._lose(done)
                    return
        finally:
            connections.close_all()

    def _renewed(self, job: HeldJob, engine: Any = None) -> bool:
        """Renew the lease, whatever the wall clock says; return False if another instance has taken the row."""
        engine = engine or self.rows.engine
        with engine.transaction():
            began = clock.since_boot()
            if engine.renew([job], engine.now(), afresh=True):
                return False
        self._count_from(began)
        return True

    def _count_from(self, began: float) -> None:
        self._renew_at = began + self.ttl * self.renewed_after
        self._held_until = began + self.ttl - min(self.ttl * MARGIN, LONGEST_MARGIN)

    def _lose(self, done: threading.Event) -> None:
        """Note that the lease is lost, and say so once."""
        with self._changing:
            first, self.job = self.job is not None and done is self._done, None
        done.set()
        if first:
            logger.warning("%s is lost: it was not renewed in time, or another instance has taken it", self.name)
            if self.on_lost:
                try:
                    self.on_lost()
                except Exception:
                    logger.exception("on_lost of %s has failed", self.name)

    def _refuse_in_transaction(self) -> None:
        """Raise RuntimeError inside a transaction of the caller's, except that of a TestCase."""
        if connections[self.rows.database].in_atomic_block:
            try:
                with transaction.atomic(using=self.rows.database, durable=True):
                    pass
            except RuntimeError as error:
                raise RuntimeError(
                    f"{self.name} cannot be acquired inside transaction.atomic(): no other instance would see it "
                    "before the commit. Acquire it first, and begin the transaction in it."
                ) from error
