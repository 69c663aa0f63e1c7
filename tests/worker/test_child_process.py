"""What a supervisor keeps of a child process."""

import os
from pathlib import Path

from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.worker.log import WorkerLog
from django_vtqueue.worker.options import WorkerOptions
from django_vtqueue.worker.supervisor import ChildProcess


def memories() -> int:
    """Return how many files of shared memory this process has open."""
    files = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sum("vtqueue-shared" in file for file in files)


def test_the_memory_of_a_child_that_has_ended_is_given_back(sqlite_file: str) -> None:
    """At once, whatever still refers to the child: an error of the database refers to what it has interrupted."""
    backend = VTQueueBackend("default", {"QUEUES": [], "OPTIONS": {"database": sqlite_file}})
    child = ChildProcess(backend, WorkerOptions(supervised=True), WorkerLog())
    assert memories() == 1
    child.kill()
    assert child.ended()
    assert memories() == 0
    assert child.state.held == 0
