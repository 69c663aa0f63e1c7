"""What SQLite needs of a file system that several hosts share, tried between them.

A test is a generator of steps, the same on each host: who acts, and what is done. The others wait meanwhile. Files stay
open from one step to the next, as SQLite's do: what a host has read before, it may have cached.
"""

import fcntl
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

from ...core import clock
from ...core.clock import SECOND
from .hosts import Failed, Hosts
from .mounts import MOST_SKEW

HOLDER, OTHERS, ALL = "holder", "others", "all"  # who acts in a step
START, LENGTH = 0x40000002, 510  # the bytes that SQLite locks to read or to write a database
PAGE = 4096
COUNT = 200  # how often each host adds 1
WAIT = 60.0  # seconds for which a lock is waited
EXCLUSIVE, SHARED, NONE = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_SH | fcntl.LOCK_NB, fcntl.LOCK_UN

LOCKS = f"""
import fcntl, sys, time
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, {LENGTH}, {START})
"""
WRITES = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
connection.executescript("PRAGMA synchronous = FULL; PRAGMA cache_size = 5; BEGIN IMMEDIATE; UPDATE rows SET n = 1;")
"""
SLEEPS = 'print("ready", flush=True); time.sleep(600)'
ROWS = """
CREATE TABLE rows (n, filler);
WITH numbers(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < 500)
INSERT INTO rows SELECT 0, zeroblob(1000) FROM numbers;"""

Steps = Iterator[tuple[str, Callable[[], object]]]


@contextmanager
def opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        yield file
    finally:
        os.close(file)


def try_lock(file: int, kind: int) -> bool:
    with suppress(BlockingIOError, PermissionError):
        fcntl.lockf(file, kind, LENGTH, START)
        return True
    return False


def lock(file: int, kind: int) -> None:
    """Lock or unlock the bytes that SQLite locks; raise Failed if that takes too long."""
    until = time.monotonic() + WAIT
    while not try_lock(file, kind):
        if time.monotonic() > until:
            raise Failed(f"a lock was not to be had for {WAIT:.0f} s, though no process has it")
        time.sleep(0.01)


@contextmanager
def locked(file: int) -> Iterator[None]:
    lock(file, EXCLUSIVE)
    yield
    lock(file, NONE)


def refuse(file: int, *kinds: int) -> None:
    """Raise Failed if a lock is to be had."""
    if any(try_lock(file, kind) for kind in kinds):
        raise Failed("a file was locked here while another host had it locked")


@contextmanager
def child_of(code: str, path: Path) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """Yield what starts a process that has a lock, or a transaction, and what kills it."""
    children: list[subprocess.Popen[str]] = []

    def start() -> None:
        command = [sys.executable, "-c", code + SLEEPS, str(path)]
        children.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert children[0].stdout
        if not children[0].stdout.readline():
            raise Failed("a child process could not lock or write; its own error is above")

    def kill() -> None:
        while children:
            children[0].kill()
            children.pop().communicate()

    try:
        yield start, kill
    finally:
        kill()


def locks(path: Path, hosts: Hosts) -> Steps:
    """Locks exclude each other; they end with their process, and with the file that is closed."""

    def take() -> None:
        with locked(file):
            pass

    def share() -> None:
        lock(file, SHARED)
        refuse(file, EXCLUSIVE)
        lock(file, NONE)

    with opened(path) as file:
        with child_of(LOCKS, path) as (start, kill):
            yield HOLDER, start
            yield OTHERS, lambda: refuse(file, EXCLUSIVE, SHARED)
            yield HOLDER, kill
            yield OTHERS, take
        yield HOLDER, lambda: lock(file, SHARED)
        yield OTHERS, share
    with opened(path) as file:
        yield ALL, lambda: None  # now all have closed it
        yield OTHERS, take


def files(path: Path, hosts: Hosts) -> Steps:
    """What is written, made, renamed or deleted under a lock is seen as such under the next one."""
    journal, new = Path(f"{path}-journal"), Path(f"{path}-new")

    def write(text: bytes, journaled: bool) -> None:
        with locked(file):
            os.pwrite(file, text, 0)
            os.fsync(file)
            if journaled:
                new.write_bytes(text)
                new.replace(journal)
            else:
                journal.unlink()
            sync(path.parent)

    def read(text: bytes, journaled: bool) -> None:
        with locked(file):
            if os.pread(file, PAGE, 0) != text[:PAGE] or os.fstat(file).st_size != len(text):
                raise Failed("a write of another host under a lock was not seen: the cache of this host is stale")
            if os.access(journal, os.F_OK) != journaled or (journaled and journal.read_bytes() != text):
                raise Failed(
                    "a journal that another host had made or deleted was not seen as such: the cache of names is "
                    "stale. On NFS mount with lookupcache=none"
                )

    with opened(path) as file:
        yield OTHERS, lambda: read(b"", journaled=False)
        for number, journaled in enumerate((True, False, True, True), 1):
            text = bytes([number]) * PAGE * number
            yield HOLDER, partial(write, text, journaled)
            yield OTHERS, partial(read, text, journaled)


def sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def connect(path: Path, script: str = "") -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=WAIT)
    connection.executescript(f"PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL; {script}")
    return connection


def check(connection: sqlite3.Connection, query: str, expected: tuple[int, ...], text: str) -> None:
    """Raise Failed with ``text`` if a query finds something else, or the file is damaged."""
    found = connection.execute(query).fetchone()
    if (state := connection.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
        raise Failed(f"the file was destroyed: {state}")
    if found != expected:
        raise Failed(f"{text}: {found} instead of {expected}")


def rollback(path: Path, hosts: Hosts) -> Steps:
    """A transaction whose process was killed is rolled back by another host (a hot journal)."""
    yield HOLDER, lambda: connect(path, ROWS).close()
    with closing(connect(path)) as connection, child_of(WRITES, path) as (start, kill):
        query = "SELECT count(*), sum(n) FROM rows"
        look = partial(check, connection, query, (500, 0), "half of a transaction was seen")
        yield OTHERS, look
        yield HOLDER, start
        yield HOLDER, kill
        yield OTHERS, look


def updates(path: Path, hosts: Hosts) -> Steps:
    """All hosts add to a counter at once, and no update is lost."""
    yield HOLDER, lambda: connect(path, "CREATE TABLE log (n); INSERT INTO log VALUES (0)").close()
    with closing(connect(path)) as connection:

        def add() -> None:
            for _ in range(COUNT):
                connection.execute("BEGIN IMMEDIATE")
                [last] = connection.execute("SELECT n FROM log ORDER BY rowid DESC LIMIT 1").fetchone()
                connection.execute("INSERT INTO log VALUES (?)", [last + 1])
                connection.execute("COMMIT")

        yield ALL, add
        query, total = "SELECT max(n), count(DISTINCT n) - 1, count(*) - 1 FROM log", COUNT * len(hosts.names)
        yield ALL, partial(check, connection, query, (total, total, total), "updates were lost")


def clocks(path: Path, hosts: Hosts) -> Steps:
    """Each host stamps between two stamps of every other one."""
    began, most = clock.now(), MOST_SKEW * SECOND
    hosts.exchange("began", began)
    stamps = hosts.exchange("stamp", clock.now())

    def compare() -> None:
        for host, stamp in stamps.items():
            if not began - most <= stamp <= clock.now() + most:
                off = (stamp - began) / SECOND
                raise Failed(f"the clock of {hosts.names[host]} is {off:+.0f} s off; set both by NTP")

    yield ALL, compare


BY_EACH = {
    "locks keep other hosts out, and end with their process": locks,
    "changes of files under a lock are seen under the next one": files,
    "a killed transaction in SQLite is rolled back": rollback,
}
TOGETHER = {"the clocks agree": clocks, f"each host adds 1 to a counter in SQLite {COUNT} times": updates}


def run(hosts: Hosts) -> Iterator[str]:
    """Make all tests; yield a line for each that has passed. Raise Failed at the first one that has not."""
    for holder, name in hosts.names.items():
        for title, test in BY_EACH.items():
            yield made(hosts, holder, f"{title} ({name} first)", test)
    for title, test in TOGETHER.items():
        yield made(hosts, min(hosts.names), title, test)


def made(hosts: Hosts, holder: str, title: str, test: Callable[[Path, Hosts], Steps]) -> str:
    who = {ALL, HOLDER if holder == hosts.id else OTHERS}
    with closing(test(hosts.path(f"{test.__name__}-{holder}"), hosts)) as steps:  # type: ignore[type-var]
        try:
            try:
                for actor, act in steps:
                    hosts.step(actor in who, act)
            except Failed:
                raise
            except Exception as error:  # between two steps, so the others do not know it
                hosts.step(True, partial(fail, repr(error)))
        except Failed as failure:
            raise Failed(f"{title}: FAILED. {failure}") from None
    return f"{title}: ok"


def fail(text: str) -> None:
    raise Failed(text)
