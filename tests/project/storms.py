"""Tasks for storms and soaks: short, and each execution is seen from outside."""

import os
import random
import time
from pathlib import Path

from django_vtqueue import ClaimedJob, Retry, TaskContext, task


def sign(context: TaskContext, folder: str) -> None:
    """Write a line to the file of this process, in one piece: the job and who has claimed it."""
    result = context.task_result
    with (Path(folder) / str(os.getpid())).open("a") as file:
        file.write(f"{result.id.replace('-', '')} {result.worker_ids[-1]}\n")


@task(takes_context=True, backoff=0.1)
def short(context: TaskContext, folder: str) -> None:
    """Take some milliseconds."""
    sign(context, folder)
    time.sleep(random.uniform(0, 0.02))


@task(takes_context=True, backoff=0.1)
def long(context: TaskContext, folder: str) -> None:
    """Take a second or two."""
    sign(context, folder)
    time.sleep(random.uniform(0.5, 2))


@task(takes_context=True, backoff=0.1)
def flaky(context: TaskContext, folder: str) -> None:
    """Fail twice."""
    sign(context, folder)
    if context.attempt <= 2:
        raise ConnectionError("refused")


@task(takes_context=True, backoff=0.1, priority=10)
def later(context: TaskContext, folder: str, delay: float) -> None:
    """Be put off once; before all others when its time has come."""
    sign(context, folder)
    if context.attempt == 1:
        raise Retry("not yet", delay=delay)


@task(takes_context=True, max_attempts=1)
def failing(context: TaskContext, folder: str) -> None:
    """Fail for good."""
    sign(context, folder)
    raise LookupError("x" * 1000)


def handle(job: ClaimedJob) -> None:
    """Take a raw payload."""
    time.sleep(job.payload["seconds"])
