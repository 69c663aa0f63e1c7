"""The heartbeat of a worker: its row among those of the others, and what people ask it to do there."""

import logging
import os
import socket
import time
from collections.abc import Sequence

from ..backend import VTQueueBackend
from ..core.clock import from_instant, microseconds
from ..core.settlement import Settlement
from ..engines import Engine
from ..models import WorkerProcess
from ..queue.origin import ORIGIN_CHANGED, record_origin
from ..queue.workers import HEARTBEAT, SILENCE
from .deaths import OtherWorkers, forget_long_gone, rows_of
from .process import resident
from .reload import stand_in_id

logger = logging.getLogger("django_vtqueue")

PERIOD = 1.0  # seconds between two looks at the rows of the other workers
LONGEST_STAND_IN = 1.0  # seconds for which a lock is waited for, while a worker is to stop


class Heartbeat:
    """This worker's row among the rows of the others. ``next_at`` (monotonic): when ``keep`` has something to do."""

    def __init__(
        self,
        engine: Engine,
        backend: VTQueueBackend,
        worker_id: str,
        queues: Sequence[str],
        slots: int,
        doorbell: str,
    ) -> None:
        self.engine, self.others = engine, OtherWorkers(engine, backend)
        self.worker = WorkerProcess(
            worker_id=worker_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=",".join(queues),
            slots=slots,
            doorbell=doorbell,
        )
        self.next_at = self._beat_at = 0.0  # monotonic
        self._read = False  # what our row says, and no other connection has written since
        self._beaten = 0  # an instant: after a step of the clock the last heartbeat is one of another time
        self.clock_check = ClockCheck(engine)
        self.origin_recorded = False  # it is written down that the queue is worked here

    def forget(self) -> None:
        """Have the next beat write this worker's row at once: it may be gone."""
        self._beat_at, self.origin_recorded = 0.0, False
        self.look_again()

    def look_again(self) -> None:
        """Read our row anew, when it is time to: another connection has written."""
        self._read = False

    def keep(self) -> list[Settlement]:
        """Once a second, write our row if that is due, and settle what dead workers held; return the settlements."""
        if time.monotonic() < self.next_at:
            return []
        # If a lock prevents it, the next turn begins with it: a worker holds no job before the others know it.
        self.beat()
        self.next_at = time.monotonic() + PERIOD
        if not self._read:
            own = rows_of(self.engine).filter(pk=self.worker.pk, died_at=None)
            asked_to = own.values_list("asked_to", flat=True).first()
            if asked_to is None:  # the database was put back to before we came
                self.forget()
            else:
                self._read, self.worker.asked_to = True, asked_to
        return self.others.settle_for_the_dead()

    def beat(self) -> None:
        """Write that this worker is alive, and how much memory it takes, every 10 seconds."""
        now = self.engine.now()
        if time.monotonic() < self._beat_at and abs(now - self._beaten) < microseconds(SILENCE):
            return
        self.clock_check.look()
        self.worker.heartbeat_at, self.worker.memory = from_instant(now), resident() or None
        with self.engine.transaction():
            rows = WorkerProcess.objects.using(self.engine.alias)
            if not rows.filter(pk=self.worker.pk).update(heartbeat_at=now, memory=self.worker.memory, died_at=None):
                self.worker.started_at = from_instant(now)
                self.worker.save(using=self.engine.alias, force_insert=True)
                if stand_in := stand_in_id():
                    rows.filter(pk=stand_in)._raw_delete(self.engine.alias)
                self._read = False
            forget_long_gone(self.engine, now)
            left = None if self.origin_recorded else record_origin(self.engine, now)
        if left:
            logger.info(ORIGIN_CHANGED, left)
        self.origin_recorded = True
        self._beat_at, self._beaten = time.monotonic() + HEARTBEAT, now

    def sign_off(self, within: float = 1.0) -> bool:
        """Take this worker's row away; return False if it stays locked for so many seconds: the others will do it."""
        rows, deadline = WorkerProcess.objects.using(self.engine.alias), time.monotonic() + within
        mine = rows.filter(pk=self.worker.pk)
        while time.monotonic() < deadline:
            try:
                with self.engine.transaction():
                    free = mine.select_for_update(skip_locked=True)  # people may have it locked for long
                    rows.filter(pk__in=free.values("pk"))._raw_delete(self.engine.alias)
                if not mine.exists():
                    return True
            except Exception as error:
                logger.debug("could not sign off: %s", error)
            time.sleep(0.01)
        return False

    @property
    def asked_to(self) -> str:
        """What people have asked this worker to do, as it was read last; it outlives its row."""
        return self.worker.asked_to


def write_stand_in(engine: Engine, queues: Sequence[str], slots: int) -> None:
    """Have a row say that a worker is there, until the one that is started anew says so itself, or for SILENCE."""
    now, host = from_instant(engine.now()), socket.gethostname()
    row = WorkerProcess(worker_id=stand_in_id(), host=host, pid=os.getppid(), queues=",".join(queues), slots=slots)
    row.started_at = row.heartbeat_at = now
    try:
        with engine.lock_timeout(LONGEST_STAND_IN), engine.transaction():
            WorkerProcess.objects.using(engine.alias).filter(pk=row.pk)._raw_delete(engine.alias)
            row.save(using=engine.alias, force_insert=True)
    finally:
        engine.disconnect()  # of this thread


class ClockCheck:
    """Has this worker claim nothing as long as the clock of its host is wrong: it would end leases of the living.

    ``off``: it is; see Engine.clock_error.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine, self.off = engine, False

    def look(self) -> None:
        """Look at the clock; say so when it begins to be wrong, and when it is right again."""
        seconds = self.engine.clock_error()
        before, self.off = self.off, bool(seconds)
        if self.off and not before:
            where = "ahead of" if seconds > 0 else "behind"
            logger.error(
                "the clock of this host is %.0f s %s that of the disk; until it is set right (NTP), this worker claims "
                "nothing",
                abs(seconds),
                where,
            )
        elif before and not self.off:
            logger.warning("the clock of this host agrees with that of the disk again; this worker goes on")
