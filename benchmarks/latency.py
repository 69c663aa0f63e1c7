"""Latency: from ``enqueue`` returning here to the task's first line in an idle worker; and what idling costs."""

import json
import random
import socket
import time
from collections.abc import Iterable
from contextlib import closing
from subprocess import PIPE
from typing import Any
from uuid import UUID

from .figures import arguments, heading, keep_spread, percentile, show
from .processes import start, workers
from .tools import FOLDER, fresh, raw_connection, rows, tasks, wait_until

# The raw limits are processes of their own, without Django. This one says when a datagram has reached it.
LISTENER = """
import socket, sys, time
bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
bell.bind(sys.argv[1])
while bell.recv(16) != b"end":
    print(time.time_ns(), flush=True)
"""
# This one idles as a worker must: it looks at the database ten times a second.
IDLER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1])
began = time.monotonic()
while time.monotonic() - began < float(sys.argv[2]):
    connection.execute("PRAGMA data_version").fetchone()
    time.sleep(0.1)
print(time.process_time())
"""


def main() -> None:
    given = arguments(__doc__, jobs=(1000, 100), seconds=(30, 10))
    heading(f"3. Latency of {given.jobs} spaced jobs, and {given.seconds} s of idling")
    limits = datagrams(given.jobs)
    keep_spread("raw", limits, "ms")
    for what, options in (("one worker", ()), ("--processes 2", ("--processes", "2"))):
        latencies = enqueued(given.jobs, *options)
        keep_spread(what, latencies, "ms")
        for percent, goal in ((50, "2 ms or less"), (99, "10 ms or less")):
            limit = percentile(limits, percent)
            show(f"{what}, p{percent} (raw: a datagram)", percentile(latencies, percent), "ms", limit, goal)
    idle(given.seconds)


def enqueued(jobs: int, *options: str) -> list[float]:
    """Return the milliseconds between the return of ``enqueue`` and the first line of the task."""
    fresh()
    with workers(1, *options):
        returned = spaced(jobs)
        wait_until(lambda: not rows("SELECT 1 FROM vtqueue_job WHERE finished_at IS NULL LIMIT 1"))
    return between(returned, rows("SELECT id, result FROM vtqueue_job"))


def spaced(jobs: int) -> dict[UUID, int]:
    """Enqueue jobs that stamp their begin, with pauses; return when ``enqueue`` of each returned, in nanoseconds."""
    returned = {}
    for number in range(jobs + 10):
        time.sleep(random.uniform(0.02, 0.06))
        result = tasks.stamp.enqueue()
        if number >= 10:
            returned[UUID(result.id)] = time.time_ns()
    return returned


def between(returned: dict[UUID, int], stored: Iterable[tuple[Any, str]]) -> list[float]:
    """Return the milliseconds from then until each began; ``stored``: ids and results."""
    begun = {UUID(str(job_id)): json.loads(result) for job_id, result in stored}
    return [(begun[job_id] - moment) / 1e6 for job_id, moment in returned.items()]


def datagrams(count: int) -> list[float]:
    """Return the milliseconds that a datagram takes to another process."""
    path = str(FOLDER / "listener")
    latencies = []
    listener = start("-c", LISTENER, path, stdout=PIPE, text=True)
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as ringer:
        wait_until(lambda: (FOLDER / "listener").exists())
        for _ in range(count):
            time.sleep(random.uniform(0.005, 0.01))
            ringer.sendto(b"ring", path)
            sent = time.time_ns()
            latencies.append((int(line_of(listener)) - sent) / 1e6)
        ringer.sendto(b"end", path)
    listener.wait()
    return latencies


def line_of(process: Any) -> str:
    return str(process.stdout.readline())


def idle(seconds: float) -> None:
    """Print what a worker with nothing to do takes of a core, and how often it writes."""
    fresh()
    with closing(raw_connection()) as watcher, workers(1) as [worker]:
        time.sleep(2)
        idler = start("-c", IDLER, str(watched(watcher)), str(seconds), stdout=PIPE, text=True)
        used, commits = worker.cpu_seconds(), commits_seen(watcher, seconds)
        share = (worker.cpu_seconds() - used) / seconds * 100
        raw_share = float(line_of(idler)) / seconds * 100
        idler.wait()
    show("CPU of an idle worker (raw: a look each 0.1 s)", share, "%", raw_share, "0.3 % of a core or less")
    show(f"commits seen in {seconds} s (raw: heartbeats)", commits, "", seconds / 10, "no more than heartbeats")


def watched(connection: Any) -> str:
    return str(connection.execute("SELECT file FROM pragma_database_list").fetchone()[0])


def commits_seen(connection: Any, seconds: float) -> int:
    """Return how often the database was seen changed by others."""
    until = time.monotonic() + seconds
    versions = set()
    while time.monotonic() < until:
        versions.add(connection.execute("PRAGMA data_version").fetchone()[0])
        time.sleep(0.02)
    return len(versions) - 1


if __name__ == "__main__":
    main()
