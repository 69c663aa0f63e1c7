"""Back-pressure: what ``max_depth`` adds to an enqueue, what a refusal takes, and a count."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from django.conf import settings
from django.test import override_settings

from django_vtqueue import Queue, QueueFull
from django_vtqueue.engines import engine_for

from .figures import arguments, heading, percentile, show
from .tools import fresh, tasks

ROUND = 200  # enqueues of each queue by turns, so that a busy moment of the machine falls on all


@contextmanager
def limits(**depths: int | None) -> Iterator[None]:
    """Give queues a max_depth."""
    entries = deepcopy(settings.TASKS)
    entries["default"]["OPTIONS"]["queue_options"] = {name: {"max_depth": most} for name, most in depths.items()}
    with override_settings(TASKS=entries):
        yield


def main() -> None:
    given = arguments(__doc__, jobs=(10_000, 3_000), repeats=(5, 3))
    heading("Back-pressure")
    jobs = given.jobs
    with limits(plain=None, half=100_000, nearly=100_000, small=100):
        fresh()
        for name, waiting in (("plain", 50_000), ("half", 50_000), ("nearly", 100_000 - jobs)):
            Queue(name).publish_many([None] * waiting)
        times: dict[str, list[float]] = {name: [] for name in ("plain", "half", "nearly", "small")}
        for _ in range(jobs // ROUND):
            for name, found in times.items():
                task = tasks.noop.using(queue_name=name)
                found += timed(task.enqueue, ROUND if name != "small" else 80)
            Queue("small").purge()
    said = {"half": "100,000, half full", "nearly": "100,000, up to the last", "small": "100, up to 80"}
    for percent in (50, 90):
        plain = percentile(times["plain"], percent) * 1e6
        show(f"enqueue without max_depth, p{percent}", plain, "µs")
        for name, what in said.items():
            goal = "1.2 times or less" if percent == 50 and name != "small" else ""
            show(f"enqueue, max_depth {what}, p{percent}", percentile(times[name], percent) * 1e6, "µs", plain, goal)
    for most in (10, 1000, 100_000):
        refusals(most, jobs)


def timed(act: Callable[[], Any], count: int) -> list[float]:
    """Return the seconds that each of so many takes."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    return times


def refused(queue: Queue) -> None:
    try:
        queue.publish(None)
    except QueueFull:
        return
    raise AssertionError("there was room")


def refusals(most: int, count: int) -> None:
    """Measure what a full queue takes to refuse, and to be counted."""
    with limits(full=most):
        fresh()
        queue = Queue("full")
        queue.publish_many([None] * most)
        times = timed(lambda: refused(queue), count)
        show(f"refusal, max_depth {most:,}, mean", sum(times) / count * 1e6, "µs")
        counts = timed(lambda: engine_for("default").depth("full", most), 100)
        show(f"count of {most:,}, p50", percentile(counts, 50) * 1e6, "µs")


if __name__ == "__main__":
    main()
