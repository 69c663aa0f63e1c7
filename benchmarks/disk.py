"""Disk: the WAL under a constant load, and what pruning the finished jobs costs the others."""

import json
import time
from pathlib import Path
from threading import Thread
from typing import Any

from . import raw
from .figures import arguments, heading, percentile, show
from .processes import workers
from .publisher import let_publish, start_publishers
from .tools import DATABASE, fresh, rows, tasks, wait_until, wal_size

BULK, TTL = "bulk", 2  # the queue whose finished jobs are pruned after so many seconds


def main() -> None:
    given = arguments(__doc__, seconds=(30, 10), rate=(2000, 2000), repeats=(3, 1))
    heading(f"8. Disk, under a load of {given.seconds} s")
    constant_load(given.seconds, max(watched(raw.RAW, raw_publishers(given.seconds))))
    kept, pruned = [], []
    for _ in range(given.repeats):
        kept += latencies(given.seconds, given.rate, None)
        pruned += latencies(given.seconds, given.rate, TTL, say=True)
    for percent, goal in ((50, ""), (99, "at most 2 ms more")):
        what = f"enqueue to start, with pruning, p{percent} (raw: without)"
        show(what, percentile(pruned, percent), "ms", percentile(kept, percent), goal)


def raw_publishers(seconds: float) -> list[Any]:
    raw.clean()
    return start_publishers(3, str(seconds), "--raw", str(raw.RAW))


def watched(path: Path, ready: list[Any]) -> list[float]:
    """Let publishers publish; return the sizes that the WAL has meanwhile."""
    sizes = []
    publishing = Thread(target=let_publish, args=(ready,))
    publishing.start()
    while publishing.is_alive():
        sizes.append(wal_size(path))
        time.sleep(0.1)
    return sizes


def constant_load(seconds: float, limit: float) -> None:
    """Two publishers without pause, and a worker."""
    fresh()
    ready = start_publishers(2, str(seconds))
    with workers(1):
        sizes = watched(DATABASE, ready)
        show("largest WAL, 2 publishers and a worker (raw: 3 publishers)", max(sizes), "MB", limit, "bounded")
        half = len(sizes) // 2
        show("  in the second half (ratio: to the first)", max(sizes[half:]), "MB", max(sizes[:half]), "1")
        jobs, waiting = rows("SELECT count(*), sum(finished_at IS NULL) FROM vtqueue_job")[0]
        show("  enqueued", jobs / seconds, "/s")
        show("  not yet worked off at the end", waiting, "")


def latencies(seconds: float, rate: float, ttl: float | None, *, say: bool = False) -> list[float]:
    """Return the milliseconds from ``enqueue`` to the start of jobs amid so many others a second."""
    fresh()
    returned = {}
    ready = start_publishers(1, str(seconds), "--rate", str(rate), "--queue", BULK)
    with workers(1, queue_options={BULK: {"result_ttl": ttl}}):
        publishing = Thread(target=let_publish, args=(ready,))
        publishing.start()
        until = time.monotonic() + seconds
        time.sleep(TTL + 1)  # from here on there is something to prune
        while time.monotonic() < until:
            result = tasks.stamp.enqueue()
            returned[result.id.replace("-", "")] = time.time_ns()
            time.sleep(0.02)
        publishing.join()
        if say:
            keeping_up(seconds, rate)
        wait_until(lambda: not rows("SELECT 1 FROM vtqueue_job WHERE finished_at IS NULL LIMIT 1"))
    begun = rows("SELECT id, result FROM vtqueue_job WHERE queue_name = 'default'")
    return [(json.loads(result) - returned[job_id]) / 1e6 for job_id, result in begun]


def keeping_up(seconds: float, rate: float) -> None:
    """Print how many jobs should have been pruned by now, and were not."""
    moment = time.time_ns() // 1000
    [(left, overdue)] = rows(
        "SELECT count(*), sum(kept_until <= ?) FROM vtqueue_job WHERE queue_name = ?", moment, BULK
    )
    show(f"jobs left of {seconds * rate:,.0f} (raw: those of {TTL} s)", left, "", TTL * rate)
    show("  to be pruned by now", overdue or 0, "", goal="no more than a slice or two")


if __name__ == "__main__":
    main()
