"""Contention: publishers and workers at one file, and a publisher beside a worker whose threads compute."""

from collections.abc import Sequence

from django_vtqueue import enqueue_many

from . import raw
from .figures import arguments, heading, keep_spread, percentile, show
from .processes import Worker, workers
from .publisher import Published, let_publish, start_publishers
from .tools import fresh, rows, tasks, wait_until

COMPUTING = "FROM vtqueue_job WHERE queue_name = 'default'"
USUAL = ("vtworker", "ok ")  # how the lines of a worker begin that has no trouble


def main() -> None:
    given = arguments(__doc__, seconds=(20, 5), publishers=(4, 4), workers=(4, 4), rounds=(500_000, 500_000))
    heading(f"5. Contention: {given.publishers} publishers and {given.workers} workers, {given.seconds} s")
    limits = alone(given.seconds, given.publishers + given.workers)
    together(given.seconds, given.publishers, given.workers, limits)
    beside_computing(given.seconds, given.rounds)


def alone(seconds: float, writers: int) -> list[float]:
    """Return the times of so many raw writers, and print how they share the file."""
    raw.clean()
    done = let_publish(start_publishers(writers, str(seconds), "--raw", str(raw.RAW)))
    shares("raw sqlite3, smallest share of a fair one", [len(each.times) for each in done])
    return times_of(done)


def together(seconds: float, publishers: int, count: int, limits: list[float]) -> None:
    fresh()
    ready = start_publishers(publishers, str(seconds))
    with workers(count) as running:
        done = let_publish(ready)
        left = rows("SELECT count(*) FROM vtqueue_job WHERE finished_at IS NULL")[0][0]
        worked = [share for (share,) in rows("SELECT count(*) FROM vtqueue_job WHERE claims > 0 GROUP BY worker_id")]
    figures("publishing", times_of(done), limits, ("", "", "25 ms or less", "100 ms or less"))
    show("published", len(times_of(done)) / seconds, "/s", len(limits) / seconds)
    show("worked off meanwhile", sum(worked) / seconds, "/s")
    show("left over", left, "")
    shares("smallest share of a publisher", [len(each.times) for each in done])
    shares("smallest share of a worker", worked + [0] * (count - len(worked)))
    show("longest write lock of a worker", max(worker.longest_hold() for worker in running), "ms")
    trouble(done, running)


def beside_computing(seconds: float, rounds: int) -> None:
    """One worker, whose threads compute without pause, and one publisher that writes to a queue nobody serves."""
    fresh()
    raw.clean()
    limits = times_of(let_publish(start_publishers(1, str(seconds), "--raw", str(raw.RAW))))
    enqueue_many(tasks.compute, [((rounds,), {})] * int(seconds * 200))
    ready = start_publishers(1, str(seconds), "--queue", "elsewhere")
    with workers(1, "--queues", "default", "--shutdown-timeout", "1") as running:
        wait_until(lambda: rows("SELECT 1 FROM vtqueue_job WHERE state = 'SUCCESSFUL'"))
        done = let_publish(ready)
        [(ended, left)] = rows(f"SELECT sum(state = 'SUCCESSFUL'), sum(state = 'READY') {COMPUTING}")
    figures("beside 4 computing threads (raw: alone)", times_of(done), limits, ("", "30 ms or less", "", ""))
    show("longest write lock of the worker", running[0].longest_hold(), "ms", goal="30 ms or less")
    show("computing jobs done", ended / seconds, "/s")
    if not left:
        print("  there were too few computing jobs: the threads had pauses")
    trouble(done, running)


def figures(what: str, times: list[float], limits: list[float], goals: Sequence[str]) -> None:
    keep_spread(what, times, "ms")
    keep_spread(f"{what}: raw", limits, "ms")
    for percent, goal in zip((50, 99, 99.9, 100), goals, strict=True):
        name = f"p{percent}" if percent < 100 else "maximum"
        show(f"{what}, {name}", percentile(times, percent), "ms", percentile(limits, percent), goal)


def shares(what: str, counts: list[int]) -> None:
    fair = (sum(counts) or 1) / len(counts)
    show(what, min(counts) / fair * 100, "%", goal=f"fair were 100: {' '.join(f'{count:,}' for count in counts)}")


def times_of(done: list[Published]) -> list[float]:
    return [milliseconds for each in done for milliseconds in each.times]


def trouble(done: list[Published], running: list[Worker]) -> None:
    """Print how many errors there were, and the first of them."""
    errors = [error for each in done for error in each.errors]
    errors += [line for worker in running for line in worker.log.splitlines() if not line.startswith(USUAL)]
    show("errors", len(errors), "", goal="none")
    for error in errors[:3]:
        print(f"  {error}")


if __name__ == "__main__":
    main()
