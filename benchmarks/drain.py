"""Draining: how fast no-op tasks that wait are worked off, and what CPU time each of them takes."""

from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from django_vtqueue import enqueue_many

from . import raw
from .figures import arguments, heading, show
from .processes import Worker, workers
from .tools import fresh, rows, tasks, wait_until

SLICE = 10_000


class Drained(NamedTuple):
    rate: float  # jobs/s between the first and the last end
    cpu: float = 0.0  # seconds
    least: float = 0.0  # the smallest share of the jobs that one of the workers did
    again: float = 0.0  # the share of the jobs that were claimed ahead, given back, and claimed again


def main() -> None:
    given = arguments(__doc__, jobs=(50_000, 10_000), repeats=(3, 1))
    jobs, repeats = given.jobs, given.repeats
    heading(f"2. Drain of {jobs:,} no-op tasks")
    limits = [(0, "claim and ack each on its own"), (1, "in one transaction"), (10, "10 at once"), (100, "100 at once")]
    pairs = {}
    for at_once, what in limits:
        pairs[at_once] = median(raw.pairs(jobs, at_once) for _ in range(repeats))
        show(f"raw sqlite3: {what}", pairs[at_once], "/s")
    fused = pairs[1]

    one = repeated(repeats, lambda: drain(jobs))
    start_up = repeated(repeats, lambda: drain(0)).cpu
    show("one worker, --drain (raw: in one transaction)", one.rate, "/s", fused, "20,000/s or more")
    show("CPU time of a job, less a start (raw: as above)", (one.cpu - start_up) / jobs * 1e6, "µs", 1e6 / fused)
    show("claimed ahead and given back", one.again * 100, "%")
    one_idle = repeated(repeats, lambda: drain_by_idle(jobs, 1))
    show("one worker that was idle", one_idle.rate, "/s", fused)
    two = repeated(repeats, lambda: drain_by_idle(jobs, 2))
    show("two workers that were idle (ratio: to one)", two.rate, "/s", one_idle.rate, "1 or more")
    show("the smaller share of the two", two.least * 100, "%")
    show("claimed ahead and given back", two.again * 100, "%")
    children = repeated(repeats, lambda: drain(jobs, "--processes", "2"))
    show("--processes 2 --drain (ratio: to one)", children.rate, "/s", one.rate, "1 or more")
    show("CPU time of a job", (children.cpu - start_up) / jobs * 1e6, "µs")


def repeated(repeats: int, measure: Callable[[], Drained]) -> Drained:
    """Return the medians."""
    return Drained(*(median(values) for values in zip(*(measure() for _ in range(repeats)), strict=True)))


def fill(jobs: int) -> None:
    for begun in range(0, jobs, SLICE):
        enqueue_many(tasks.noop, [((), {})] * min(SLICE, jobs - begun))


def drain(jobs: int, *arguments: str) -> Drained:
    """Have jobs that wait drained by one ``vtworker``."""
    fresh()
    fill(jobs)
    usage = Worker("--drain", *arguments).wait()
    return measured(jobs)._replace(cpu=usage.ru_utime + usage.ru_stime)


def drain_by_idle(jobs: int, count: int) -> Drained:
    """Have jobs drained by so many workers that wait for them: all begin at the same moment."""
    fresh()
    with workers(count):
        fill(jobs)
        wait_until(lambda: not rows("SELECT 1 FROM vtqueue_job WHERE finished_at IS NULL LIMIT 1"))
    return measured(jobs)


def measured(jobs: int) -> Drained:
    """Read from the rows when they ended; raise RuntimeError if one was run twice, or not at all."""
    finished = "FROM vtqueue_job WHERE state = 'SUCCESSFUL' AND attempts = 1 AND result = 'null'"
    [(count, first, last, claims)] = rows(
        f"SELECT count(*), min(finished_at), max(finished_at), sum(claims) {finished}"
    )
    if count != jobs:
        raise RuntimeError(f"{count:,} of {jobs:,} jobs were run, once and with their result")
    if not jobs:
        return Drained(0.0)
    shares = [share / jobs for (share,) in rows(f"SELECT count(*) {finished} GROUP BY worker_id")]
    return Drained(jobs * 1e6 / (last - first), least=min(shares), again=claims / jobs - 1)


if __name__ == "__main__":
    main()
