"""Flatness: draining, claiming and enqueueing beside very many other rows, as a ratio to an otherwise empty table."""

import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from statistics import median

from django_vtqueue import Queue, enqueue_many

from . import others
from .figures import arguments, heading, show
from .processes import workers
from .tools import fresh, rows, tasks, wait_until

NOTHING = "nothing"
SPREAD = "due, 1,000 queues"
NOOP = "benchmarks.app.tasks.noop"
ALL_QUEUES = ",".join(["default", *(f"q{number}" for number in range(others.QUEUES))])
ENDED = "FROM vtqueue_job WHERE kept_until > ?"  # a range of an index: the finished others are not counted through
WARM_UP = 50

Measure = Callable[[str], float]


def main() -> None:
    given = arguments(
        __doc__, others=(100_000, 20_000), jobs=(10_000, 3_000), calls=(3_000, 500), repeats=(3, 1)
    )  # 1,000,000 others take some 20 minutes
    heading(f"4. Flat: beside {given.others:,} others of each kind (raw: beside none, by turns)")
    drain, claim, enqueue = (partial(measure, given) for measure in (drained, claimed, enqueued))
    for kind in others.KINDS:
        if kind != SPREAD:
            compare("drain", kind, drain, given.repeats)
        if "queues" in kind:
            compare("drain, --queues default", kind, partial(drain, queues="default"), given.repeats)
            goal = "" if kind == SPREAD else "0.75 or more"
            compare("drain, --queues with all", kind, partial(drain, queues=ALL_QUEUES), given.repeats, goal)
        if kind == SPREAD:  # with the oldest first, what is drained are the others themselves
            compare("drain of the others", kind, drain, given.repeats, "")
        goal = "1,500/s or more" if "201" in kind else "0.75 or more"
        compare("claim and ack", kind, claim, given.repeats, goal)
        compare("enqueue", kind, enqueue, given.repeats)


def compare(what: str, kind: str, measure: Measure, repeats: int, goal: str = "0.75 or more") -> None:
    """Measure with and without the others by turns, so that a busy minute of the machine falls on both."""
    pairs = [(measure(NOTHING), measure(kind)) for _ in range(repeats)]
    alone, beside = (median(rates) for rates in zip(*pairs, strict=True))
    show(f"{what}: {kind}", beside, "/s", alone, goal)


def prepare(kind: str, count: int, task_path: str) -> None:
    fresh()
    if kind != NOTHING:
        others.add(kind, count, task_path)


def drained(given: Namespace, kind: str, queues: str = "") -> float:
    """Return how many jobs a second an idle worker ends, of those enqueued beside the others.

    Those that are due it drains themselves, unless it serves the default queue only: they are older.
    """
    prepare(kind, given.others, NOOP)
    moment = time.time_ns() // 1000 + others.DAY
    with workers(1, *(["--queues", queues] if queues else [])):
        if not kind.startswith("due") or (kind == SPREAD and queues == "default"):
            time.sleep(1)  # what a worker looks at when it starts
            enqueue_many(tasks.noop, [((), {})] * given.jobs)
        enough = min(given.jobs, given.others)
        wait_until(lambda: rows(f"SELECT count(*) {ENDED}", moment)[0][0] >= enough, every=0.2)
    ends = [end for (end,) in rows(f"SELECT finished_at {ENDED} ORDER BY kept_until LIMIT ?", moment, enough)]
    return len(ends) * 1e6 / (ends[-1] - ends[0])


def claimed(given: Namespace, kind: str) -> float:
    """Return how many pairs of ``claim()`` and ``ack()`` this process makes a second."""
    prepare(kind, given.others, "")
    queue = Queue("default")
    queue.publish_many([{}] * (given.calls + WARM_UP))
    return rate_of(lambda: queue.claim().ack(), given.calls)


def enqueued(given: Namespace, kind: str) -> float:
    """Return how many tasks this process enqueues a second, one by one."""
    prepare(kind, given.others, NOOP)
    return rate_of(tasks.noop.enqueue, given.calls)


def rate_of(call: Callable[[], object], calls: int) -> float:
    """Return how many calls a second there would be if each took as long as the median of them."""
    times = []
    for _ in range(calls + WARM_UP):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return 1 / median(times[WARM_UP:])


if __name__ == "__main__":
    main()
