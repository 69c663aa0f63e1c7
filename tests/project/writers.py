"""Transactional tasks that a worker loads when it starts, and so knows to be such."""

import ctypes
import time

from django_vtqueue import task

from . import tasks
from .models import Effect


@task(transactional=True, hard_timeout=5, max_attempts=1)
def take_a_part_of_its_time(name: str) -> None:
    """Write, and take more than a third of the time that an attempt may take."""
    Effect.objects.create(name=name)
    time.sleep(1.8)


@task(transactional=True, timeout=900, max_attempts=1)
def say_and_sleep(path: str, seconds: float) -> None:
    """Write a line to a file, and hold the write lock."""
    tasks.note.func(path, "begun")
    time.sleep(seconds)


@task(transactional=True, timeout=900, max_attempts=1)
def hold(folder: str) -> None:
    """Hold the write lock until there is a file ``go``."""
    tasks.hold.func(folder)


@task(transactional=True)
def append(name: str) -> None:
    Effect.objects.create(name=name)


@task(transactional=True, timeout=0.3, max_attempts=1)
def hang(name: str, seconds: float) -> None:
    """Write, and sleep where no exception comes through."""
    Effect.objects.create(name=name)
    time.sleep(seconds)


@task(transactional=True, hard_timeout=1, max_attempts=1)
def hold_the_interpreter(seconds: int) -> None:
    """Let no other thread of this process run, in the transaction."""
    ctypes.PyDLL(None).sleep(seconds)


@task(transactional=True, expires=6)
def append_soon(name: str) -> None:
    Effect.objects.create(name=name)
