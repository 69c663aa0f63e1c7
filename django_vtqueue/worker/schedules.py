"""The part of a worker in recurring jobs: it writes down what its code declares, and publishes what is due."""

import logging
import time

from ..backend import VTQueueBackend
from ..core.clock import NEVER, SECOND
from ..engines import Engine, Trouble
from ..exceptions import QueueFull
from ..models import WorkerProcess
from ..recurrence.declaring import declared, marks, runnable, write_down
from ..recurrence.firing import due, earliest, fire, note_ends
from ..tasks.signals import Later

logger = logging.getLogger("django_vtqueue")

READ_AGAIN = 1.0  # seconds: while others write all the time, the table is not read more often
MINUTE = 60.0
FULL = 10.0  # seconds after which it is tried again, where a queue was full


class Schedules:
    """Sleeps until the next tick; the table is read after a tick, and when another connection has written.

    Nothing is kept here but times: each step can be taken again. ``later``: see fire.
    """

    def __init__(self, engine: Engine, backend: VTQueueBackend, worker: WorkerProcess, later: Later) -> None:
        self.engine, self.backend, self.later = engine, backend, later
        self.mine = declared(backend.alias)
        worker.schedules = marks(self.mine.values())
        self._started = True
        self._tick: int | None = None  # the next one of all schedules, as it was read last
        self._fired: set[str] = set()  # schedules of which jobs were published just now
        self._unended: set[str] = set()  # of which this worker has published jobs
        self._logged: dict[str, str] = {}  # of a schedule that is not run: why, as it was logged
        self._failure = ""  # of all of them: why, as it was logged
        # When to do what (monotonic); NEVER as long as nothing calls for it.
        self._read_at = self._declare_at = 0.0
        self._ends_at = self._again_at = NEVER
        self._read_last = self._declared_last = 0.0

    def look_again(self) -> None:
        """Read the table anew, once a second at the most: another connection has written."""
        self._read_at = min(self._read_at, self._read_last + READ_AGAIN)
        self._declare_at = min(self._declare_at, self._declared_last + MINUTE)

    def forget(self) -> None:
        """Read and check the table at once: the clock was set, or the database replaced."""
        self._read_at = self._declare_at = 0.0

    def next_at(self) -> float:
        """Return when there is something to do (monotonic)."""
        at = min(self._read_at, self._declare_at, self._ends_at, self._again_at)
        return at if self._tick is None else min(at, time.monotonic() + (self._tick - self.engine.now()) / SECOND)

    def keep(self) -> bool:
        """Do what is due; return whether jobs were published. Trouble with the database is raised: it is due again.

        Only a right that is missing on a table is no trouble of the jobs.
        """
        if time.monotonic() < self.next_at():
            return False
        try:
            self._keep(time.monotonic(), self.engine.now())
            self._failure = ""
        except Exception as error:
            if self.engine.trouble(error) not in (None, Trouble.RIGHTS):
                raise
            if self._failure != (failure := repr(error)):
                logger.warning("schedules: %s. They are looked at again each minute; jobs go on", failure)
            self._failure = failure
            self._tick, self._ends_at, self._again_at = None, NEVER, NEVER
            self._read_at = self._declare_at = time.monotonic() + MINUTE
        fired, self._fired = bool(self._fired), set()
        return fired

    def _keep(self, began: float, now: int) -> None:
        if began >= self._declare_at:
            write_down(self.engine, self.mine, now, started=self._started)
            self._started, self._declare_at, self._declared_last = False, NEVER, began
        self._fire(began, now)
        self._unended |= self._fired
        self._read_at, self._read_last = NEVER, began
        if began >= self._ends_at:
            self._unended = {name for name in self._unended if note_ends(self.engine, name, now)}
        if not self._unended:
            self._ends_at = NEVER
        elif self._fired or began >= self._ends_at:
            self._ends_at = began + MINUTE

    def _fire(self, began: float, now: int) -> None:
        """Publish what is due, as far as this worker's code declares it."""
        self._tick, again_at = earliest(self.engine.alias), NEVER
        if self._tick is not None and self._tick <= now:
            for row in due(self.engine.alias, now):
                if not runnable(row, self.mine, self.backend.alias):
                    continue
                try:
                    if fire(self.engine, self.backend, row, now, self.later):
                        self._fired.add(row.name)
                        self._logged.pop(row.name, None)
                except QueueFull as error:
                    self._tell(row.name, "full", error)
                    again_at = began + FULL
                except ValueError as error:
                    self._tell(row.name, str(error), error)
            self._tick = earliest(self.engine.alias, after=now)  # what is left has no code here
        self._again_at = again_at

    def _tell(self, name: str, reason: str, error: Exception) -> None:
        """Log why a schedule is not run, once for each reason, until it is run again."""
        if self._logged.get(name) != reason:
            self._logged[name] = reason
            logger.warning("schedule %r: %s", name, error)
