"""``vtworker --reload``: a parent that watches the code, and a worker that is stopped gracefully and started anew.

Django's ``run_with_reloader`` would end the worker in mid-job. Here the parent runs no job: when a file changes it asks
the worker to stop (it releases what does not end soon), and starts another. A worker that cannot start, because of a
mistake in the code, is started again after the next change.
"""

import logging
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from django.utils import autoreload

from ..runtime.forks import handle_signal
from .stop_signals import stop_signals

logger = logging.getLogger("django_vtqueue")

# Stops a worker, in the place of which another one is started; it kills one that has not begun.
REPLACED = signal.SIGUSR2
PARENT = "VTQUEUE_PARENT"  # environment variable: the pid of the process that watches the code
INTERVAL = 1.0  # seconds between two looks at the files
ENDING = 5.0  # seconds for running jobs to end before they are released
RELEASING = 10.0  # seconds for that; then the worker is killed


def run_with_reload() -> int:
    """Run the present command line with ``--no-reload`` again and again; return the exit code of its end."""
    received: list[int] = []
    for number in stop_signals():
        handle_signal(number, lambda number, frame: received.append(number))
    files = Files()
    logger.info("watching the code for changes (--no-reload turns this off)")
    while True:
        worker = start_worker()
        code, changed = watch(worker, files, received)
        if changed is not None:
            logger.info("%s changed; restarting", changed)
            stop(worker)
            if received:
                return 0
        elif received or code == 0:
            return code or 0
        elif code is not None and code < 0:
            logger.warning("the worker was killed by signal %d; restarting", -code)
            time.sleep(INTERVAL)
        else:
            logger.warning("the worker ended with code %d; waiting for a change of the code", code)
            while not received and files.changed() is None:
                time.sleep(INTERVAL)
            if received:
                return 1


def start_worker() -> "subprocess.Popen[bytes]":
    """Start the worker; it stops by itself when this process is gone (see ``stop_with_parent``)."""
    command = [*autoreload.get_child_arguments(), "--no-reload"]
    return subprocess.Popen(command, env={**os.environ, PARENT: str(os.getpid())}, start_new_session=True)


def watch(worker: "subprocess.Popen[bytes]", files: "Files", received: list[int]) -> tuple[int | None, Path | None]:
    """Wait until the worker ends or a file changes, passing signals on; return its exit code, or the file."""
    passed = 0
    while True:
        with suppress(subprocess.TimeoutExpired):
            return worker.wait(INTERVAL if len(received) == passed else 0.01), None
        for number in received[passed:]:
            worker.send_signal(number)
        passed = len(received)
        if not received and (changed := files.changed()) is not None:
            return None, changed


def stop(worker: "subprocess.Popen[bytes]") -> None:
    """End the worker gracefully; jobs that do not end in time are released."""
    for number, timeout in ((REPLACED, ENDING), (signal.SIGTERM, RELEASING)):
        worker.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            worker.wait(timeout)
            return
    worker.kill()
    worker.wait()


def stop_with_parent(stop: Callable[[], None], stand_in: Callable[[], object]) -> None:
    """In a worker started here: call ``stop`` when the process that watches the code has died, or starts another one.

    Then ``stand_in`` is called before it.
    """
    parent, replaced = os.environ.get(PARENT), threading.Event()

    def wait() -> None:
        while os.getppid() == int(parent or 0) and not replaced.is_set():
            replaced.wait(INTERVAL)
        if replaced.is_set():
            with suppress(Exception):  # it is for people, and the next worker comes soon
                stand_in()
        stop()

    if parent:
        threading.Thread(target=wait, name="parent", daemon=True).start()
        handle_signal(REPLACED, lambda number, frame: replaced.set())


def stand_in_id() -> str:
    """Return the id of the row that stands for the workers started here while none runs; "" in any other worker."""
    parent = os.environ.get(PARENT)
    return f"{socket.gethostname()}:{parent}:reload" if parent else ""


class Files:
    """The loaded modules of this process, and when they were last changed."""

    def __init__(self) -> None:
        self._reloader = autoreload.StatReloader()
        self._seen = dict(self._reloader.snapshot_files())

    def changed(self) -> Path | None:
        """Return a file that has changed since the last call; None if none has."""
        now = dict(self._reloader.snapshot_files())
        changed = next((path for path, when in now.items() if self._seen.get(path, when) != when), None)
        self._seen |= now
        return changed
