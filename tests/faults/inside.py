"""The inside of the queue, as the tests of this folder see it: no other of its files imports what is not public.

It can be imported as soon as the apps are ready. Instants are in microseconds, as in the tables.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django_vtqueue import ClaimedJob, Queue
from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.conf import Policy
from django_vtqueue.core import clock, settlement, states
from django_vtqueue.core import ticks as recurrence
from django_vtqueue.core.failures import recorded
from django_vtqueue.core.gaps import Clocks
from django_vtqueue.core.grace import GRACE, GracePeriod
from django_vtqueue.core.ids import new_id
from django_vtqueue.core.ids import process_worker_id as own_worker_id
from django_vtqueue.core.job import HeldJob as Held
from django_vtqueue.core.job import NewJobs, Scope
from django_vtqueue.core.settlement import Settlement, released, released_unfinished, succeeded
from django_vtqueue.engines import Trouble, engine_for, new_engine
from django_vtqueue.engines.sqlite import file
from django_vtqueue.engines.sqlite.mounts import place_of, store_result
from django_vtqueue.exceptions import WorkerDied
from django_vtqueue.queue import clock_repair, consumer, workers
from django_vtqueue.queue import queue as queues
from django_vtqueue.queue.claims import Claims, collect
from django_vtqueue.queue.clock_repair import ClockRepair
from django_vtqueue.queue.discarding import discard_jobs, discard_letters
from django_vtqueue.queue.doorbell import Doorbell
from django_vtqueue.queue.ended_leases import bury_overdue
from django_vtqueue.queue.settling import settle
from django_vtqueue.queue.unique import insert_with_keys
from django_vtqueue.runtime.timeouts import timekeeper
from django_vtqueue.tasks.compat import Task, TaskResultDoesNotExist, task_enqueued, task_finished, task_started
from django_vtqueue.worker import maintenance
from django_vtqueue.worker.in_flight import InFlight
from django_vtqueue.worker.inline import Line, run_due
from django_vtqueue.worker.leases import Leases
from django_vtqueue.worker.log import WorkerLog
from django_vtqueue.worker.loop import Worker
from django_vtqueue.worker.options import WorkerOptions
from django_vtqueue.worker.outage import Outage
from django_vtqueue.worker.statistics import Recorder
from django_vtqueue.worker.thread_pool import Pool

if TYPE_CHECKING:
    import pytest

    from ..fake_clock import FakeClock

# A job as its holder knows it, and how its attempt ends; names; and what is Django's, from whichever package has it.
__all__ = ["Held", "Settlement", "abandoned", "failed", "released", "released_unfinished", "succeeded"]
__all__ += ["new_id", "own_worker_id"]
__all__ += ["Task", "TaskResultDoesNotExist", "task_enqueued", "task_finished", "task_started"]

SILENCE = workers.SILENCE  # seconds without a heartbeat after which a worker counts as dead
LOOK_AT_CLOCKS = consumer.LOOK_AT_CLOCKS  # seconds between two looks of an idle consumer
UPKEEP = maintenance.PERIOD  # seconds between two times at which a worker prunes, and what else is in Upkeep
PRUNED_AT_ONCE = maintenance.PRUNED_BATCH  # rows, at the most
SETTLED = file.SETTLED  # seconds for which a file in the place of the database's has not grown when it is opened
TOO_LATE = recurrence.LATE  # microseconds after which a tick was missed
MOVES = states.MOVES  # from each state of a job, None without its row, to those that may come next

# What a worker is started with (start_worker: constants).
OFTEN_AT_THE_CLOCK = {"queue.clock_repair.PERIOD": 0.05}  # seconds between two looks
WITHOUT_LOCKS_OF_OPEN_FILES: dict[str, Any] = {"engines.sqlite.guard.OFD_SETLK": None}  # as on some systems


# -- a queue, its publishers and its workers, by a clock that a test moves ---------------------------------------------


def failed(job: Held, outcome: str, now: int, delay: int | None, error: type[BaseException] = ValueError) -> Settlement:
    """Return the end of an attempt that failed; the next one waits for ``delay``, None: there shall be no other."""
    return settlement.failed(job, outcome, recorded(error, "no luck"), now, delay)


def abandoned(job: Held, outcome: str, now: int) -> Settlement:
    """Return the end of an attempt whose holder is gone."""
    return settlement.abandoned(job, outcome, recorded(WorkerDied, "It died."), now)


class Hands:
    """Does to the queue of a database what workers, publishers and people do, each when it is told to."""

    def __init__(self, alias: str) -> None:
        self.alias, self._engine = alias, new_engine(alias, traced=False)
        queues._gap_watches.clear()

    def enqueue(
        self, queue: str, now: int, *, priority: int, due_at: int, lease: int, max_attempts: int, task: str = "app.task"
    ) -> str:
        """Store a job of a task, "": a raw one; return its id."""
        job_id = new_id()
        self._engine.insert(NewJobs(queue, task, priority, max_attempts, lease, now, due_at, [(job_id, "{}")]))
        return job_id

    def publish_unique(
        self, ids: Sequence[str], keys: list[str | None], on_duplicate: str, now: int, **job: Any
    ) -> list[str]:
        """Store jobs with keys; return the ids of those that have the keys then; raise DuplicateJob."""
        jobs, task = [(job_id, "{}") for job_id in ids], "" if job["raw"] else "app.task"
        how = (job["queue"], task, job["priority"], job["max_attempts"], job["lease"], now, job["due_at"])
        new = NewJobs(*how, jobs, job["start_by"], keys, job["until"], on_duplicate == "replace")
        duplicates = insert_with_keys(self._engine, new, on_duplicate)
        return [duplicates.get(index, job_id) for index, job_id in enumerate(ids)]

    def claim(
        self, queue: str | None, kinds: Collection[bool], limit: int, worker: str, now: int, ahead: int = 0
    ) -> list[Held]:
        """Claim for a worker that has noticed no standstill. ``kinds``: True: raw jobs; ``ahead``: how many besides."""
        scopes = [Scope((queue,) if queue else None, raw) for raw in kinds]
        with self._engine.transaction():
            taken = Claims(self._engine).claim(scopes, limit, worker, now, grace_period=GracePeriod(GRACE), ahead=ahead)
        return collect(self._engine, taken)

    def claim_copies(self, queue: str, limit: int, worker: str, now: int, most: int) -> list[Held]:
        """Claim raw jobs, of which several workers run copies, ``most`` at once; such a claim waits for no holder."""
        with self._engine.transaction():
            claims = Claims(self._engine, overflow={"": (10**12, most)})
            taken = claims.claim([Scope((queue,), True, worker)], limit, worker, now)
        return collect(self._engine, taken)

    def begin(self, held: Held, now: int, *, told: bool) -> None:
        """Begin what was claimed ahead. ``told``: its row learns of that at once, and not only by its end."""
        held.begin(now)
        if told:
            with self._engine.transaction():
                self._engine.start_attempts([held], now)

    def settle(self, *settlements: Settlement) -> set[tuple[str, int]]:
        """End attempts in one transaction; return the keys of those that were not held any more."""
        with self._engine.transaction():
            return settle(self._engine, settlements)

    def renew(self, now: int, *held: Held) -> bool:
        """Renew leases; return whether all were held yet."""
        with self._engine.transaction():
            return not self._engine.renew(held, now)

    def held_by(self, worker: str) -> list[Held]:
        """Return what a worker holds, by the rows."""
        return self._engine.held_by(worker)

    def bury_overdue(self, limit: int, worker: str, now: int) -> list[str]:
        """Bury some jobs that have not started in time; return their ids."""
        with self._engine.transaction():
            endings = bury_overdue(self._engine, self._engine.overdue(limit, now), worker, now)
        return [ending.job.id for ending in endings]

    def prune(self, limit: int, now: int) -> int:
        """Delete some of what was kept for long enough, of jobs and of letters; return how many rows."""
        return self._engine.prune(now, limit)

    def repair_clocks(self, now: int) -> list[Any]:
        """Take back what a clock ahead has stamped, as a process does that starts; return what has such a stamp yet."""
        repair, left = ClockRepair(self._engine), list[Any]()
        after: UUID | None = clock_repair.FIRST
        while repair.go_on() or repair.unfinished():
            pass
        while after is not None:
            found, after = clock_repair.stamped_ahead(self._engine, after, now, 3)
            left += found
        return left

    def discard_letter(self, job_id: str) -> list[str]:
        """Delete a dead letter; return its id if it is gone. A job stays."""
        return [gone.hex for gone in discard_letters(job_id, using=self.alias)]

    def delete_job(self, job_id: str) -> list[str]:
        """Delete a job, unless it is held; return its id if it is gone. A dead letter stays."""
        return [gone.hex for gone in discard_jobs([job_id], using=self.alias)]

    def look_at_copies(self, held: Sequence[Held]) -> set[tuple[str, int]]:
        """Have holders learn how many copies of their jobs there are; return the keys of those that may settle yet."""
        known = self._engine.copies(held)
        for each in held:
            each.copies = known.get(each.key, (each.copies, None))[0]
        return set(known)


def may_become(state: str | None, after: str | None) -> bool:
    """Return whether the queue says that a job may go from one state to another; None: it has no row."""
    return state == after or after in MOVES[state]


def keeps_up(held: Held, most: int) -> bool:
    """Return whether a worker renews the lease of a job of which ``most`` copies may run: no other is to begin."""
    return Policy(overflow=True, copies=most).renews(held.copies)


def held_of(job: ClaimedJob) -> Held:
    """Return the right to settle what a Queue object has claimed."""
    return job._held


def have_kept_up(job: ClaimedJob, kept_up: bool) -> None:
    """Have a job be one whose lease is renewed by itself, as in ``Queue.run``, or one whose lease is not."""
    job._kept_up = kept_up


def set_max_depth(queue: Queue, most: int) -> None:
    queue.options = replace(queue.options, max_depth=most)


def give_options(queue: Queue, backend: VTQueueBackend) -> None:
    """Have a Queue object go by the options of a backend, which are not those of the settings."""
    queue.options = backend.settings


def have_one_time(monkeypatch: "pytest.MonkeyPatch", now: "FakeClock") -> None:
    """Have all clocks show the same: time passes, and looks neither like a standstill nor like a step."""
    monkeypatch.setattr(clock, "since_boot", lambda: now() / clock.SECOND)
    monkeypatch.setattr(clock, "wait", lambda seconds: now.advance(seconds + 0.01))  # as ever, a little longer
    monkeypatch.setattr(Clocks, "read", lambda instant: Clocks(*[instant / clock.SECOND] * 3))
    monkeypatch.setattr(queues, "_gap_watches", {})


def have_boot_clock(monkeypatch: "pytest.MonkeyPatch", seconds: Callable[[], float]) -> None:
    """Have the clock that no step of the wall clock changes be one of the test."""
    monkeypatch.setattr(clock, "since_boot", seconds)


# -- parts of a worker, in this process --------------------------------------------------------------------------------


class ControlLoop:
    """The connection of a control loop, and what it does with an error of the database."""

    def __init__(self, alias: str) -> None:
        self._engine = new_engine(alias, traced=False)
        self._outage = Outage(self._engine)

    def without_waiting(self) -> AbstractContextManager[None]:
        """Have no statement in the block wait for a lock, as in a worker."""
        return self._engine.without_lock_waits()

    def transaction(self) -> AbstractContextManager[object]:
        return self._engine.transaction()

    def changed(self) -> bool:
        """Return whether others may have committed since the last look."""
        return self._engine.changed()

    def replaced(self) -> bool:
        """Return whether the database was exchanged since the last look; raise an error if it cannot be used."""
        return self._engine.replaced()

    def waiting(self, queue: str, most: int) -> int:
        """Return how many jobs of a queue wait; it is not looked for more than ``most``."""
        return self._engine.depth(queue, most)

    def unfinished(self, queue: str) -> int:
        return self._engine.count(queue)

    def note(self, error: BaseException) -> None:
        """Do what a turn does that has failed."""
        self._outage.note_failure(error)

    def is_gone(self, error: BaseException) -> bool:
        """Return whether the error says that the database cannot be reached."""
        return self._engine.trouble(error) is Trouble.GONE


def after_each_opening(monkeypatch: "pytest.MonkeyPatch", act: Callable[[], None]) -> None:
    """Have something happen between the opening of a database file and its first use."""
    opens = file.File.open

    def open_and_act(opened: file.File) -> None:
        opens(opened)
        act()

    monkeypatch.setattr(file.File, "open", open_and_act)


class Upkeep:
    """What a new worker does between its turns, when it is told to: it prunes, ends leases, keeps the log short."""

    def __init__(self, backend: VTQueueBackend) -> None:
        worker = Worker(backend, WorkerOptions(threads=1), WorkerLog())
        worker.bell.close()
        self._maintenance = worker.turns.periodic.maintenance

    @contextmanager
    def without_waiting(self) -> Iterator[None]:
        """Have no statement in the block wait for a lock, as in a worker."""
        with self._maintenance.engine.without_lock_waits():
            yield

    @property
    def next_at(self) -> float:
        """When there is something to do again, but for the log (monotonic)."""
        return self._maintenance.next_at

    def is_due(self) -> bool:
        return time.monotonic() >= self.next_at

    def have_due(self) -> None:
        self._maintenance.next_at = 0.0

    def note_started(self, jobs: int) -> None:
        """Have the worker have started so many more jobs."""
        self._maintenance.work.jobs_started += jobs

    def go_on(self, *, contended: bool = False) -> None:
        """Do what is due. ``contended``: others often have the lock."""
        self._maintenance.do_what_is_due(contended=contended)


def leave_no_time_to_prune(monkeypatch: "pytest.MonkeyPatch") -> None:
    monkeypatch.setattr(maintenance, "PRUNING_SHARE", 1e-9)


def run_all_due(backend: VTQueueBackend) -> list[Any]:
    """Run the tasks that are due, in this thread; return what has come of each."""
    return list(run_due([Line(backend, [Scope(None, raw=False)])]))


# What a worker calls for a job behind the commit of its claim, or of its end.
BEHIND_A_COMMIT: dict[str, tuple[Any, str]] = {
    f"{owner.__name__}.{name}": (owner, name)
    for owner, name in (
        (InFlight, "add"),
        (InFlight, "remove"),
        (Leases, "add"),
        (Pool, "run"),
        (Pool, "announce"),
        (Recorder, "count"),
    )
}


def around_statements(alias: str, run: Callable[..., Any]) -> None:
    """Have each statement of this thread that the queue sends go through ``run(execute, *statement)``."""
    thread, engine = threading.current_thread(), type(engine_for(alias))
    execute: Callable[..., Any] = engine._execute  # type: ignore[attr-defined]

    def execute_in_it(*statement: Any) -> Any:
        return run(execute, *statement) if threading.current_thread() is thread else execute(*statement)

    engine._execute = execute_in_it  # type: ignore[attr-defined]


def worker_of(job: ClaimedJob) -> str:
    """Return the id of the worker that holds what a handler is given."""
    return job._held.worker_id


class Bell:
    """The doorbell of a worker of a database."""

    def __init__(self, alias: str, folder: Path) -> None:
        self._doorbell = Doorbell(alias, folder, "0123")

    def rings(self) -> int:
        """Return how often it was rung since the last look."""
        count, socket = 0, self._doorbell._socket
        assert socket
        socket.setblocking(False)
        try:
            while socket.recv(16):
                count += 1
        except BlockingIOError:
            return count
        return count

    def close(self) -> None:
        self._doorbell.close()


def time_limit(seconds: float) -> AbstractContextManager[None]:
    """Raise TaskTimeout in the block when it takes longer, as in a task."""
    return timekeeper.limit(seconds)


@contextmanager
def as_another_limit_begins() -> Iterator[None]:
    """Be in the moment in which another thread sets a time limit."""
    with timekeeper._lock:
        yield


# -- clocks, disks and servers -----------------------------------------------------------------------------------------


def ticks(expression: str, zone: str, begin: int, end: int) -> Iterator[int]:
    """Yield the ticks of a recurring job in a time, its begin and its end included. ``expression``: as it is stored."""
    return recurrence.Ticks(expression, zone).within(begin, end)


def have_passed(folder: Path, *hosts: str) -> None:
    """Write down that the test of the locks has passed on a shared folder."""
    store_result(str(folder), list(hosts), [place_of(str(folder))])


def ask_the_server_for_its_time() -> None:
    """Have this process rely at no moment on what it knows of a server's clock."""
    from django_vtqueue.engines.postgresql import connection

    connection.LOOK_OF_OTHERS = 0


@contextmanager
def begun_claim(alias: str, silent: float) -> Iterator[int]:
    """Be in the transaction of a claim that has locked what is due; yield how many jobs.

    ``silent``: seconds after which the server ends it, if it hears nothing.
    """
    from django_vtqueue.engines.postgresql import connection

    connection.SILENT = round(1000 * silent)
    engine = new_engine(alias, traced=False)
    with engine.transaction():
        yield len(engine.due(Scope(None, raw=False), 10, engine.now()))
