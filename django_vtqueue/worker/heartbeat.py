"""The heartbeat of a worker, and its view of the others: which are alive, and which have died."""

import logging
import os
import resource
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from ..backend import VTQueueBackend
from ..core import states
from ..core.clock import from_instant, microseconds
from ..core.ids import dashed, shown_worker
from ..core.settlement import Settlement
from ..engines import Engine
from ..models import WorkerProcess
from ..queue.doorbell import folder_of, proves_death, remove, was_over_time
from ..queue.origin import move_in
from ..queue.settling import settle
from ..queue.workers import HEARTBEAT, REMEMBERED, SILENCE
from .deaths import after_death
from .disk_clock import DiskClock

logger = logging.getLogger("django_vtqueue")

MOST_DEAD = 100  # rows of dead workers that are kept: one that is started again and again dies again and again
MOST_LEFT = 100  # ids of jobs that the row of a dead worker has


PERIOD = 1.0  # seconds between two looks at the rows of the other workers


def resident() -> int:
    """Return the bytes of memory that this process takes; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


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
        self.engine, self.backend = engine, backend
        self._bells = folder_of(backend.settings.doorbells)
        self.worker = WorkerProcess(
            worker_id=worker_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=",".join(queues),
            slots=slots,
            doorbell=doorbell,
        )
        self.next_at = self._beat_at = 0.0  # monotonic
        self._beaten = 0  # an instant: after a step of the clock the last heartbeat is one of another time
        self._known: list[WorkerProcess] | None = None  # the rows of all, as long as no other connection has written
        self.disk_clock = DiskClock(engine)
        self.moved_in = False  # it is written down that the queue is worked here

    @property
    def _rows(self):  # type: ignore[no-untyped-def]
        return WorkerProcess.objects.using(self.engine.alias)

    def forget(self) -> None:
        """Have the next beat write this worker's row at once: it may be gone."""
        self._beat_at, self.moved_in = 0.0, False
        self.look_again()

    def look_again(self) -> None:
        """Read the others' rows anew, when they are needed: another connection has written."""
        self._known = None

    def keep(self) -> list[Settlement]:
        """Once a second, write our row if that is due, and settle what dead workers held; return the settlements."""
        if time.monotonic() < self.next_at:
            return []
        # If a lock prevents it, the next turn begins with it: a worker holds no job before the others know it.
        self.beat()
        self.next_at = time.monotonic() + PERIOD
        return self.end_leases_of_the_dead()

    def beat(self) -> None:
        """Write that this worker is alive, and how much memory it takes, every 10 seconds."""
        now = self.engine.now()
        if time.monotonic() < self._beat_at and abs(now - self._beaten) < microseconds(SILENCE):
            return
        self.disk_clock.look()
        self.worker.heartbeat_at, self.worker.memory = from_instant(now), resident() or None
        with self.engine.transaction():
            known = self._rows.filter(pk=self.worker.pk)
            if not known.update(heartbeat_at=now, memory=self.worker.memory, died_at=None):
                self.worker.started_at = from_instant(now)
                self.worker.save(using=self.engine.alias, force_insert=True)
                self.look_again()
            self._rows.filter(died_at__lt=now - microseconds(REMEMBERED))._raw_delete(self.engine.alias)
            left = None if self.moved_in else move_in(self.engine, now)
        if left:
            logger.info("the jobs of this database ran on %s before; from now on they run here", left)
        self.moved_in = True
        self._beat_at, self._beaten = time.monotonic() + HEARTBEAT, now

    def sign_off(self) -> None:
        """Take this worker's row away; if the database stays locked for a second, the others will."""
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            try:
                with self.engine.transaction():
                    self._remove(self.worker.pk)
                return
            except Exception as error:
                logger.debug("could not sign off: %s", error)
                time.sleep(0.01)

    @property
    def asked_to(self) -> str:
        """What people have asked this worker to do, as it was read last; it outlives its row."""
        return self.worker.asked_to

    def end_leases_of_the_dead(self) -> list[Settlement]:
        """Settle what workers held that are proven dead, and forget those long silent; return the settlements."""
        now = self.engine.now()
        endings = []
        if self._known is None:
            self._known = list(self._rows.filter(died_at=None))
        rows = {row.pk: row for row in self._known}
        if own := rows.pop(self.worker.pk, None):
            self.worker.asked_to = own.asked_to
        else:  # the database was put back to before we came
            self.forget()
        for row in rows.values():
            if proves_death(row.doorbell, self.engine.alias, self._bells):
                self.look_again()
                endings += self._end_leases(row)
            elif row.heartbeat_at < from_instant(now - microseconds(REMEMBERED)):
                self.look_again()
                with self.engine.transaction():
                    self._remove(row.pk)
            elif row.heartbeat_at > from_instant(now + microseconds(SILENCE)):  # else it would be remembered for ever
                self.look_again()
                with self.engine.transaction():
                    self._rows.filter(pk=row.pk, heartbeat_at__gt=now).update(heartbeat_at=now)
        return endings

    def _end_leases(self, dead: WorkerProcess) -> list[Settlement]:
        """Settle what a dead worker held of our queues; the last of those concerned takes its bell away.

        Its row stays for a while, with what became of its jobs.
        """
        with self.engine.transaction():
            now = self.engine.now()  # nothing ends before its worker has died
            held = self.engine.held_by(dead.pk)
            ours = [job for job in held if self.backend.settings.serves(job.queue_name)]
            endings = after_death(self.backend, ours, now, over_time=was_over_time(dead.doorbell))
            if endings:
                settle(self.engine, endings)
            self._remember(dead.pk, endings, now if len(ours) == len(held) else None)
        if len(ours) == len(held):
            remove(dead.doorbell)
        if endings:
            going_on = sum(ending.state == states.READY for ending in endings)
            logger.info("worker %s died; jobs that go on elsewhere: %d", shown_worker(dead.pk), going_on)
        return endings

    def _remember(self, worker_id: str, endings: Sequence[Settlement], died_at: int | None) -> None:
        """Note in the row of a dead worker what became of its jobs, dead letters first; ``died_at``: None if some are
        left.
        """
        if (row := self._rows.filter(pk=worker_id).first()) is None:
            return
        of_the_dead = sorted(endings, key=lambda ending: ending.state != states.FAILED)
        buried = sum(ending.state == states.FAILED for ending in endings)
        ids = [*row.left.split(), *(dashed(ending.job.id) for ending in of_the_dead)][:MOST_LEFT]
        went_on = row.went_on + len(endings) - buried
        values = {"went_on": went_on, "buried": row.buried + buried, "left": " ".join(ids), "died_at": died_at}
        if died_at is not None:
            values["doorbell"] = ""  # it is not to be rung
        self._rows.filter(pk=worker_id).update(**values)
        newest = self._rows.exclude(died_at=None).order_by("-died_at").values_list("pk", flat=True)
        if too_many := list(newest[MOST_DEAD : 2 * MOST_DEAD]):
            self._rows.filter(pk__in=too_many)._raw_delete(self.engine.alias)

    def _remove(self, worker_id: str) -> None:
        # Not delete(): where a project listens to every deletion, that begins a transaction inside ours.
        self._rows.filter(pk=worker_id)._raw_delete(self.engine.alias)
