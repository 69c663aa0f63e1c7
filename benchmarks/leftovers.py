"""What ten thousand leftovers of dead processes, of each kind, cost who publishes and who works."""

import shutil
import time
from collections.abc import Callable
from contextlib import closing
from statistics import median
from uuid import uuid4

from django_vtqueue.core.ids import new_id, new_worker_id
from django_vtqueue.queue.doorbell import Doorbell, _found
from django_vtqueue.queue.result_bells import result_bell

from .drain import fill
from .figures import arguments, heading, show
from .processes import Worker
from .tools import FOLDER, fresh, raw_connection, tasks

BELLS = FOLDER / "bells"


def bells_of_workers(count: int) -> None:
    """Of workers that were killed, and whose database was made anew."""
    for _ in range(count):
        Doorbell("default", BELLS, new_worker_id()).let_go()


def bells_of_waiters(count: int) -> None:
    """Of processes that were killed while they waited for a result."""
    for _ in range(count):
        result_bell("default", str(BELLS), new_id()).let_go()


def bells_of_holders(count: int) -> None:
    """Of leaders that were killed."""
    BELLS.mkdir(mode=0o700, exist_ok=True)
    for _ in range(count):
        Doorbell("default", BELLS / "leases", new_worker_id()).let_go()


def other_databases(count: int) -> None:
    """Folders, and a file in each, of databases that are not there any more."""
    for number in range(count):
        for place in (BELLS / f"{number:012x}", BELLS / "rung" / f"{number:012x}"):
            place.mkdir(parents=True)
            (place / "bell").touch()
    BELLS.chmod(0o700)


def rows_of_workers(count: int) -> None:
    """Of workers on other hosts that fell silent a minute ago."""
    now = time.time_ns() // 1000
    insert(
        "INSERT INTO vtqueue_workerprocess (worker_id, host, pid, queues, slots, started_at, heartbeat_at, doorbell,"
        " asked_to) VALUES (?, 'elsewhere', 1, '', 4, ?, ?, ?, '')",
        [(new_worker_id(), now, now - 60_000_000, f"{BELLS}/{uuid4().hex}") for _ in range(count)],
    )


def rows_of_leaders(count: int) -> None:
    """Leases that leaders of as many names held when they were killed; no other instance has come for them."""
    now = time.time_ns() // 1000
    insert(
        "INSERT INTO vtqueue_job (id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id,"
        " lease_us, enqueued_at, started_at, state, due_at, lease_until, unique_key, payload, history) VALUES"
        " (?, ?, '', 0, 1, 1, 0, ?, 30000000, ?, ?, 'RUNNING', ?, ?, ?, '\"\"', '[]')",
        [
            (new_id(), f"lease:{name}", new_worker_id(), now, now, now, now - 60_000_000, f"lease:{name}")
            for name in range(count)
        ],
    )


def insert(sql: str, values: list[tuple[object, ...]]) -> None:
    with closing(raw_connection()) as connection, connection:
        connection.execute("BEGIN")
        connection.executemany(sql, values)


KINDS = [bells_of_workers, bells_of_waiters, bells_of_holders, other_databases, rows_of_workers, rows_of_leaders]


def main() -> None:
    given = arguments(__doc__, leftovers=(10_000, 10_000), jobs=(40_000, 5_000), enqueues=(5_000, 1_000), pairs=(5, 1))
    heading(f"14. Beside {given.leftovers:,} leftovers of each kind (raw: beside none, by turns)")
    for kind in KINDS:
        name = kind.__name__.replace("_", " ")

        def leave(kind: Callable[[int], None] = kind) -> None:
            kind(given.leftovers)

        first, others = by_turns(given.pairs, lambda leave: enqueue(given.enqueues, leave), leave)
        show(f"{name}: the first enqueue", *scaled(first, 1e3, "ms"))
        show(f"{name}: an enqueue, p50", *scaled(others, 1e6, "µs"))
        seconds, cpu = by_turns(given.pairs, lambda leave: drain(given.jobs, leave), leave)
        show(f"{name}: drain of {given.jobs:,}, with its start", *scaled(seconds, 1, "s"))
        show(f"{name}: the CPU time of that", *scaled(cpu, 1, "s"))
        seconds, _ = by_turns(given.pairs, lambda leave: drain(0, leave), leave)
        show(f"{name}: start and drain of nothing", *scaled(seconds, 1, "s"))


Leave = Callable[[], None]
Pair = tuple[float, float]


def by_turns(pairs: int, measure: Callable[[Leave], Pair], leave: Leave) -> tuple[Pair, Pair]:
    """Return the medians of both measured values, each with leftovers and without."""
    with_them, without = [], []
    for _ in range(pairs):
        without.append(measure(lambda: None))
        with_them.append(measure(leave))
    first, second = (
        (median(values[which] for values in with_them), median(values[which] for values in without)) for which in (0, 1)
    )
    return first, second


def scaled(values: Pair, factor: float, unit: str) -> tuple[float, str, float]:
    return values[0] * factor, unit, values[1] * factor


def renew(leave: Leave) -> None:
    """Begin with an empty database, and with nothing in the folder of the bells but what is left there now."""
    fresh()
    shutil.rmtree(BELLS, ignore_errors=True)
    _found.clear()
    leave()


def enqueue(count: int, leave: Leave) -> Pair:
    """Return how long the first enqueue takes, and the others."""
    fresh()
    tasks.noop.enqueue()
    renew(leave)
    times = []
    for _ in range(count):
        began = time.perf_counter()
        tasks.noop.enqueue()
        times.append(time.perf_counter() - began)
    return times[0], median(times[1:])


def drain(jobs: int, leave: Leave) -> Pair:
    """Return the time and the CPU time in which a worker that starts drains so many jobs."""
    fresh()
    fill(jobs)
    shutil.rmtree(BELLS, ignore_errors=True)
    leave()
    began = time.perf_counter()
    usage = Worker("--drain", "--threads", "1").wait()
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
