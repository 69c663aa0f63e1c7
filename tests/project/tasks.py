import asyncio
import ctypes
import gc
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.contrib.contenttypes.models import ContentType
from django.db import connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_vtqueue import Cancelled, ClaimedJob, JobContext, Retry, TaskContext, control, task
from django_vtqueue.exceptions import TaskTimeout
from django_vtqueue.tasks.compat import TaskResultDoesNotExist

from .models import Effect

LONGEST = 200  # seconds that a task waits for a test which may have failed meanwhile


@task(max_attempts=1)
def exit_process(code: int) -> None:
    """End the process as a C extension may do, past everything that would clean up."""
    os._exit(code)


@task
def say(text: str) -> None:
    print(text)


@task
def add(a: int, b: int) -> int:
    return a + b


# For tests with several processes: what these tasks do is seen from outside.


@task
def note(path: str, text: str) -> None:
    """Write a line to a file, in one piece."""
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


@task(expires=0.2)
def note_soon(path: str, text: str) -> None:
    note.func(path, text)


@task(unique_key="{name}", unique_until="start", on_duplicate="replace")
def hold_newest(folder: str, name: str, text: str) -> str:
    """Like ``hold``; while it waits it takes the text of the last call."""
    hold.func(folder, f"{name}{text}")
    return text


@task
def enqueue_note(path: str, text: str) -> None:
    note.enqueue(path, text)


@task
def write_until(begun: str, over: str) -> None:
    """Write in a transaction that is open until a file is there."""
    with transaction.atomic():
        Effect.objects.create(name="slow")
        Path(begun).touch()
        while not Path(over).exists():
            time.sleep(0.01)


@task
def enqueue_note_amid(path: str, text: str) -> None:
    """Enqueue it in a transaction of the default database; note before its commit whether the job is there."""
    with transaction.atomic():
        result = note.enqueue(path, text)
        try:
            note.get_result(result.id)
        except TaskResultDoesNotExist:
            note.func(path, "not yet")


@task(takes_context=True)
def sign(context: TaskContext, folder: str) -> None:
    """Write this job's id to the file of this process."""
    with (Path(folder) / str(os.getpid())).open("a") as file:
        file.write(f"{context.task_result.id}\n")


@task
def hold_then_begin(folder: str) -> None:
    """Like ``hold``, then begin a transaction, and write down each of its statements as it is executed."""
    with connection.cursor(), (Path(folder) / "said").open("a", buffering=1) as file:
        hold.func(folder)
        connection.connection.set_trace_callback(lambda statement: file.write(f"{statement}\n"))
        try:
            with transaction.atomic():
                pass
        finally:
            connection.connection.set_trace_callback(None)


@task
def close_stderr() -> None:
    """Take the worker's output away."""
    sys.stderr.close()


@task(backoff=0.2)
def hold(folder: str, name: str = "") -> str:
    """Say ``started`` in a file, a line for each execution, then run until there is a file ``go``."""
    with (Path(folder) / f"{name}started").open("a") as file:
        file.write(f"{os.getpid()}\n")
    return wait_for_file(Path(folder) / f"{name}go")


@task
def leave_on_connection(statement: str) -> None:
    """Leave what a statement does on the connection of this thread."""
    with connection.cursor() as cursor:
        cursor.execute(statement)


@task(max_attempts=1)
def eat_memory(folder: str) -> str:
    """Leave this process no memory until there is a file ``enough``; say ``eaten`` in a file."""
    usual = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    eaten: list[bytes] = []
    try:
        resource.setrlimit(resource.RLIMIT_AS, (taken + 20_000_000, usual[1]))
        os.close(os.open(f"{folder}/eaten", os.O_CREAT | os.O_WRONLY))
        for size in (1_000_000, 10_000, 1000):
            with suppress(MemoryError):
                while True:
                    eaten.append(bytes(size))
        while not os.access(f"{folder}/enough", os.F_OK):
            time.sleep(0.05)
    finally:
        eaten.clear()
        resource.setrlimit(resource.RLIMIT_AS, usual)
    return "eaten"


