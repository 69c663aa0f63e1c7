"""What is measured: plain ``sqlite3`` and the queue's own code on a copy of its table, and the disk below."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from django.db import transaction

from django_vtqueue.core.clock import now
from django_vtqueue.core.ids import new_id
from django_vtqueue.core.job import HeldJob, NewJobs, Scope
from django_vtqueue.core.settlement import succeeded
from django_vtqueue.engines.sqlite.statements import INSERT
from django_vtqueue.queue.claims import Claims, collect

from .place import EMPTY, Copy, folder_of, renamed

SLICE = 0.02  # seconds for which one thing is done; then the lock is left to others for as long
MANY = (1, 10, 100)  # jobs of one transaction; of 100 it holds the lock for a few milliseconds
STOCK = 500  # jobs stored at a time, to be claimed
KEPT = 86_400_000_000  # microseconds
BLOCK = b"\0" * 4096
SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
PATIENCE = 20  # seconds

INSERT_PLAIN = renamed(INSERT)
SHARED: dict[str, Any] = {
    "queue_name": "default",
    "task_path": "vtqueue.bench",
    "priority": 0,
    "max_attempts": 10,
    "lease_us": 60_000_000,
}
PAYLOAD = '{"args": [], "kwargs": {}}'


class Setting(NamedTuple):
    """How a database is written: the journal mode in small letters, ``synchronous`` as SQLite numbers it."""

    journal: str
    synchronous: int

    def __str__(self) -> str:
        return f"{self.journal.upper()}, {SYNCHRONOUS[self.synchronous]}"


NORMAL, FULL = Setting("wal", 1), Setting("wal", 2)


@dataclass
class Measure:
    """One thing, done again and again, and how long it took each time, in seconds.

    ``jobs``: of one step. ``before``: run before each step, and ``after`` after each slice, neither of them timed.
    """

    what: str
    step: Callable[[], object]
    jobs: int = 1
    before: Callable[[], object] | None = None
    after: Callable[[], object] | None = None
    times: list[float] = field(default_factory=list)

    def run(self, seconds: float) -> None:
        """Do it at least once, and until so many seconds are over."""
        until = time.perf_counter() + seconds
        while not self.times or time.perf_counter() < until:
            if self.before:
                self.before()
            began = time.perf_counter()
            self.step()
            self.times.append(time.perf_counter() - began)
        if self.after:
            self.after()

    @property
    def rate(self) -> float:
        """How many jobs a second."""
        return len(self.times) * self.jobs / sum(self.times)

    def percentile(self, percent: float) -> float:
        """Return the seconds below which so many percent of all steps lie."""
        return sorted(self.times)[min(int(len(self.times) * percent / 100), len(self.times) - 1)]


@dataclass
class Measures:
    """All that is measured. ``settings``: one INSERT and COMMIT in a file beside the database, under each."""

    plain: Measure
    queue: list[Measure]
    settings: dict[Setting, Measure]
    fsync: Measure

    def run(self, seconds: float) -> None:
        """Do them by turns, so that a busy moment of the machine falls on all; a first round of each does not count."""
        every = [self.plain, *self.queue, *self.settings.values(), self.fsync]
        until = time.monotonic() + seconds
        by_turns(every)
        for measure in every:
            measure.times.clear()
        by_turns(every)
        while time.monotonic() < until:
            by_turns(every)


def by_turns(measures: Sequence[Measure]) -> None:
    for measure in measures:
        measure.run(SLICE)
        time.sleep(SLICE)


@contextmanager
def measures_on(copy: Copy, present: Setting) -> Iterator[Measures]:
    """Give all measures, with the connections and files that they need open during the block."""
    folder = folder_of(copy.path())
    with ExitStack() as stack:

        def plain(what: str, path: Path, setting: Setting, table: Sequence[str] = ()) -> Measure:
            raw = stack.enter_context(closing(connection(path, setting, table)))
            return Measure(what, lambda: raw.execute(INSERT_PLAIN, values()), after=lambda: raw.execute(EMPTY))

        settings = {
            setting: plain(str(setting), folder / f"{number}.sqlite3", setting, copy.definitions())
            for number, setting in enumerate(dict.fromkeys([present, NORMAL, FULL]))
        }
        raw = plain("plain sqlite3: INSERT and COMMIT", Path(copy.path()), present)
        disk = stack.enter_context((folder / "blocks").open("wb", buffering=0))
        yield Measures(raw, queue_on(copy), settings, Measure("", lambda: append(disk.fileno())))


def connection(path: Path, setting: Setting, table: Sequence[str]) -> sqlite3.Connection:
    """Return a connection without Django; ``table``: the statements that make it, none where it is there."""
    raw = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
    for sql in (*table[:1], f"PRAGMA journal_mode = {setting.journal}", *table[1:]):
        raw.execute(sql)
    raw.execute(f"PRAGMA synchronous = {setting.synchronous}")
    return raw


def append(file: int) -> None:
    """Store one more block on the disk for good."""
    os.write(file, BLOCK)
    os.fsync(file)


def values() -> dict[str, object]:
    """Return what INSERT_PLAIN needs for a new job."""
    instant = now()
    return {"id": new_id(), "payload": PAYLOAD, **SHARED, "enqueued_at": instant, "due_at": instant, "start_by": None}


def new_jobs(count: int) -> NewJobs:
    instant = now()
    return NewJobs(**SHARED, enqueued_at=instant, due_at=instant, jobs=[(new_id(), PAYLOAD) for _ in range(count)])


def queue_on(copy: Copy) -> list[Measure]:
    """Return the measures of the queue: storing as a site does, through Django; claiming as a worker does."""
    site = Copy(copy.alias)

    def store_each() -> None:
        with transaction.atomic(using=copy.alias):
            for _ in range(100):
                site.insert(new_jobs(1))

    storing = [
        Measure("enqueue one job", lambda: site.insert(new_jobs(1)), after=copy.empty),
        Measure("enqueue 100, one by one in a transaction", store_each, 100, after=copy.empty),
        Measure("enqueue 100 at once", lambda: site.insert(new_jobs(100)), 100, after=copy.empty),
    ]
    return storing + [claiming(copy, count) for count in MANY]


def claiming(copy: Copy, count: int) -> Measure:
    turns = Turns(copy, count)
    what = f"claim and settle {count} in a transaction"
    return Measure(what, turns.turn, count, before=turns.stock_up, after=turns.clear)


class Turns:
    """A worker's turns, but for its tasks: what the last one claimed is settled, and as many claimed."""

    def __init__(self, engine: Copy, count: int) -> None:
        self._engine = engine
        self._count = count
        self._held: list[HeldJob] = []
        self._waiting = 0

    def stock_up(self) -> None:
        if self._waiting < self._count:
            self._engine.insert(new_jobs(STOCK))
            self._waiting += STOCK

    def turn(self) -> None:
        instant = now()
        with self._engine.transaction():
            if self._held:
                self._engine.settle([succeeded(job, "null", instant, KEPT) for job in self._held])
            taken = Claims(self._engine).claim([Scope(None, raw=False)], self._count, "bench", instant)
        self._held = collect(self._engine, taken)
        self._waiting -= self._count

    def clear(self) -> None:
        self._held, self._waiting = [], 0
        self._engine.empty()


def file_system(path: str) -> str:
    """Return what kind of file system holds a file, as Linux calls it; "" where that cannot be known."""
    holding: tuple[Path, str] = (Path("/"), "")
    with suppress(OSError):
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, point, kind, *_ = line.split(" ")
            place = Path(point.encode().decode("unicode_escape"))
            if Path(path).is_relative_to(place) and place.is_relative_to(holding[0]):
                holding = place, kind
    return holding[1]
