"""The statistics of a worker: what it settled, summed for each task, queue and minute, and written now and then.

Hours are the sums of their minutes, and kept for longer. Once a minute the depth of the queues is measured.

What is written are totals, not what came since: a repeat, after a commit whose answer never came, counts nothing twice.
"""

import logging
import time
from collections.abc import Iterable

from ..core import states
from ..core.clock import SECOND
from ..core.counts import MINUTE, Counts, Key, hour_of, minute_of
from ..core.histograms import bucket_of
from ..core.job import Settlement
from ..engines import Engine, Trouble
from ..execution.outcomes import Outcome
from ..inspection.overview import backlogs, queue_names
from ..models import HourlyThroughput, Throughput
from ..throughput import prune, store

logger = logging.getLogger("django_vtqueue")

PERIOD = 10.0  # seconds between two times that it is written: what a kill may take along
AGAIN = 0.05  # seconds after which it is tried again when the database was locked
DEPTH_PERIOD = 60.0  # seconds between two measurements of the depth
QUEUES = 100  # of which the depth is measured
DEEPEST = 100_000  # jobs that are counted for that, of all queues together: less than 10 ms
LEAST_DEEP = 1000  # of each queue
KEPT_HOURS = 8 * 24 * 60 * MINUTE  # for charts of a week
KEPT = 2 * 24 * 60 * MINUTE  # in the database, for plots of a day and the day before
UNWRITTEN = 60 * MINUTE  # in memory, where it cannot be written: it must not grow for ever
PRUNED_AT_ONCE = 200  # rows, and as many as are written: it keeps up with any number of workers and queues
SAID_BY_TURNS = {Trouble.BUSY, Trouble.DISK, Trouble.GONE}  # what concerns the whole database
NEVER = float("inf")


