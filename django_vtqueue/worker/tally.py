"""What a worker has settled, summed in memory for each queue and minute, and written now and then.

What is written are totals, not what came since: a repeat, after a commit whose answer never came, counts nothing twice.
"""

import logging
import time
from collections.abc import Iterable

from .. import states
from ..clock import SECOND
from ..counts import MINUTE, Counts, minute_of
from ..engines import Engine, Trouble
from ..histograms import bucket_of
from ..jobs import Settlement
from ..outcomes import Outcome

logger = logging.getLogger("django_vtqueue")

PERIOD = 10.0  # seconds between two times that it is written: what a kill may take along
AGAIN = 0.05  # seconds after which it is tried again when the database was locked
KEPT = 2 * 24 * 60 * MINUTE  # in the database, for plots of a day and the day before
UNWRITTEN = 60 * MINUTE  # in memory, where it cannot be written: it must not grow for ever
PRUNED_AT_ONCE = 200  # rows, and as many as are written: it keeps up with any number of workers and queues
SAID_BY_TURNS = {Trouble.BUSY, Trouble.DISK, Trouble.GONE}  # what concerns the whole database
NEVER = float("inf")


class Tally:
    """The counts of one worker. Nothing here ends or delays a turn: what cannot be written is tried again."""

    def __init__(self, engine: Engine, worker_id: str) -> None:
        self.engine, self.worker_id = engine, worker_id
        self.at = NEVER  # monotonic: when it is to be written; never as long as nothing has come since
        self._minutes: dict[int, dict[str, Counts]] = {}
        self._changed: set[tuple[int, str]] = set()  # not written since
        self._written_at = -PERIOD  # monotonic
        self._said = False

    def count(self, outcomes: Iterable[Outcome]) -> None:
        """Count what was executed and is stored. It is done for every job, so it calls as little as possible."""
        minute, queues = self._present()
        changed = set()
        for outcome in outcomes:
            settlement, job = outcome.settlement, outcome.job
            name = job.queue_name
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
        changed = set()
        for settlement in settlements:
            if settlement.failure is None:
                continue
            row = queues.setdefault(settlement.job.queue_name, Counts())
            if settlement.state == states.FAILED:
                row.dead += 1
            else:
                row.failed += 1
            changed.add(settlement.job.queue_name)
        self._note(minute, changed)

    def write(self) -> None:
        """Write what has changed, if it is time to."""
        if time.monotonic() >= self.at:
            self._write()

    def flush(self, seconds: float = 0.0) -> None:
        """Write what has changed at once, for the worker leaves; try it for ``seconds`` if the database is locked."""
        deadline = time.monotonic() + seconds
        while self._changed and self._write() and time.monotonic() < deadline:
            time.sleep(AGAIN)

    def _present(self) -> tuple[int, dict[str, Counts]]:
        """Return the minute, and the counts of its queues."""
        minute = minute_of(self.engine.now())
        if minute not in self._minutes:
            # The last one too: a clock set back by a little would begin it anew, and write less of it than there was.
            kept = {minute - MINUTE, *(unwritten for unwritten, _ in self._changed)}
            self._minutes = {known: queues for known, queues in self._minutes.items() if known in kept}
            self._minutes[minute] = {}
        return minute, self._minutes[minute]

    def _note(self, minute: int, names: set[str]) -> None:
        if names:
            self._changed.update((minute, name) for name in names)
            self.at = min(self.at, self._written_at + PERIOD)

    def _write(self) -> bool:
        """Return whether to try again soon, for the database was locked."""
        now = self.engine.now()
        rows = {(minute, name): self._minutes[minute][name] for minute, name in self._changed}
        try:
            with self.engine.transaction():
                self.engine.tally(self.worker_id, rows)
                self.engine.prune_counts(now - KEPT, PRUNED_AT_ONCE + len(rows))
        except Exception as error:
            return self._failed(error, now)
        self._said = False
        self.at, self._written_at = NEVER, time.monotonic()
        self._changed.clear()
        return False

    def _failed(self, error: Exception, now: int) -> bool:
        trouble = self.engine.trouble(error)
        self.at = time.monotonic() + (AGAIN if trouble is Trouble.BUSY else PERIOD)
        self._changed = {(minute, name) for minute, name in self._changed if minute > now - UNWRITTEN}
        if trouble not in SAID_BY_TURNS and not self._said:
            self._said = True
            logger.warning("the statistics could not be written: %r. Jobs go on", error)
        return trouble is Trouble.BUSY
