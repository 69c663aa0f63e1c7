"""What a supervisor keeps of a child process."""

import errno
import gc
import os
import sys
from pathlib import Path

import pytest
from django.db import connections

from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.worker.child_process import ChildProcess
from django_vtqueue.worker.log import WorkerLog
from django_vtqueue.worker.options import WorkerOptions
from django_vtqueue.worker.supervisor import Supervisor

from ..waiting import wait_until


def memories() -> int:
    """Return how many files of shared memory this process has open."""
    files = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sum("vtqueue-shared" in file for file in files)


def test_the_memory_of_a_child_that_has_ended_is_given_back(sqlite_file: str) -> None:
    """At once, whatever still refers to the child: an error of the database refers to what it has interrupted."""
    backend = VTQueueBackend("default", {"QUEUES": [], "OPTIONS": {"database": sqlite_file}})
    child = ChildProcess(backend, WorkerOptions(threads=4, supervised=True), WorkerLog())
    assert memories() == 1
    child.kill()
    assert child.ended()
    assert memories() == 0
    assert child.state.held == 0


def test_a_path_for_imports_that_is_no_text(sqlite_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python passes over it, and so does a child: many settings append a ``pathlib.Path``."""
    backend = VTQueueBackend("default", {"QUEUES": [], "OPTIONS": {"database": sqlite_file}})
    monkeypatch.setattr(sys, "path", [*sys.path, Path("apps")])
    child = ChildProcess(backend, WorkerOptions(threads=4, supervised=True), WorkerLog())
    wait_until(lambda: child.worker_id)
    child.kill()
    assert child.ended()


def test_a_child_that_cannot_be_started_leaves_nothing_open(sqlite_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again and again, so that a file a time would use up what the supervisor may open."""
    backend = VTQueueBackend("default", {"QUEUES": [], "OPTIONS": {"database": sqlite_file}})

    def refuse() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pipe", refuse)
    for _ in range(3):
        with pytest.raises(OSError, match="Too many open files"):
            ChildProcess(backend, WorkerOptions(threads=4, supervised=True), WorkerLog())
    assert memories() == 0


def test_the_memory_is_given_back_although_its_leases_could_not_be_renewed(sqlite_file: str) -> None:
    """An error of Django's cursors refers to itself, and to the frames it went through, until garbage is collected.

    That takes hours in a supervisor, which would keep a file open for each child that died beside such an error.
    """
    backend = VTQueueBackend("default", {"QUEUES": [], "OPTIONS": {"database": sqlite_file}})
    supervisor = Supervisor(backend, WorkerOptions(threads=4, processes=1), WorkerLog())
    child = ChildProcess(backend, WorkerOptions(threads=4, supervised=True), WorkerLog())
    supervisor._children.append(child)
    child.state.renew_by = 0.0
    with connections[sqlite_file].cursor() as cursor:
        cursor.execute("ALTER TABLE vtqueue_job RENAME TO elsewhere")
    gc.disable()
    try:
        supervisor.look_after(child)
        child.kill()
        supervisor.look_after(child)
        assert memories() == 0
    finally:
        gc.enable()
        supervisor.engine.disconnect()