@task
def hold_without_a_free_descriptor(folder: str) -> str:
    """Like ``hold``, in a process that cannot open anything any more."""
    with (Path(folder) / "started").open("a") as file:
        resource.setrlimit(resource.RLIMIT_NOFILE, (file.fileno(), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        file.write(f"{os.getpid()}\n")
    return wait_for_file(Path(folder) / "go")


@task(visibility_timeout=9, max_attempts=1)
def hold_on_a_short_lease(folder: str, name: str = "") -> str:
    """Like ``hold``, with a lease of its own."""
    return hold.func(folder, name)  # type: ignore[no-any-return]


@task(max_attempts=5)
def come_again(seconds: float) -> None:
    """Ask for another attempt later."""
    raise Retry(delay=seconds)


def extend_and_hold(job: ClaimedJob) -> None:
    """Handle a raw payload: a folder, and the seconds by which the lease is extended; then as ``hold_attempt``."""
    folder, seconds = job.payload
    job.extend(seconds)
    (Path(folder) / f"{job.claim_number}started").touch()
    wait_for_file(Path(folder) / "go")


@task(takes_context=True)
def hold_attempt(context: TaskContext, folder: str) -> int:
    """Like ``hold``, with files of its own for each attempt."""
    (Path(folder) / f"{context.attempt}started").touch()
    wait_for_file(Path(folder) / f"{context.attempt}go")
    return context.attempt


@task(takes_context=True, backoff=0.1)
def hold_copy(context: JobContext, folder: str) -> int:
    """Like ``hold``, with files of its own for each process, of which one makes it fail; end when told to stop."""
    mine = Path(folder) / str(os.getpid())
    mine.with_suffix(".started").touch()
    deadline = time.monotonic() + LONGEST
    while not mine.with_suffix(".go").exists() and time.monotonic() < deadline:
        if mine.with_suffix(".fail").exists():
            raise ValueError("no luck")
        if context.cancelled:
            mine.with_suffix(".told").touch()
            raise Cancelled
        time.sleep(0.005)
    return os.getpid()


@task(max_attempts=1)
def take_long(folder: str, name: str, seconds: float) -> int:
    """Write a line as it begins, and take so many seconds."""
    with (Path(folder) / name).open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(seconds)
    return os.getpid()


def wait_for_file(path: Path) -> str:
    deadline = time.monotonic() + LONGEST
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(path)
        time.sleep(0.005)
    return path.name


@task(max_attempts=2)
def kill_worker(path: str) -> None:
    """End the worker as ``kill -9`` does, after a line in a file."""
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()}\n")
    os.kill(os.getpid(), signal.SIGKILL)


@task(takes_context=True, max_attempts=3, backoff=0.1)
def fail_first(context: TaskContext, times: int) -> int:
    """Fail ``times`` times, then return the number of the attempt."""
    if context.attempt <= times:
        raise ConnectionError("refused")
    return context.attempt


@task(backoff=600)
def raise_later() -> None:
    """Fail, and be tried again much later."""
    raise ConnectionError("refused")


@task
def fail_by_the_queue() -> None:
    """Fail, and be tried again when the queue says."""
    raise ConnectionError("refused")


@task
def thread_id() -> int:
    return threading.get_ident()


@task
def interrupt() -> None:
    raise KeyboardInterrupt


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def _endless(depth: int) -> int:
    return _endless(depth + 1) + 1


@task(max_attempts=1)
def raise_it(kind: str) -> None:
    """Raise what a worker must survive."""
    if kind == "RecursionError":
        _endless(0)
    if kind == "SystemExit":
        sys.exit(3)
    raise {
        "KeyboardInterrupt": KeyboardInterrupt(),
        "MemoryError": MemoryError(),
        "GeneratorExit": GeneratorExit(),
        "CancelledError": asyncio.CancelledError(),
        "BaseException": BaseException("bare"),
        "Unprintable": Unprintable(),
    }[kind]


@task
def no_json() -> Any:
    return object()


@task
def effect(name: str) -> None:
    Effect.objects.create(name=name)


@task
def leave_atomic_open(name: str) -> None:
    """Enter an atomic block, write, and forget to leave it."""
    transaction.atomic().__enter__()
    Effect.objects.create(name=name)


@task
def leave_begin_open(name: str) -> None:
    """Take the write lock behind Django's back, write, and forget it."""
    with connection.cursor() as cursor:
        cursor.execute("BEGIN IMMEDIATE" if connection.vendor == "sqlite" else "BEGIN")
    Effect.objects.create(name=name)


@task
def leave_autocommit_off(name: str) -> None:
    """Switch Django's transaction management off, write, and forget it."""
    connection.set_autocommit(False)
    Effect.objects.create(name=name)


@task
def temporary_tables() -> int:
    """Return how many jobs have left a temporary table in this connection before, and leave one more."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM sqlite_temp_master")
        count = int(cursor.fetchone()[0])
        cursor.execute(f"CREATE TEMPORARY TABLE left_{count} (x)")
    return count


@task
def close_all_connections() -> None:
    """Close what every thread of this process has open, behind Django's back."""
    for thing in gc.get_objects():
        if isinstance(thing, BaseDatabaseWrapper) and thing.connection is not None:
            thing.connection.close()


@task
def where() -> list[int]:
    """Return the process that runs this, and its parent."""
    return [os.getpid(), os.getppid()]


@task
def grow(megabytes: int) -> int:
    """Keep so much memory; return the process."""
    grow.func.kept = bytearray(os.urandom(2**20) * megabytes)
    return os.getpid()


@task
def streams() -> list[str]:
    """Return the files that are the standard streams of this process."""
    return [os.readlink(f"/proc/self/fd/{number}") for number in range(3)]


@task
def ignored_signals() -> int:
    """Return the signals that a program ignores which this task starts, as a bit mask."""
    status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    return int(re.search(r"^SigIgn:\s+(\w+)$", status, re.MULTILINE)[1], 16)  # type: ignore[index]


@task(visibility_timeout=3)
def hold_the_interpreter(folder: str, seconds: int) -> None:
    """Let no other thread of this process run."""
    with (Path(folder) / "started").open("a") as file:
        file.write(f"{os.getpid()}\n")
    ctypes.PyDLL(None).sleep(seconds)


@task(max_attempts=1)
def hold_the_interpreter_for_ever(folder: str) -> None:
    hold_the_interpreter.func(folder, LONGEST)


@task(timeout=0.2, max_attempts=1)
def compute_for_ever() -> None:
    while True:
        pass


@task(timeout=0.2, max_attempts=1)
async def wait_for_ever() -> None:
    await asyncio.sleep(LONGEST)


@task(max_attempts=1)
async def loop_for_long() -> None:
    """Await again and again."""
    for _ in range(10 * LONGEST):
        await asyncio.sleep(0.1)


@task(timeout=1)
def clean_up_in_time(path: str) -> str:
    """Catch what is raised when the time is up."""
    try:
        while True:
            pass
    except TaskTimeout as error:
        Path(path).touch()
        return str(error)


@task(hard_timeout=0.5, max_attempts=1)
def hang() -> None:
    time.sleep(LONGEST)


@task(hard_timeout=0.5, max_attempts=2, backoff=0.1)
def hang_again() -> None:
    time.sleep(LONGEST)


@task(backoff=0.2)
def fork_and_hold(folder: str) -> str:
    """Like ``hold``, after the first attempt has forked a process that outlives its parent with all its files open."""
    forked = Path(folder) / "forked"
    if not forked.exists():
        if not (process := os.fork()):
            time.sleep(LONGEST)
            os._exit(0)
        forked.write_text(f"{process}\n")
    return hold.func(folder)


@task
def leave_orphans(count: int) -> list[int]:
    """Start processes whose parent ends at once, and that end themselves a moment later; return their ids."""
    script = "for n in $(seq $0); do sh -c 'echo $$; exec sleep 0.1 >&- 2>&-' & done"
    done = subprocess.run(["sh", "-c", script, str(count)], capture_output=True, text=True, check=True)
    return [int(pid) for pid in done.stdout.split()]


def steer(context: JobContext, folder: str, end: str) -> int:
    """Run until this job is asked to stop, then ``end``."""
    with (Path(folder) / "started").open("a") as file:
        file.write(f"{os.getpid()}\n")
    context.progress(0.4, "page 4 of 10")
    deadline = time.monotonic() + LONGEST
    while not context.cancelled:
        if time.monotonic() > deadline:
            raise TimeoutError(folder)
        time.sleep(0.005)
    match end:
        case "stop":
            raise Cancelled
        case "fail":
            raise ConnectionError("refused")
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            time.sleep(LONGEST)
    context.progress(1)
    return context.attempt


@task(takes_context=True, backoff=0.1)
def steered(context: JobContext, folder: str, end: str) -> int:
    return steer(context, folder, end)


@task(takes_context=True, backoff=0.1)
async def steered_async(context: JobContext, folder: str, end: str) -> int:
    return await asyncio.to_thread(steer, context, folder, end)


@task(takes_context=True)
def go_on(context: TaskContext, steps: list[tuple[float, str]]) -> list[bool | None]:
    """Say each step; return whether this queue's context was given, and whether it shall stop."""
    ours = isinstance(context, JobContext)
    for fraction, text in steps:
        if isinstance(context, JobContext):
            context.progress(fraction, text)
    return [ours, context.cancelled if isinstance(context, JobContext) else None]


@task
def raise_cancelled(message: str | None) -> None:
    raise Cancelled(message) if message else Cancelled


@task(takes_context=True)
def cancel_myself(context: TaskContext) -> None:
    control.cancel([context.task_result.id], by="itself")
    raise ConnectionError("refused")


async def wait_for_ever_with(job: ClaimedJob) -> None:
    await loop_for_long.func()


async def note_later(job: ClaimedJob) -> None:
    """Make the file that the payload names, after a moment."""
    await asyncio.sleep(0.05)
    Path(job.payload).touch()


@task(max_attempts=1)
def save_twice() -> None:
    """Store the same twice, which a constraint refuses."""
    for _ in range(2):
        ContentType.objects.create(app_label="twice", model="twice")


@task(takes_context=True, backoff=0.1)
def again(context: TaskContext, times: int) -> None:
    """Publish itself into its own queue, so many times one after the other."""
    if times:
        again.using(queue_name=context.task_result.task.queue_name).enqueue(times - 1)


@task
def nap(seconds: float) -> None:
    time.sleep(seconds)


@task
def too_many_requests(seconds: float) -> None:
    """Meet a service that answers 429: all jobs of the queue shall wait."""
    raise Retry("429 Too Many Requests", delay=seconds, whole_queue=True)


@task
def return_text(length: int, folder: str = "") -> str:
    """Return a text of so many characters; ``folder``: when a file ``go`` is there, as ``hold`` does."""
    if folder:
        hold.func(folder)
    return "ä" * length


@task
def copy_files(database: str, folder: str, done: str, *suffixes: str) -> None:
    """Make a backup as it must not be made: open and close the files of a database in use, by default all."""
    for suffix in ("", *(suffixes or ("-wal", "-shm"))):
        shutil.copy(f"{database}{suffix}", folder)
    note.func(done, "copied")
