"""A publishing process: ``python -m benchmarks.publisher SECONDS [--rate N] [--queue NAME] [--raw PATH]``.

It waits for a line on stdin, enqueues no-op tasks one by one, and prints as JSON what each took, in milliseconds, and
the errors it met. ``--rate``: so many a second, instead of one after the other. ``--raw``: plain sqlite3 and its own
busy handler, into the file at that path.
"""

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from typing import Any, NamedTuple

from . import raw
from .processes import start
from .tools import raw_connection, tasks


class Published(NamedTuple):
    times: list[float]  # milliseconds
    errors: list[str]


def start_publishers(count: int, *arguments: str) -> list[Any]:
    """Start so many publishers, and return when all of them are ready to begin."""
    command = ("-m", "benchmarks.publisher", *arguments)
    running = [start(*command, stdin=PIPE, stdout=PIPE, text=True) for _ in range(count)]
    for process in running:
        process.stdout.readline()
    return running


def let_publish(running: list[Any]) -> list[Published]:
    """Have them all begin; return what each of them did."""
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate()[0] for process in running]
    return [Published(**json.loads(output)) for output in outputs]


def main() -> None:
    parser = ArgumentParser()
    parser.add_argument("seconds", type=float)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--queue", default="default")
    parser.add_argument("--raw", type=Path)
    given = parser.parse_args()
    publish = publisher(given)
    print("ready", flush=True)
    sys.stdin.readline()
    json.dump(publishing(publish, given.seconds, given.rate)._asdict(), sys.stdout)


def publisher(given: Namespace) -> Callable[[], object]:
    if given.raw:
        connection = raw_connection(given.raw)
        connection.execute("SELECT count(*) FROM vtqueue_job").fetchone()
        return lambda: connection.execute(raw.INSERT, raw.job())
    task = tasks.noop.using(queue_name=given.queue)
    tasks.noop.get_backend().validate_task(task)
    return task.enqueue


def publishing(publish: Callable[[], object], seconds: float, rate: float | None) -> Published:
    published = Published([], [])
    began = time.perf_counter()
    while (now := time.perf_counter()) < began + seconds:
        if rate and (early := began + len(published.times) / rate - now) > 0:
            time.sleep(early)
            now = time.perf_counter()
        try:
            publish()
        except Exception as error:
            published.errors.append(repr(error))
        published.times.append((time.perf_counter() - now) * 1000)
    return published


if __name__ == "__main__":
    main()
