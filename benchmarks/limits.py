"""Limits: claims beside very many blocked jobs of one tenant, and what limits of every kind add to a claim."""

import time
from collections.abc import Mapping
from statistics import median
from typing import Any

from django_vtqueue import enqueue_many
from django_vtqueue.conf import parse
from django_vtqueue.core.job import Scope
from django_vtqueue.core.settlement import succeeded
from django_vtqueue.engines import Engine, new_engine
from django_vtqueue.queue.claims import Claims, collect
from django_vtqueue.queue.limits import Limits
from django_vtqueue.queue.settling import settle
from django_vtqueue.tasks.task import loaded_options

from .figures import arguments, heading, show
from .tools import fresh, tasks

EVERYTHING = {"limited": {"concurrency": 1000, "rate": "1000000/s", "burst": 1000}}
SCOPES = [Scope(None, raw=False)]


def limits(queues: Mapping[str, Any]) -> Limits:
    return Limits(parse({"OPTIONS": {"queue_options": queues}}), loaded_options)


def claim(engine: Engine, of: Limits, count: int, *, done: bool = True) -> int:
    """Claim up to so many jobs as a worker does, and have them done; return how many there were."""
    with engine.transaction():
        taken = Claims(engine, of).claim(SCOPES, count, "bench", engine.now())
    jobs = collect(engine, taken)
    if done and jobs:
        with engine.transaction():
            settle(engine, [succeeded(job, "null", engine.now(), 0) for job in jobs])
    return len(jobs)


def timed(engine: Engine, of: Limits, calls: int, count: int) -> float:
    """Return the median of the seconds that such a claim takes, and its settlement."""
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        assert claim(engine, of, count) == count
        times.append(time.perf_counter() - began)
    return median(times)


def block(engine: Engine, of: Limits, blocked: int) -> float:
    """Have so many jobs of one tenant wait behind one that runs; return the seconds until others were claimed."""
    for _ in range(0, blocked, 10_000):
        enqueue_many(tasks.of_tenant, [((1,), {})] * min(blocked, 10_000))
    tasks.noop.enqueue()
    assert claim(engine, of, 1, done=False) == 1
    began = time.perf_counter()
    while not claim(engine, of, 1):
        pass
    return time.perf_counter() - began


def main() -> None:
    given = arguments(__doc__, blocked=(100_000, 20_000), calls=(1_000, 300), repeats=(5, 3))
    heading("Limits")
    plain, everything, engine = limits({}), limits(EVERYTHING), new_engine("default", traced=False)
    beside, alone, parking = [], [], []
    for _ in range(given.repeats):
        for blocked, found in ((0, alone), (given.blocked, beside)):
            fresh()
            if blocked:
                parking.append(block(engine, plain, blocked))
            enqueue_many(tasks.noop, [((), {})] * given.calls)
            found.append(timed(engine, plain, given.calls, 1))
    what = f"claim and settlement beside {given.blocked:,} blocked jobs (raw: none)"
    show(what, median(beside) * 1e6, "µs", median(alone) * 1e6, "1.2 times or less")
    show("all of them blocked, once", median(parking), "s")
    for count in (1, 10):
        for what, task, queue in (
            ("jobs without any, limits in the settings", tasks.noop, "default"),
            ("jobs with every limit", tasks.limited, "limited"),
        ):
            without, limited = [], []
            for _ in range(given.repeats):
                for of, name, found in ((plain, "default", without), (everything, queue, limited)):
                    fresh()
                    one = task if name == queue and of is everything else tasks.noop
                    calls = [
                        ((number % 50,) if one is tasks.limited else (), {}) for number in range(given.calls * count)
                    ]
                    enqueue_many(one.using(queue_name=name), calls)
                    found.append(timed(engine, of, given.calls, count))
            told = f"claim and settlement of {count}, {what} (raw: none)"
            show(told, median(limited) * 1e6, "µs", median(without) * 1e6, "1.5 times or less")


if __name__ == "__main__":
    main()
