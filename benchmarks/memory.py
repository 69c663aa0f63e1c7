"""Memory: of an idle worker, over many jobs, and after large payloads."""

import time
from subprocess import PIPE

from django_vtqueue import enqueue_many

from .drain import fill
from .figures import arguments, heading, keep, show
from .processes import Worker, memory, start, workers
from .tools import fresh, rows, tasks, wait_until

BARE = "import django; django.setup(); print(open('/proc/self/status').read())"
SETTLED = 5_000  # jobs after which a worker has all that it ever needs
STEP = 50_000  # jobs enqueued at a time
PARTS = 20  # after each the memory is looked at


def main() -> None:
    given = arguments(__doc__, jobs=(500_000, 30_000), payloads=(500, 100), kilobytes=(900, 900))
    heading(f"7. Memory, over {given.jobs:,} jobs, and {given.payloads} payloads of {given.kilobytes} kB")
    for what, options in (("one worker", ()), ("--processes 2, the parent", ("--processes", "2"))):
        bare = bare_setup()
        fresh()
        with workers(1, *options) as [worker]:
            run_all(10)
            show(f"{what}, idle (raw: a bare django.setup())", worker.memory(), "MB", bare)
            show("  more than that", worker.memory() - bare, "MB", goal="25 MB or less" if not options else "")
            grow(what, worker, given.jobs, bare)
            load(worker, given.payloads, given.kilobytes * 1000)


def bare_setup() -> float:
    """Return what a process of the same project takes that has done nothing but start."""
    process = start("-c", BARE, stdout=PIPE, text=True)
    return memory(process.communicate()[0])


def run_all(jobs: int) -> None:
    """Have so many more jobs run."""
    for begun in range(0, jobs, STEP):
        fill(min(STEP, jobs - begun))
        wait_until(lambda: not rows("SELECT 1 FROM vtqueue_job WHERE finished_at IS NULL LIMIT 1"))


def grow(what: str, worker: Worker, jobs: int, bare: float) -> None:
    run_all(SETTLED)
    before = worker.memory()
    points = [(0, before)]
    for _ in range(PARTS):
        run_all(jobs // PARTS)
        points.append((points[-1][0] + jobs // PARTS, worker.memory()))
    keep("points", what=what, points=points, bare=bare)
    show(f"  growth over {jobs:,} jobs", worker.memory() - before, "MB", goal="under 5 MB over 500,000")


def load(worker: Worker, payloads: int, size: int) -> None:
    """Print what is left of large payloads and results when they have gone through."""
    before = worker.memory()
    for half in ("half", "all"):
        for _ in range(0, payloads // 2, 10):
            enqueue_many(tasks.echo, [(("x" * size,), {})] * 10)
        wait_until(lambda: not rows("SELECT 1 FROM vtqueue_job WHERE finished_at IS NULL LIMIT 1"))
        time.sleep(2)
        show(f"  growth after {half} of the large payloads", worker.memory() - before, "MB", goal="none that stays")
    show("  the most it ever had", worker.memory("VmHWM"), "MB")


if __name__ == "__main__":
    main()
