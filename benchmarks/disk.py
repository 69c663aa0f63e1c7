"""Disk: the WAL under a constant load, and what pruning the finished jobs costs the others."""

import json
import time
from threading import Thread

from . import raw
from .figures import arguments, heading, percentile, show
from .publisher import let_publish, start_publishers
from .tools import fresh, raw_connection, rows, tasks, wait_until, wal_size, workers

BULK, TTL = "bulk", 2  # the queue whose finished jobs are pruned after so many seconds


def main() -> None:
    given = arguments(__doc__, seconds=(60, 10), rate=(2000, 2000), repeats=(3, 1))
    heading(f"8. Disk, under a load of {given.seconds} s")
    limit = raw_wal(given.seconds * given.rate)
    constant_load(given.seconds, limit)
    kept, pruned = [], []
    for _ in range(given.repeats):
        kept += latencies(given.seconds, given.rate, None)
        pruned += latencies(given.seconds, given.rate, TTL, say=True)
    for percent, goal in ((50, ""), (99, "at most 2 ms more")):
        what = f"enqueue to start, with pruning, p{percent} (raw: without)"
        show(what, percentile(pruned, percent), "ms", percentile(kept, percent), goal)


def raw_wal(jobs: int) -> float:
    """Return the MB of the WAL after so many inserts by one connection."""
    with raw.database() as connection:
        for _ in range(jobs):
            connection.execute(raw.INSERT, raw.job())
        return raw.RAW.with_name(f"{raw.RAW.name}-wal").stat().st_size / 1e6


def constant_load(seconds: float, limit: float) -> None:
    """Two publishers without pause, and a worker."""
    fresh()
    sizes = []
    ready = start_publishers(2, str(seconds))
    with workers(1):
        publishing = Thread(target=let_publish, args=(ready,))
        publishing.start()
        while publishing.is_alive():
            sizes.append(wal_size() / 1e6)
            time.sleep(0.1)
        publishing.join()
        show("largest WAL, two publishers and a worker (raw: alone)", max(sizes), "MB", limit, "bounded")
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
    [(left, overdue)] = rows("SELECT count(*), sum(expires_at <= ?) FROM vtqueue_job WHERE queue_name = ?", moment, BULK)
    show(f"jobs left of {seconds * rate:,.0f} (raw: those of {TTL} s)", left, "", TTL * rate)
    show("  to be pruned by now", overdue or 0, "", goal="no more than a slice or two")


if __name__ == "__main__":
    main()
