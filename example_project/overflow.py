"""A burst of work of uncertain length, with and without overflow: how much sooner it is over, and what is done twice.

One worker keeps up with the normal load. Then three meet a burst, where one in twelve executions takes 4 s instead of
0.1 s. With overflow, what takes longer than the visibility timeout is begun by another worker too; the first to finish
wins.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from demo import LOG, Run, fact, fresh_site
from django.db.models import QuerySet
from library.tasks import preview

from django_vtqueue import enqueue_many
from django_vtqueue.models import DeadLetter, Job, WorkerProcess

NORMAL, BURST = 40, 240  # jobs
EVERY = 0.1  # seconds between two jobs of the normal load
WORKERS, THREADS = 3, 4
PATIENCE = 60  # seconds


def main() -> int:
    fresh_site()
    figures = {}
    for overflow in (False, True):
        os.environ["OVERFLOW"] = str(overflow)
        with workers(1):
            normal = done(trickle())
        with workers(WORKERS):
            burst = done([result.id for result in enqueue_many(preview, [((n,), {}) for n in range(BURST)])])
        figures[overflow] = seconds(burst)
        print(f"\n{'with' if overflow else 'without'} overflow")
        tell("normal load", normal, NORMAL)
        tell("burst", burst, BURST)
    lost = 2 * (NORMAL + BURST) - Job.objects.filter(queue_name="previews", state="SUCCESSFUL").count()
    print()
    fact("lost", f"{lost}, dead letters: {DeadLetter.objects.count()}")
    fact("burst over", f"{figures[False] - figures[True]:.1f} s sooner ({figures[False] / figures[True]:.1f} times)")
    return int(bool(lost) or figures[True] >= figures[False])


def trickle() -> list[str]:
    """Enqueue jobs at a pace that one worker keeps up with."""
    ids = []
    for number in range(NORMAL):
        ids.append(preview.enqueue(number).id)
        time.sleep(EVERY)
    return ids


@contextmanager
def workers(count: int) -> Iterator[None]:
    """Run so many workers during the block."""
    run = Run(total=0)
    try:
        for _ in range(count):
            run.start_worker("--queues", "previews", "--threads", str(THREADS))
        wait_until(lambda: WorkerProcess.objects.filter(died_at=None).count() == count)
        yield
    finally:
        run.stop()


def done(ids: list[str]) -> QuerySet[Job]:
    """Wait until jobs are done; return them."""
    jobs = Job.objects.filter(pk__in=ids)
    wait_until(lambda: jobs.filter(state="SUCCESSFUL").count() == len(ids))
    return jobs


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"Gave up waiting; the workers' log is {LOG}")
        time.sleep(0.02)


def seconds(jobs: QuerySet[Job]) -> float:
    """Return the time from the first publish to the last end."""
    return (max(job.finished_at for job in jobs) - min(job.enqueued_at for job in jobs)).total_seconds()


def tell(what: str, jobs: QuerySet[Job], count: int) -> None:
    slowest = max((job.finished_at - job.enqueued_at).total_seconds() for job in jobs)
    times = [job.claims for job in jobs]
    fact(
        what,
        f"{len(times)} of {count} done in {seconds(jobs):.1f} s, the slowest after {slowest:.1f} s; "
        f"begun twice: {times.count(2)}, three times: {times.count(3)}",
    )


if __name__ == "__main__":
    sys.exit(main())
