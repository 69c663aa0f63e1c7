"""The statistics of a worker: what it settled, summed for each task, queue, minute and hour, and written now and then.

Hours are kept for longer. Once a minute it measures how many jobs are due in each queue; the column is ``depth``.

What is written are totals, not what came since: a repeat, after a commit whose answer never came, counts nothing twice.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from ..core import states
from ..core.clock import NEVER, SECOND
from ..core.counts import HOUR, MINUTE, CountKey, Counts
from ..core.histograms import bucket_of, encode
from ..core.settlement import Settlement
from ..engines import Engine, Trouble
from ..engines.distinct import by_key
from ..execution.outcomes import Outcome
from ..inspection.overview import backlogs
from ..inspection.throughput import NUMBERS
from ..models import HourlyThroughput, Throughput
from ..models.statistics import Tallied

logger = logging.getLogger("django_vtqueue")

PERIOD = 10.0  # seconds between two times that it is written: what a kill may take along
AGAIN = 0.05  # seconds after which it is tried again when the database was locked
DEPTH_PERIOD = 60.0  # seconds between two measurements of ``depth``
QUEUES = 100  # of which the depth is measured
DEEPEST = 100_000  # jobs that are counted for that, of all queues together: less than 10 ms
LEAST_DEEP = 1000  # of each queue
MINUTES_KEPT = 2 * 24 * HOUR  # in the database, for plots of a day and the day before
HOURS_KEPT = 8 * 24 * HOUR  # for charts of a week
PERIODS = ((Throughput, MINUTE, MINUTES_KEPT), (HourlyThroughput, HOUR, HOURS_KEPT))
UNWRITTEN = HOUR  # in memory, where it cannot be written: it must not grow for ever
PRUNED_BATCH = 200  # rows, and as many as are written: it keeps up with any number of workers and queues
UNIQUE = ["starts_at", "queue_name", "task_path", "worker_id"]
COUNTED = [*NUMBERS, "run_times", "wait_times", "depth"]
SAID_BY_TURNS = {Trouble.BUSY, Trouble.DISK, Trouble.UNOPENED, Trouble.GONE}  # what concerns the whole database

Table: TypeAlias = type[Tallied]
Name: TypeAlias = tuple[str, str]  # of a queue and a task


class Recorder:
    """The counts of one worker. Nothing here ends or delays a turn: what cannot be written is tried again."""

    def __init__(self, engine: Engine, worker_id: str) -> None:
        self.engine, self.worker_id = engine, worker_id
        self.next_at = NEVER  # monotonic: when it is to be written; never as long as nothing has come since
        self._counts: dict[Table, dict[CountKey, Counts]] = {Throughput: {}, HourlyThroughput: {}}
        self._changed: dict[Table, set[CountKey]] = {Throughput: set(), HourlyThroughput: set()}  # not written since
        self._depth_at = 0.0  # monotonic
        self._deep: set[str] = set()  # queues in which jobs were due
        self._written_at = -PERIOD  # monotonic
        self._logged = False

    def count(self, outcomes: Iterable[Outcome]) -> None:
        """Count what was executed and is stored."""
        counts: defaultdict[Name, Counts] = defaultdict(Counts)
        for outcome in outcomes:
            if row := count_end(counts, outcome.settlement):
                job = outcome.job
                row.run_times[bucket_of(outcome.seconds * SECOND)] += 1
                row.wait_times[bucket_of((job.started_at or 0) - job.due_at)] += 1
        self._add(counts)

    def count_endings(self, settlements: Iterable[Settlement]) -> None:
        """Count attempts that ended without an outcome: with their worker, or with their lease."""
        counts: defaultdict[Name, Counts] = defaultdict(Counts)
        for settlement in settlements:
            count_end(counts, settlement)
        self._add(counts)

    def write(self) -> None:
        """Write what has changed, if it is time to."""
        if time.monotonic() >= self._depth_at:
            self._measure()
        if time.monotonic() >= self.next_at:
            self._write()

    def flush(self, seconds: float = 0.0) -> None:
        """Write what has changed at once, for the worker leaves; try it for ``seconds`` if the database is locked."""
        deadline = time.monotonic() + seconds
        while self._changed[Throughput] and self._write() and time.monotonic() < deadline:
            time.sleep(AGAIN)

    def _add(self, counts: Mapping[Name, Counts]) -> None:
        """Add what has come to the totals of the present minute and hour."""
        if not counts:
            return
        now = self.engine.now()
        for table, width, _ in PERIODS:
            present, totals, changed = now - now % width, self._counts[table], self._changed[table]
            for name, each in counts.items():
                key = (present, *name)
                if key not in totals:
                    # The last one is kept too: a clock set back by a little would begin it anew, and less be written.
                    for old in [old for old in totals if old[0] < present - width and old not in changed]:
                        del totals[old]
                    totals[key] = Counts()
                totals[key].add(each)
                changed.add(key)
        self.next_at = min(self.next_at, self._written_at + PERIOD)

    def _measure(self) -> None:
        """Note how many jobs are due in each queue; a queue that had some, and has none now, has 0."""
        self._depth_at = time.monotonic() + DEPTH_PERIOD
        try:
            names = self.engine.queue_names(QUEUES)
            most = max(LEAST_DEEP, DEEPEST // max(len(names), 1))
            found = {}
            if names:
                with self.engine.snapshot() as now:
                    found = backlogs(self.engine.alias, names, now, most)
            depths = dict.fromkeys(self._deep, 0) | {name: backlog.due for name, backlog in found.items()}
        except Exception as error:
            logger.debug("the depth of the queues could not be measured: %r", error)
            return
        self._deep = {queue_name for queue_name, depth in depths.items() if depth}
        self._add({(queue_name, ""): Counts(depth=depth) for queue_name, depth in depths.items()})

    def _write(self) -> bool:
        """Return whether to try again soon, for the database was locked."""
        now = self.engine.now()
        try:
            with self.engine.atomic():
                for table, _, kept in PERIODS:
                    rows = {key: self._counts[table][key] for key in self._changed[table]}
                    store(table, self.engine.alias, self.worker_id, rows)
                    prune(table, self.engine.alias, now - kept, PRUNED_BATCH + len(rows))
        except Exception as error:
            return self._failed(error, now)
        self._logged = False
        self.next_at, self._written_at = NEVER, time.monotonic()
        for changed in self._changed.values():
            changed.clear()
        return False

    def _failed(self, error: Exception, now: int) -> bool:
        trouble = self.engine.trouble(error)
        self.next_at = time.monotonic() + (AGAIN if trouble is Trouble.BUSY else PERIOD)
        for table, width, _ in PERIODS:
            self._changed[table] = {key for key in self._changed[table] if key[0] > now - UNWRITTEN - width}
        if trouble not in SAID_BY_TURNS and not self._logged:
            self._logged = True
            logger.warning("the statistics could not be written: %r. Jobs go on", error)
        return trouble is Trouble.BUSY


def count_end(counts: defaultdict[Name, Counts], settlement: Settlement) -> Counts | None:
    """Count the end of an attempt; return what it was added to. None: the job was released."""
    if settlement.uses_no_attempt:
        return None
    row = counts[settlement.job.queue_name, settlement.job.task_path]
    if settlement.state == states.SUCCESSFUL:
        row.succeeded += 1
    elif settlement.state == states.FAILED:
        row.dead += 1
    else:
        row.failed += 1
    return row


def store(table: Table, database: str, worker_id: str, counts: Mapping[CountKey, Counts]) -> None:
    """Store what a worker has counted, in the place of what it had stored of the same time, queue and task."""
    rows = [
        table(
            **dict(zip(UNIQUE, (*key, worker_id), strict=True)),
            **{name: getattr(each, name) for name in (*NUMBERS, "depth")},
            run_times=encode(each.run_times),
            wait_times=encode(each.wait_times),
        )
        for key, each in counts.items()
    ]
    table._base_manager.using(database).bulk_create(
        rows, update_conflicts=True, unique_fields=UNIQUE, update_fields=COUNTED
    )


def prune(table: Table, database: str, before: int, limit: int) -> int:
    """Delete the oldest counts of a time: ``limit`` of them, and what else there is of their minutes (or hours).

    Return how many were deleted.
    """
    rows = by_key(table._base_manager.using(database)).filter(starts_at__lt=before)
    minutes = set(rows.order_by("starts_at").values_list("starts_at", flat=True)[:limit])
    return table._base_manager.using(database).filter(starts_at__in=minutes)._raw_delete(database) if minutes else 0
