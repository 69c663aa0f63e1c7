"""Mixed lengths: whether a short job ever waits for a long one while a slot is free."""

import json
import random
from typing import NamedTuple

from django_vtqueue import enqueue_many

from .figures import arguments, heading, percentile, show
from .processes import workers
from .tools import fresh, rows, tasks, wait_until

SHORT, LONG, THREADS = 0.001, 2.0, 4


class Run(NamedTuple):
    enqueued: float
    began: float
    ended: float

    @property
    def short(self) -> bool:
        return self.ended - self.began < LONG / 2


def main() -> None:
    given = arguments(__doc__, jobs=(1000, 300), long_percent=(4, 4), repeats=(3, 1))
    heading(f"6. {given.jobs} jobs of 1 ms, {given.long_percent} % of them of 2 s, mixed at random")
    for count in (1, 2):
        worst, waits = 0.0, []
        for _ in range(given.repeats):
            done = worked_off(given.jobs, given.long_percent / 100, count)
            waits += [idled for run in done if run.short for idled in [longest_idle(run, done, count * THREADS)]]
            worst = max(worst, max(run.ended for run in done) - min(run.enqueued for run in done))
        plural = "s" if count > 1 else ""
        goal = "no wait for a long job"
        show(f"{count} worker{plural}: longest wait of short jobs, a thread free", max(waits) * 1000, "ms", goal=goal)
        show(f"{count} worker{plural}: the same, p99", percentile(waits, 99) * 1000, "ms")
        best = LONG * round(given.jobs * given.long_percent / 100) / (count * THREADS)
        show(f"{count} worker{plural}: all done after (raw: the long ones, packed)", worst, "s", best)


def worked_off(jobs: int, long_share: float, count: int) -> list[Run]:
    """Have the jobs run by so many workers that wait for them."""
    fresh()
    lengths = [LONG] * round(jobs * long_share)
    lengths += [SHORT] * (jobs - len(lengths))
    random.shuffle(lengths)
    with workers(count):
        enqueue_many(tasks.nap, [((length,), {}) for length in lengths])
        wait_until(lambda: not rows("SELECT 1 FROM vtqueue_job WHERE finished_at IS NULL LIMIT 1"))
    return [Run(at / 1e6, *json.loads(result)) for at, result in rows("SELECT enqueued_at, result FROM vtqueue_job")]


def longest_idle(run: Run, done: list[Run], slots: int) -> float:
    """Return the longest time in which a slot was free while this job waited, and none began, in seconds."""
    changes = sorted([(other.began, 1) for other in done] + [(other.ended, -1) for other in done])
    longest, running, free_since = 0.0, 0, run.enqueued
    for moment, change in changes:
        if moment > run.began:
            break
        if change > 0 and running < slots:
            longest = max(longest, moment - max(free_since, run.enqueued))
        if change > 0 or running >= slots:
            free_since = moment
        running += change
    return longest


if __name__ == "__main__":
    main()