class Recorder:
    """The counts of one worker. Nothing here ends or delays a turn: what cannot be written is tried again."""

    def __init__(self, engine: Engine, worker_id: str) -> None:
        self.engine, self.worker_id = engine, worker_id
        self.at = NEVER  # monotonic: when it is to be written; never as long as nothing has come since
        self._minutes: dict[int, dict[tuple[str, str], Counts]] = {}  # by queue and task
        self._past: dict[int, dict[tuple[str, str], Counts]] = {}  # hours: the minutes that are known no more
        self._changed: set[Key] = set()  # not written since
        self._depth_at = 0.0  # monotonic
        self._deep: set[str] = set()  # queues in which jobs were due
        self._written_at = -PERIOD  # monotonic
        self._said = False

    def count(self, outcomes: Iterable[Outcome]) -> None:
        """Count what was executed and is stored. It is done for every job, so it calls as little as possible."""
        minute, queues = self._present()
        changed: set[tuple[str, str]] = set()
        for outcome in outcomes:
            settlement, job = outcome.settlement, outcome.job
            name = job.queue_name, job.task_path
            row = queues.get(name) or queues.setdefault(name, Counts())
            if settlement.state == states.SUCCESSFUL:
                row.succeeded += 1
            elif settlement.state == states.FAILED:
                row.dead += 1
            elif settlement.failure is not None:
                row.failed += 1
            else:  # it went back, for others to execute
                continue
            changed.add(name)
            row.run_times[bucket_of(outcome.seconds * SECOND)] += 1
            row.wait_times[bucket_of((job.started_at or 0) - job.due_at)] += 1
        self._note(minute, changed)

    def count_endings(self, settlements: Iterable[Settlement]) -> None:
        """Count attempts that ended without an outcome: with their worker, or with their lease."""
        minute, queues = self._present()
        changed: set[tuple[str, str]] = set()
        for settlement in settlements:
            if settlement.failure is None:
                continue
            name = settlement.job.queue_name, settlement.job.task_path
            row = queues.setdefault(name, Counts())
            if settlement.state == states.FAILED:
                row.dead += 1
            else:
                row.failed += 1
            changed.add(name)
        self._note(minute, changed)

    def write(self) -> None:
        """Write what has changed, if it is time to."""
        if time.monotonic() >= self._depth_at:
            self._measure()
        if time.monotonic() >= self.at:
            self._write()

    def flush(self, seconds: float = 0.0) -> None:
        """Write what has changed at once, for the worker leaves; try it for ``seconds`` if the database is locked."""
        deadline = time.monotonic() + seconds
        while self._changed and self._write() and time.monotonic() < deadline:
            time.sleep(AGAIN)

    def _present(self) -> tuple[int, dict[tuple[str, str], Counts]]:
        """Return the minute, and the counts of its queues and tasks."""
        minute = minute_of(self.engine.now())
        if minute not in self._minutes:
            # The last one too: a clock set back by a little would begin it anew, and write less of it than there was.
            kept = {minute - MINUTE, *(unwritten for unwritten, *_ in self._changed)}
            for known in self._minutes.keys() - kept:
                self._fold(known, self._minutes.pop(known))
            hours = {hour_of(known) for known in (minute, *self._minutes)}
            self._past = {hour: rows for hour, rows in self._past.items() if hour in hours}
            self._minutes[minute] = {}
        return minute, self._minutes[minute]

    def _fold(self, minute: int, rows: dict[tuple[str, str], Counts]) -> None:
        """Add a minute to what is known of its hour."""
        hour = self._past.setdefault(hour_of(minute), {})
        for name, counts in rows.items():
            hour.setdefault(name, Counts()).add(counts)

    def _hours(self) -> dict[Key, Counts]:
        """Return the totals of the hours in which something has changed."""
        found = {(hour_of(minute), queue, task): Counts() for minute, queue, task in self._changed}
        for (hour, *name), total in found.items():
            key = name[0], name[1]
            if past := self._past.get(hour, {}).get(key):
                total.add(past)
            for minute, rows in self._minutes.items():
                if hour_of(minute) == hour and key in rows:
                    total.add(rows[key])
        return found

    def _measure(self) -> None:
        """Note how many jobs are due in each queue; a queue that had some, and has none now, has 0."""
        self._depth_at = time.monotonic() + DEPTH_PERIOD
        try:
            names = queue_names(self.engine.alias, QUEUES)
            most = max(LEAST_DEEP, DEEPEST // max(len(names), 1))
            found = backlogs(self.engine.alias, names, self.engine.now(), most) if names else {}
            depths = dict.fromkeys(self._deep, 0) | {name: backlog.due for name, backlog in found.items()}
        except Exception as error:
            logger.debug("the depth of the queues could not be measured: %r", error)
            return
        minute, queues = self._present()
        for queue_name, depth in depths.items():
            queues.setdefault((queue_name, ""), Counts()).depth = depth
        self._deep = {queue_name for queue_name, depth in depths.items() if depth}
        self._note(minute, {(queue_name, "") for queue_name in depths})

    def _note(self, minute: int, names: set[tuple[str, str]]) -> None:
        if names:
            self._changed.update((minute, *name) for name in names)
            self.at = min(self.at, self._written_at + PERIOD)

    def _write(self) -> bool:
        """Return whether to try again soon, for the database was locked."""
        now = self.engine.now()
        rows = {key: self._minutes[key[0]][key[1:]] for key in self._changed}
        try:
            with self.engine.atomic():
                for table, counts, kept in ((Throughput, rows, KEPT), (HourlyThroughput, self._hours(), KEPT_HOURS)):
                    store(table, self.engine.alias, self.worker_id, counts)
                    prune(table, self.engine.alias, now - kept, PRUNED_AT_ONCE + len(counts))
        except Exception as error:
            return self._failed(error, now)
        self._said = False
        self.at, self._written_at = NEVER, time.monotonic()
        self._changed.clear()
        return False

    def _failed(self, error: Exception, now: int) -> bool:
        trouble = self.engine.trouble(error)
        self.at = time.monotonic() + (AGAIN if trouble is Trouble.BUSY else PERIOD)
        self._changed = {key for key in self._changed if key[0] > now - UNWRITTEN}
        if trouble not in SAID_BY_TURNS and not self._said:
            self._said = True
            logger.warning("the statistics could not be written: %r. Jobs go on", error)
        return trouble is Trouble.BUSY
