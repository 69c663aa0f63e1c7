"""Tasks that fork, and what their forked processes do."""

import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from django_vtqueue import ClaimedJob, task

from .models import Effect
from .tasks import LONGEST

CODES = {"return": 0, "exit": 3, "raise": 1}  # how a forked process leaves its task, and its exit code


@task(max_attempts=1)
def terminate_children(count: int) -> list[int | None]:
    """Terminate processes of multiprocessing as soon as they are started; return their exit codes."""
    children = []
    for _ in range(count):
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(LONGEST,))
        child.start()
        child.terminate()
        children.append(child)
    for child in children:
        child.join()
    return [child.exitcode for child in children]


@task(max_attempts=1)
def leave_pool() -> str:
    """Leave a pool of processes while it works."""
    try:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.apply_async(time.sleep, (LONGEST,)).get(timeout=0.1)
    except multiprocessing.TimeoutError:
        return "left"
    return "ended"


@task(max_attempts=1)
def signal_child(number: int) -> int:
    """Send a forked process a signal; return its status."""
    if not (child := os.fork()):
        time.sleep(LONGEST)
        os._exit(0)
    os.kill(child, number)
    return status_of(child)


def status_of(child: int) -> int:
    """Return the exit code of a forked process, or minus its signal; -1000 if it does not end, and is ended here."""
    deadline = time.monotonic() + LONGEST / 6
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1000


def fork_and_leave(how: str) -> int:
    """Fork, and leave the caller's code in the forked process; return what became of it."""
    if child := os.fork():
        return status_of(child)
    if how == "exit":
        sys.exit(3)
    if how == "raise":
        raise ConnectionError("refused")
    return -1


@task(max_attempts=1)
def leave_fork(how: str) -> int:
    return fork_and_leave(how)


@task(max_attempts=1, timeout=LONGEST)
async def leave_fork_async(how: str) -> int:
    return fork_and_leave(how)


@task(transactional=True, max_attempts=1)
def leave_fork_transactional(how: str) -> int:
    Effect.objects.create(name=how)
    return fork_and_leave(how)


def handle(job: ClaimedJob) -> None:
    """Handle a raw payload: how a forked process leaves, and a file to which what became of it is added."""
    how, _, path = job.payload.partition(" ")
    status = fork_and_leave(how)
    if status != -1:  # not in the forked process, which goes on
        with Path(path).open("a") as file:
            file.write(f"{status}\n")


def forking_backoff(error: Exception, result: object) -> float:
    status = fork_and_leave("return")
    if status >= 0:  # not in the forked process, which goes on
        Path(str(error)).write_text(str(status))
    return 600.0


@task(backoff=forking_backoff)
def fork_in_backoff(path: str) -> None:
    raise ConnectionError(path)


@task(max_attempts=1)
def start_program(path: str) -> None:
    """Start a program that outlives its worker; write its id to a file."""
    os.system(f"sleep {LONGEST} >&- 2>&- & echo $! > {path}")


@task(backoff=0.1)
def write_and_hang(folder: str) -> None:
    """Fill the output, with a thread that the end of the interpreter would wait for."""
    with (Path(folder) / "started").open("a") as file:
        file.write(f"{os.getpid()}\n")
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(time.sleep, LONGEST)
        while not hanging.done():
            print("x" * 10_000)
