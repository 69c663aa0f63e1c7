"""Days of recurring jobs across both changes of daylight saving, in two zones, under four workers that are killed.

Their wall clock is stepped from one tick to the next, back, and over hours in which no worker runs.
"""

import random
import shutil
from collections import Counter, deque
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from ..processes.database import Database
from ..processes.running import Running, Start
from ..processes.test_recurring import declaring
from ..waiting import wait_until
from .inside import OFTEN_AT_THE_CLOCK, TOO_LATE, ticks
from .scale import MINUTES
from .wall_clock import WallClock
from .words import SECOND

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler (cc) is needed to step a clock")

PARIS, NEW_YORK = "Europe/Paris", "America/New_York"
# Both changes in each zone: the instants at which the clocks are set.
CHANGES = [
    datetime(2027, 3, 14, 7, tzinfo=UTC),
    datetime(2027, 3, 28, 1, tzinfo=UTC),
    datetime(2027, 10, 31, 1, tzinfo=UTC),
    datetime(2027, 11, 7, 6, tzinfo=UTC),
]
AROUND = timedelta(hours=36) if MINUTES else timedelta(minutes=60)
STEP = timedelta(minutes=20)  # every tick is at the end of a step
KINDS = ("one", "all", "skip")
EXPRESSIONS = ("40 2 * * *", "20 1 * * *", "*/20 * * * *", "every 2400")
SEED = 7


def instant(moment: datetime) -> int:
    return round(moment.timestamp()) * SECOND


class Days:
    """Four workers with one wall clock. ``down``: the times in which none ran, as pairs of instants."""

    def __init__(self, database: Database, start_worker: Start, wall: WallClock) -> None:
        self.database, self.start_worker, self.wall = database, start_worker, wall
        self.schedules = {
            f"{expression}|{name}|{missed}": (expression, "" if expression.startswith("every") else name)
            for expression in EXPRESSIONS
            for name in (PARIS, NEW_YORK)
            for missed in KINDS
        }
        self.declared = declaring(*map(self.declaration, self.schedules))
        self.workers: list[Running] = []
        self.down: list[tuple[int, int]] = []
        self.spans: list[tuple[int, int]] = []

    def declaration(self, name: str) -> dict[str, object]:
        expression, tz, missed = name.split("|")
        when = {"every": 2400} if expression.startswith("every") else {"cron": expression, "tz": tz}
        return {**when, "missed": missed, "name": name, "args": [name]}

    def start(self) -> None:
        self.workers.append(
            self.start_worker(
                "--threads", "1", ready=False, constants=OFTEN_AT_THE_CLOCK, **self.declared, **self.wall.variables
            )
        )

    def kill(self) -> None:
        """Kill one, and start another one, which is not waited for."""
        self.workers.pop(random.randrange(len(self.workers))).kill()
        self.start()

    def step(self, moment: datetime) -> None:
        """Set the clock, and wait until all that is due by it was run."""
        self.wall.set(moment.timestamp() - datetime.now(UTC).timestamp())
        now = instant(moment)
        # A job whose worker is killed is put back to a later time, by which its tick could not be told any more.
        wait_until(lambda: self.following() > now and not self.database.unfinished())

    def following(self) -> int:
        """Return the earliest next tick; 0 as long as the schedules are not all written down."""
        [(count, tick)] = self.database.rows("SELECT count(*), min(next_at) FROM vtqueue_schedule")
        return int(tick) if count == len(self.schedules) else 0

    def pass_by(self, change: datetime) -> None:
        """Let the days around a change go by; then the hours around the next one without a worker."""
        moment = change - AROUND
        if not self.workers:
            self.wall.set(moment.timestamp() - datetime.now(UTC).timestamp())
            while len(self.workers) < 4:
                self.start()
        elif self.spans:  # the weeks since the last change
            self.without_workers(self.spans[-1][1], moment)
        begin = instant(moment)
        while moment <= change + AROUND:
            self.step(moment)
            if random.random() < 0.1:
                self.kill()
            if random.random() < 0.1:
                self.wall.set((moment - STEP).timestamp() - datetime.now(UTC).timestamp())
            moment += STEP
        self.spans.append((begin, instant(moment - STEP)))

    def without_workers(self, since: int, until: datetime) -> None:
        """Kill all, and start four when it is later: five minutes before a tick, so none is just late."""
        while self.workers:
            self.workers.pop().kill()
        until -= timedelta(minutes=5)
        self.wall.set(until.timestamp() - datetime.now(UTC).timestamp())
        self.down.append((since, instant(until)))
        for _ in range(4):
            self.start()
        wait_until(lambda: self.following() > instant(until))

    # What has become of it

    def run(self, name: str) -> list[int]:
        rows = self.database.rows("SELECT due_at FROM vtqueue_job WHERE payload LIKE ? ORDER BY due_at", f'%"{name}"%')
        return [row["due_at"] for row in rows]

    def wanted(self, name: str) -> Iterator[int]:
        """Yield the ticks that are run: all that came while workers ran, and of others what ``missed`` says."""
        schedule, missed = self.schedules[name], name.rpartition("|")[2]
        end = self.spans[-1][1]
        begin = self.spans[0][0]
        for since, until in [*self.down, (end, None)]:
            yield from ticks(*schedule, begin, since)
            if until is None:
                return
            if missed == "skip":
                yield from ticks(*schedule, max(since + 1, until - TOO_LATE), until)
            else:
                gap = ticks(*schedule, since + 1, until)
                yield from islice(gap, 1) if missed == "one" else deque(gap, 100)
            begin = until + 1


@pytest.mark.sqlite("its ticks are by the clock of the machine, which is stepped")
@needs_compiler
@pytest.mark.timeout(3600)
def test_each_tick_is_run_once(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """None twice, none missed by more than the time without workers; of that time what ``missed`` says."""
    random.seed(SEED)
    database.options["result_ttl"] = None
    days = Days(database, start_worker, WallClock(tmp_path))
    for change in CHANGES if MINUTES else CHANGES[1::2]:
        days.pass_by(change)
    for name in days.schedules:
        run = days.run(name)
        # The first tick is that after the start of the first worker, which was at no certain moment of its minute.
        assert run == [tick for tick in days.wanted(name) if tick > days.spans[0][0]], name
    assert_once_a_day(days)
    print(f"{sum(len(days.run(name)) for name in days.schedules)} ticks of {len(days.schedules)} schedules")


def assert_once_a_day(days: Days) -> None:
    """Check, by the dates alone, that a fixed time came once on each day, and on none twice."""
    for name in days.schedules:
        expression, tz, _ = name.split("|")
        if expression.startswith(("every", "*")):
            continue
        dates = Counter(date_in(tz, tick) for tick in days.run(name))
        assert set(dates.values()) <= {1}, name
        for begin, end in days.spans:
            first, last = date_in(tz, begin), date_in(tz, end)
            whole = {first + timedelta(days=number) for number in range(1, (last - first).days)}
            assert whole <= dates.keys(), name


def date_in(tz: str, tick: int) -> date:
    return datetime.fromtimestamp(tick / SECOND, ZoneInfo(tz)).date()
