"""Enqueueing: one by one, in one transaction, and many at once."""

import time
from collections import Counter
from collections.abc import Callable
from statistics import median

from django.db import connection, transaction

from django_vtqueue import Queue, enqueue_many

from . import raw
from .figures import arguments, heading, percentile, show
from .tools import fresh, tasks


def main() -> None:
    given = arguments(__doc__, jobs=(20_000, 5_000), repeats=(5, 3))
    heading("1. Enqueue")
    one_by_one(given.jobs, given.repeats)
    raw_in_one = rate_of(lambda: raw.inserts_in_one(given.jobs), given.repeats)
    raw_many = rate_of(lambda: raw.inserts_many(given.jobs), given.repeats)
    in_one = rate_of(lambda: atomic(given.jobs), given.repeats)
    show("enqueue, all in one atomic", in_one, "/s", raw_in_one, "20,000/s or more")
    published = rate_of(lambda: at_once(given.jobs, publish_many), given.repeats)
    show("publish_many (raw: executemany)", published, "/s", raw_many, "80,000/s or more")
    enqueued = rate_of(lambda: at_once(given.jobs, enqueue_noops), given.repeats)
    show("enqueue_many (raw: executemany)", enqueued, "/s", raw_many, "40,000/s or more")
    unique(given.jobs, given.repeats)
    statements()


def rate_of(measure: Callable[[], float], repeats: int) -> float:
    return median(measure() for _ in range(repeats))


def one_by_one(jobs: int, repeats: int) -> None:
    """Queue and raw by turns, so that a busy minute of the machine falls on both."""
    ours, limits = [], []
    for _ in range(repeats):
        ours += enqueues(jobs // repeats)
        limits += raw.inserts(jobs // repeats)
    for percent, goal in ((10, ""), (50, "60 µs or less"), (99, "")):  # the first: between two disturbances
        show(
            f"enqueue, autocommit, p{percent}",
            percentile(ours, percent) * 1e6,
            "µs",
            percentile(limits, percent) * 1e6,
            goal,
        )
    show("enqueue, autocommit", len(ours) / sum(ours), "/s", len(limits) / sum(limits))


def unique(jobs: int, repeats: int) -> None:
    """With keys, all of them new, and without, by turns."""
    queue = Queue("raw")
    for name, keyed, plain in (
        ("enqueue", tasks.unique.enqueue, tasks.echo.enqueue),
        ("publish", lambda number: queue.publish(number, unique_key=f"noop:{number}"), queue.publish),
    ):
        ours, theirs = [], []
        for _ in range(repeats):
            ours += enqueues(jobs // repeats, keyed)
            theirs += enqueues(jobs // repeats, plain)
        values = percentile(ours, 50) * 1e6, "µs", percentile(theirs, 50) * 1e6
        show(f"{name} with a unique key, p50 (ratio: to one without)", *values, "1.3 or less")


def enqueues(count: int, enqueue: Callable[[int], object] = lambda number: tasks.noop.enqueue()) -> list[float]:
    """Return the seconds that each of so many takes."""
    fresh()
    times = []
    for number in range(count + 100):
        began = time.perf_counter()
        enqueue(number)
        if number >= 100:
            times.append(time.perf_counter() - began)
    return times


def atomic(count: int) -> float:
    """Return how many a second are enqueued one by one inside a transaction."""
    fresh()
    tasks.noop.enqueue()
    began = time.perf_counter()
    with transaction.atomic():
        for _ in range(count):
            tasks.noop.enqueue()
    return count / (time.perf_counter() - began)


def at_once(count: int, store: Callable[[int], object]) -> float:
    """Return how many a second are stored by one call."""
    fresh()
    tasks.noop.enqueue()
    began = time.perf_counter()
    store(count)
    return count / (time.perf_counter() - began)


def publish_many(count: int) -> None:
    Queue("raw").publish_many([{"number": number} for number in range(count)])


def enqueue_noops(count: int) -> None:
    enqueue_many(tasks.noop, [((), {})] * count)


def statements() -> None:
    """Print what SQLite executes for one enqueue."""
    fresh()
    tasks.noop.enqueue()
    seen: Counter[str] = Counter()
    connection.connection.set_trace_callback(lambda sql: seen.update([sql.split()[0]]))
    tasks.noop.enqueue()
    connection.connection.set_trace_callback(None)
    print("\nStatements of one enqueue:", ", ".join(f"{count} {word}" for word, count in seen.items()))


if __name__ == "__main__":
    main()
