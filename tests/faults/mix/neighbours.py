"""What a project runs beside its jobs, and does badly: a log that is slow or full, receivers that fail, hang and write.

The receivers are connected by the module of the tasks, in workers and publishers alike, where BAD is set. A worker with
STARVED gets no memory now and then.
"""

import fcntl
import logging
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import OperationalError, connection
from django.dispatch import Signal

from .kinds import SHORT_LEASE

BAD = "VTQUEUE_TEST_NEIGHBOURS"  # the variable that asks for receivers
STARVED = "VTQUEUE_TEST_STARVED"  # the variable that has statements of the main thread, which claims, lack memory
LACKS, HUNGER = 0.01, 0.5  # how likely a time without memory begins with one; and for how many seconds at the most
RAISES, FAILS, WRITES, HANGS = 0.02, 0.01, 0.02, 0.0005  # how likely a receiver does what it should not
HANGS_AT_END = 0.03  # how likely one does when a job has ended: in a thread of its own, so that little waits for it
REFUSED = 0.2  # how likely one in a transaction asks for what the database refuses; there none hangs: it has the lock
STRAYS_FOR = 300  # seconds
HANGS_FOR = 2 * SHORT_LEASE  # seconds
SLOW_RECORD = 0.3  # how likely a record of the slow log takes longer than a lease, once its worker is ready
ROOM, SIP = 4096, 512  # bytes of the full log's pipe, and of a read
RESTS, REST = 0.05, 2 * SHORT_LEASE  # how likely nobody reads for a while, and for how many seconds

# LOGGING of a worker with a slow log.
SLOW_LOG = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"slow": {"class": "tests.faults.mix.neighbours.SlowLog"}},
    "root": {"handlers": ["slow"], "level": "INFO"},
}


class SlowLog(logging.StreamHandler[Any]):
    """A handler that writes to a service which often does not answer for longer than a lease."""

    ready = False

    def emit(self, record: logging.LogRecord) -> None:
        if self.ready and random.random() < SLOW_RECORD:
            time.sleep(HANGS_FOR)
        super().emit(record)
        self.ready = self.ready or " ready: " in record.getMessage()


def misbehave(signal: Signal, **kwargs: Any) -> None:
    """Receive a signal: raise an error, a database's among them, write a row, or hang for longer than a lease."""
    from tests.project.models import Effect

    from ..inside import task_finished

    chance, inside = random.random(), connection.in_atomic_block
    if inside and random.random() < REFUSED:
        Effect.objects.create(name=None)  # type: ignore[misc]
    if chance < RAISES:
        raise ValueError("a receiver that fails")
    if chance < RAISES + FAILS:
        raise OperationalError("a receiver that asks another database")
    if chance < RAISES + FAILS + WRITES:
        Effect.objects.create(name="told")
    elif chance < RAISES + FAILS + WRITES + (HANGS_AT_END if signal is task_finished else HANGS) and not inside:
        time.sleep(HANGS_FOR)


def move_in(*signals: Signal) -> None:
    """Connect a bad receiver to each of these signals, where the mix wants it."""
    for signal in signals if os.environ.get(BAD) else ():
        signal.connect(misbehave)


_hungry_until = 0.0  # monotonic


def starve(execute: Callable[..., Any], *statement: Any) -> Any:
    """Execute a statement; now and then, for a while, have no memory for that, or none for what it returns."""
    global _hungry_until
    if random.random() < LACKS:
        _hungry_until = time.monotonic() + random.uniform(0, HUNGER)
    hungry = time.monotonic() < _hungry_until
    if hungry and random.random() < 0.5:
        raise MemoryError
    returned = execute(*statement)
    if hungry:
        raise MemoryError
    return returned


def go_hungry() -> None:
    """Have the statements of this thread starve, where the mix wants it: those of models, and those of the queue."""
    if STARVED not in os.environ:
        return
    from ..inside import around_statements

    around_statements(connection.alias, starve)
    connection.execute_wrappers.append(starve)


def read_slowly(pipe: int) -> None:
    """Copy a pipe to the standard output, a sip at a time, and rest in between for longer than a lease."""
    while written := os.read(pipe, SIP):
        os.write(1, written)
        if random.random() < RESTS:
            time.sleep(REST)


def stray() -> None:
    """Leave a thread behind that the interpreter waits for at its end, or an executor's, for which it does so, too."""
    if random.random() < 0.5:
        ThreadPoolExecutor(1).submit(time.sleep, STRAYS_FOR)
    else:
        threading.Thread(target=time.sleep, args=(STRAYS_FOR,), daemon=False).start()  # else as that of the job


def main() -> None:
    """Become the command that is given; its output goes through a small pipe that is read slowly."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, ROOM)
    if os.fork() == 0:
        os.close(writing)
        if os.fork() == 0:  # no child of the worker: it is no holder of jobs
            os.setsid()
            read_slowly(reading)
        os._exit(0)
    os.wait()
    os.close(reading)
    os.dup2(writing, 1)
    os.dup2(writing, 2)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


if __name__ == "__main__":
    main()
