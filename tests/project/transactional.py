"""Transactional tasks, and what they must survive."""

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from asgiref.sync import sync_to_async
from django.db import connection, transaction
from django.db.models import F

from django_vtqueue import TaskContext, task
from django_vtqueue.models import Job

from .models import Effect
from .tasks import LONGEST, add


@task(transactional=True)
def count(name: str) -> None:
    """Count one more, by reading and writing: two at a time would lose one."""
    counter = Effect.objects.get(name=name)
    time.sleep(0.001)
    counter.value += 1
    counter.save()


@task(transactional=True, takes_context=True, backoff=0.1)
def die_first(context: TaskContext, name: str) -> None:
    """Write, and in the first attempt be killed before the end."""
    Effect.objects.create(name=name)
    add.enqueue(1, 2)
    if context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@task(transactional=True, max_attempts=1)
def fail(name: str) -> None:
    Effect.objects.create(name=name)
    add.enqueue(1, 2)
    raise ConnectionError("refused")


@task(transactional=True)
def no_json(name: str) -> object:
    Effect.objects.create(name=name)
    return object()


@task(transactional=True, takes_context=True, visibility_timeout=2)
def lose_first(context: TaskContext, name: str) -> None:
    """Write, and in the first execution lose the lease, as if another worker had claimed the job."""
    Effect.objects.create(name=name)
    if context.task_result.attempts == 1:
        Job.objects.filter(pk=context.task_result.id).update(claims=F("claims") + 1)


@task(transactional=True)
def append(name: str) -> None:
    Effect.objects.create(name=name)


@task(transactional=True)
def hang(name: str) -> None:
    """Write, and keep the write lock for a while."""
    Effect.objects.create(name=name)
    time.sleep(1)


@task(transactional=True)
def take_long(name: str, seconds: float) -> None:
    """Write, and keep the write lock for so many seconds."""
    Effect.objects.create(name=name)
    time.sleep(seconds)


@task(transactional=True, timeout=1, max_attempts=1)
def hang_and_write(name: str, pipe: str) -> None:
    """Write, wait for a writer of a pipe, where no exception comes through, ignore every error, and write again."""
    Effect.objects.create(name=name)
    with suppress(BaseException):
        Path(pipe).read_bytes()
    for _ in range(3):
        with suppress(BaseException):
            Effect.objects.create(name=name)


@task(transactional=True, timeout=0.3, max_attempts=1)
def query_for_ever(name: str) -> None:
    Effect.objects.create(name=name)
    with connection.cursor() as cursor:
        cursor.execute("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n")


@task(transactional=True, timeout=0.3, max_attempts=1)
def query_beside_an_open_cursor(name: str) -> None:
    """Exceed the limit in a query while the rows of another one are still being read."""
    for number in range(100):
        Effect.objects.create(name=name, value=number)
    with connection.cursor() as cursor:
        cursor.execute("SELECT value FROM project_effect")
        cursor.fetchone()
        query_for_ever.func(name)


@task(transactional=True, timeout=0.3, max_attempts=1)
def close_and_sleep(name: str) -> None:
    """Exceed the limit without a connection."""
    Effect.objects.create(name=name)
    connection.close()
    time.sleep(0.5)


@task(transactional=True, max_attempts=1)
def end_its_transaction(name: str) -> None:
    """Commit by a detour, as ``executescript`` does, and write again."""
    connection.connection.executescript("SELECT 1")
    Effect.objects.create(name=name)


@task(transactional=True)
def write_while_reading(name: str) -> None:
    """Execute a statement whose parameters come from another one."""
    Effect.objects.bulk_create([Effect(name="read"), Effect(name="read")])
    values = ([name, effect.pk] for effect in Effect.objects.filter(name="read").iterator())
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO project_effect (name, value) VALUES (%s, %s)", values)


@task(transactional=True)
async def write_async(name: str) -> None:
    await asyncio.sleep(0)
    await sync_to_async(Effect.objects.create)(name=name)


@task(transactional=True, timeout=0.3, max_attempts=1)
async def wait_async(name: str) -> None:
    await sync_to_async(Effect.objects.create)(name=name)
    await asyncio.sleep(LONGEST)


@task(transactional=True)
def fail_after_commit(name: str) -> None:
    def hook() -> None:
        raise ConnectionError("refused")

    Effect.objects.create(name=name)
    transaction.on_commit(hook)


@task(transactional="elsewhere", max_attempts=1)
def write_elsewhere() -> None:
    """Never called: its database is not the queue's."""
