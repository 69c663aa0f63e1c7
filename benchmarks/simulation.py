"""A simulation: how many jobs a server of PostgreSQL takes from one worker to a thousand, by the costs of a job.

A worker has four threads. As soon as a job ends, or several do, it asks the server for a turn: one transaction that
settles what has ended and claims as many. Turns wait for a core of the server in the order in which they came. Jobs
that do nothing are claimed a hundred ahead, and then the worker's own Python is what takes time.
"""

import heapq
import random
from collections.abc import Iterator

import simpy

from .figures import COLUMNS, arguments

# Seconds of a processor, as the guide to several machines has them of four workers that drain; ``COMMIT``: of the disk.
TURN, JOB, PYTHON, COMMIT = 400e-6, 79e-6, 70e-6, 300e-6
WAL = 1.08e-3  # megabytes of a job, its claim and its settlement
THREADS, AHEAD = 4, 100
LENGTHS = (0.0, 0.1, 1.0)  # seconds; that of a job is from half of it to half as much again


class Server:
    """A database server with some cores, and what it has done since it was warm."""

    def __init__(self, cores: int) -> None:
        self.env = simpy.Environment()
        self.cores = simpy.Resource(self.env, cores)
        self.jobs, self.busy, self.waits = 0, 0.0, list[float]()

    def turn(self, jobs: int) -> Iterator[simpy.Event]:
        """Settle and claim so many jobs."""
        asked = self.env.now
        with self.cores.request() as core:
            yield core
            yield self.env.timeout(TURN + JOB * jobs)
        yield self.env.timeout(COMMIT)
        self.jobs += jobs
        self.busy += TURN + JOB * jobs
        self.waits.append(self.env.now - asked)

    def worker(self, length: float) -> Iterator[simpy.Event]:
        """Run jobs of this length one after the other, in each thread."""
        yield self.env.timeout(random.random())
        running: list[float] = []
        while True:
            free = THREADS - len(running) if length else AHEAD
            yield self.env.process(self.turn(free))
            if not length:
                yield self.env.timeout(AHEAD * PYTHON)
                continue
            for _ in range(free):
                heapq.heappush(running, self.env.now + PYTHON + length * random.uniform(0.5, 1.5))
            yield self.env.timeout(max(running[0] - self.env.now, 0))
            while running and running[0] <= self.env.now:
                heapq.heappop(running)


def simulated(workers: int, cores: int, length: float, seconds: float) -> tuple[float, float, float]:
    """Return jobs a second, how many cores are busy, and the milliseconds within which 99 of 100 turns are done."""
    server = Server(cores)
    for _ in range(workers):
        server.env.process(server.worker(length))
    server.env.run(until=2)  # all have begun
    server.jobs, server.busy, server.waits = 0, 0.0, []
    server.env.run(until=2 + seconds)
    slow = sorted(server.waits)[len(server.waits) * 99 // 100] if server.waits else 0.0
    return server.jobs / seconds, server.busy / seconds, slow * 1000


def main() -> None:
    given = arguments(__doc__, cores=(8, 8), seconds=(10, 2))
    random.seed(7)
    print(
        f"\nSimulated: a server with {given.cores} cores, workers with {THREADS} threads, jobs of some seconds each\n"
    )
    print(COLUMNS.format("", "jobs a second", "WAL MB/s", "cores", "99 of 100 turns take up to"))
    for workers in (1, 10, 100, 1000):
        for length in LENGTHS:
            jobs, busy, slow = simulated(workers, given.cores, length, given.seconds)
            told = f"{jobs:,.0f}", f"{jobs * WAL:.2f}", f"{busy:.2f}", f"{slow:.1f} ms"
            print(COLUMNS.format(f"{workers} workers, jobs of {length:g} s", *told), flush=True)


if __name__ == "__main__":
    main()
