"""CPU-bound tasks: what a second process gives."""

from collections.abc import Callable
from statistics import median
from subprocess import PIPE

from django_vtqueue import enqueue_many

from .figures import arguments, heading, show
from .processes import Worker, start
from .tools import fresh, rows, tasks

# The same work without a queue: in so many seconds this much was done.
COMPUTING = """
import sys, time
def compute(rounds):
    total = 0
    for number in range(rounds):
        total += number * number
jobs, rounds = int(sys.argv[1]), int(sys.argv[2])
sys.stdin.readline()
began = time.monotonic()
for _ in range(jobs):
    compute(rounds)
print(time.monotonic() - began)
"""


def main() -> None:
    given = arguments(__doc__, jobs=(400, 100), rounds=(500_000, 500_000), repeats=(3, 1))
    heading(f"9. {given.jobs} CPU-bound tasks")
    one_raw = repeated(given.repeats, lambda: bare(1, given.jobs, given.rounds))
    two_raw = repeated(given.repeats, lambda: bare(2, given.jobs // 2, given.rounds))
    one = repeated(given.repeats, lambda: drained(given.jobs, given.rounds))
    two = repeated(given.repeats, lambda: drained(given.jobs, given.rounds, "--processes", "2"))
    show("one worker of 4 threads (raw: a bare loop)", one, "/s", one_raw)
    show("--processes 2 (raw: two bare loops)", two, "/s", two_raw)
    show("--processes 2 to one (raw: two bare loops to one)", two / one, "", two_raw / one_raw, "1.8 or more")


def repeated(repeats: int, measure: Callable[[], float]) -> float:
    return median(measure() for _ in range(repeats))


def bare(count: int, jobs: int, rounds: int) -> float:
    """Return how many computations a second so many processes do."""
    running = [start("-c", COMPUTING, str(jobs), str(rounds), stdin=PIPE, stdout=PIPE, text=True) for _ in range(count)]
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    return count * jobs / max(float(process.communicate()[0]) for process in running)


def drained(jobs: int, rounds: int, *options: str) -> float:
    """Return how many computing tasks a second a worker ends, from the start of the first."""
    fresh()
    enqueue_many(tasks.compute, [((rounds,), {})] * jobs)
    Worker("--drain", *options).wait()
    [(began, ended)] = rows("SELECT min(started_at), max(finished_at) FROM vtqueue_job")
    return jobs * 1e6 / (ended - began)


if __name__ == "__main__":
    main()
