"""Receivers that raise, hang or write, and tasks that leave threads behind."""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from django.db import connection

from django_vtqueue import JobContext, call, task
from django_vtqueue.tasks.compat import signals
from tests.project.models import Effect
from tests.project.tasks import wait_for_file
from tests.settings import env


def fail() -> None:
    raise RuntimeError("a receiver failed")


def leave() -> None:
    sys.exit(3)


def misspell() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT no_such_column FROM vtqueue_job")


def hang() -> None:
    """Hang until there is the file VTQUEUE_TEST_GO, after which it is no hindrance any more."""
    wait_for_file(Path(os.environ["VTQUEUE_TEST_GO"]))


def write() -> None:
    Effect.objects.create(name="received")


DEEDS = {"fail": fail, "exit": leave, "misspell": misspell, "hang": hang, "write": write}


def hinder(name: str, deed: str) -> None:
    def receiver(**given: Any) -> None:
        print(f"a receiver is to {deed}", flush=True)
        DEEDS[deed]()

    getattr(signals, name).connect(receiver, weak=False)


for name, deed in env.json("VTQUEUE_TEST_RECEIVERS", default={}).items():
    hinder(name, deed)


@task
def leaf(number: int) -> int:
    return number


@task(takes_context=True)
def gather(context: JobContext) -> list[Any]:
    return [result.return_value for result in context.gather("leaves", [call(leaf, number) for number in range(3)])]


@task
def leave_thread() -> None:
    threading.Thread(target=time.sleep, args=(600,), daemon=False).start()  # else it is as that of the job


@task
def leave_executor() -> None:
    ThreadPoolExecutor().submit(time.sleep, 600)


@task
def leave_nothing() -> None: ...
