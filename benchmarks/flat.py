"""Flatness: draining, claiming and enqueueing beside very many other rows, as a ratio to an otherwise empty table."""

import time
from contextlib import closing
from statistics import median

from django_vtqueue import Queue, enqueue_many

from . import others
from .figures import arguments, heading, show
from .tools import fresh, raw_connection, rows, tasks, wait_until, workers

EMPTY, NOBODY = "nothing else", 0
NOOP = "benchmarks.app.tasks.noop"
ALL_QUEUES = ",".join(["default", *(f"q{number}" for number in range(others.QUEUES))])
ENDED = "FROM vtqueue_job WHERE expires_at > ?"  # a range of an index: the finished others are not counted through


def main() -> None:
    given = arguments(__doc__, others=(100_000, 20_000), jobs=(10_000, 3_000), pairs=(3_000, 500), enqueues=(3_000, 1_000))
    heading(f"4. Flat: beside {given.others:,} others of each kind (raw: beside none)")
    alone = {
        "drain": drained(EMPTY, given),
        "drain, --queues": drained(EMPTY, given, "--queues", ALL_QUEUES),
        "claim and ack": claimed(EMPTY, given),
        "enqueue": enqueued(EMPTY, given),
    }
    for what, rate in alone.items():
        show(f"{what}: {EMPTY}", rate, "/s")
    goal = "0.75 or more"
    for kind in others.KINDS:
        show(f"drain: {kind}", drained(kind, given), "/s", alone["drain"], goal)
        if "queues" in kind:
            named = drained(kind, given, "--queues", ALL_QUEUES)
            show(f"drain, --queues: {kind}", named, "/s", alone["drain, --queues"], goal)
        minimum = "1,500/s or more" if "201" in kind else goal
        show(f"claim and ack: {kind}", claimed(kind, given), "/s", alone["claim and ack"], minimum)
        show(f"enqueue: {kind}", enqueued(kind, given), "/s", alone["enqueue"], goal)


def prepare(kind: str, count: int, task_path: str) -> None:
    fresh()
    if kind != EMPTY:
        others.add(kind, count, task_path)


def drained(kind: str, given, *options: str) -> float:
    """Return how many jobs a second an idle worker ends, of those enqueued beside the others (or of the others)."""
    prepare(kind, given.others, NOOP)
    moment = time.time_ns() // 1000 + others.DAY
    with workers(1, *options):
        if not kind.startswith("due"):
            time.sleep(1)  # what a worker looks at when it starts
            enqueue_many(tasks.noop, [((), {})] * given.jobs)
        wait_until(lambda: rows(f"SELECT count(*) {ENDED}", moment)[0][0] >= min(given.jobs, given.others or given.jobs), 0.2)
    ends = [end for (end,) in rows(f"SELECT finished_at {ENDED} ORDER BY expires_at LIMIT ?", moment, given.jobs)]
    return len(ends) * 1e6 / (ends[-1] - ends[0])


def claimed(kind: str, given) -> float:
    """Return how many pairs of ``claim()`` and ``ack()`` this process makes a second."""
    prepare(kind, given.others, "")
    queue = Queue("default")
    queue.publish_many([{}] * (given.pairs + 50))
    times = []
    for number in range(given.pairs + 50):
        began = time.perf_counter()
        queue.claim().ack()
        if number >= 50:
            times.append(time.perf_counter() - began)
    return 1 / median(times)


def enqueued(kind: str, given) -> float:
    """Return how many tasks this process enqueues a second, one by one."""
    prepare(kind, given.others, NOOP)
    times = []
    for number in range(given.enqueues + 50):
        began = time.perf_counter()
        tasks.noop.enqueue()
        if number >= 50:
            times.append(time.perf_counter() - began)
    return 1 / median(times)


if __name__ == "__main__":
    main()
