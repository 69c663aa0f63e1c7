"""What executions write down of themselves: their begin, signs of life and their end, in one file for each process."""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from ..words import SECOND, now

FOLDER = "VTQUEUE_TEST_JOURNAL"  # the variable that names the folder
STEP = 0.05  # seconds between two signs of life


@dataclass
class Execution:
    """One execution of a job, as it saw itself; instants in microseconds.

    ``last``: its end, or its last sign of life. ``outcome``: "" if it did not come to its end. ``delay``: the seconds
    that it asked for until the next attempt. ``leases``: for one that keeps its lease itself, when it knew of which
    end. ``pauses``: when it stood still, though it should have given signs. ``items``: what its loop has come to.
    """

    job: str
    kind: str
    worker: str
    pid: int
    attempt: int
    begin: int
    last: int
    outcome: str = ""
    delay: float | None = None
    leases: list[tuple[int, int]] = field(default_factory=list)
    pauses: list[tuple[int, int]] = field(default_factory=list)
    items: list[str] = field(default_factory=list)


class Run:
    """The execution that is under way in this thread."""

    def __init__(self, kind: str, job: str, worker: str, attempt: int) -> None:
        self.id, self.pid = uuid4().hex, os.getpid()
        write("begin", self.id, kind=kind, job=job, worker=worker, attempt=attempt)

    def alive(self, until: int | None = None) -> None:
        """Give a sign of life. ``until``: the end of its lease, where it keeps that up itself."""
        write("alive", self.id, until=until)

    def come_to(self, item: object) -> None:
        """Begin with an item of a loop."""
        write("item", self.id, item=str(item))

    def work(self, seconds: float) -> None:
        """Take so long, and be seen to."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(STEP, left))
            self.alive()

    async def wait(self, seconds: float) -> None:
        """Do as ``work`` does, for async code."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(STEP, left))
            self.alive()

    def end(self, outcome: str, delay: float | None = None) -> None:
        """Come to the end; a forked child, that has this object too, does not."""
        if os.getpid() == self.pid:
            write("end", self.id, outcome=outcome, delay=delay)


@contextmanager
def journaled(kind: str, job: str, worker: str, attempt: int, delay: float | None = None) -> Iterator[Run]:
    """Write down the execution that the block is. ``delay``: what follows its failure, in seconds at the least."""
    run = Run(kind, job, worker, attempt)
    try:
        yield run
    except BaseException as error:
        run.end(type(error).__name__, delay)
        raise
    run.end("ok")


def write(event: str, execution: str, **values: Any) -> None:
    """Write one line, in one piece, to the file of this process."""
    line = json.dumps({"at": now(), "event": event, "execution": execution, "pid": os.getpid(), **values})
    os.write(_file(os.getpid()), f"{line}\n".encode())


@lru_cache(maxsize=2)
def _file(pid: int) -> int:
    return os.open(Path(os.environ[FOLDER]) / str(pid), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def read(folder: Path) -> tuple[list[Execution], set[int]]:
    """Return what a folder knows of executions, by their begin, and the ids of the processes that tasks forked."""
    executions: dict[str, Execution] = {}
    forked: set[int] = set()
    lines = [json.loads(line) for file in folder.iterdir() for line in file.read_text().splitlines()]
    for line in sorted(lines, key=lambda line: line["at"]):
        name, at = line["execution"], line["at"]
        if line["event"] == "forked":
            forked.add(line["pid"])
        elif line["event"] == "begin":
            known = {key: line[key] for key in ("job", "kind", "worker", "pid", "attempt")}
            executions[name] = Execution(begin=at, last=at, **known)
        else:
            add(executions[name], line)
    return sorted(executions.values(), key=lambda execution: execution.begin), forked


def add(execution: Execution, line: dict[str, Any]) -> None:
    """Add a sign of life, or the end."""
    if line["at"] - execution.last > SECOND:
        execution.pauses.append((execution.last, line["at"]))
    execution.last = line["at"]
    if line.get("until"):
        execution.leases.append((line["at"], line["until"]))
    if line["event"] == "item":
        execution.items.append(line["item"])
    if line["event"] == "end":
        execution.outcome, execution.delay = line["outcome"], line["delay"]
