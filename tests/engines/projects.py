"""Projects on PostgreSQL, and processes of theirs, which have no doorbells: only the server can wake them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

from django_vtqueue.conf import parse
from django_vtqueue.core.ids import new_id
from django_vtqueue.core.job import NewJobs
from django_vtqueue.engines import engine_for
from django_vtqueue.queue.publishing import store
from tests.processes.running import Running
from tests.processes.running import python as program
from tests.projects import ROOT, Project

SETTINGS = """
DATABASES = {{"default": {database!r}}}
TASKS["default"] |= {{"QUEUES": [], "OPTIONS": {{"doorbells": "/nonexistent"}}}}
"""
# ``limited`` writes when it ran: the clock is one for all processes of a machine.
TASKS = """
import os
import time
from django.db import connection
from django_vtqueue import task

RUNS = os.open("runs", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

@task
def noop():
    pass

@task(concurrency=2, visibility_timeout=2)
def limited():
    began = time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.02)")
    os.write(RUNS, f"{began} {time.monotonic()}\\n".encode())
"""


class ServerProject(Project):
    """A project on a database of a server."""

    def __init__(self, folder: Path, database: dict[str, Any], settings: str = "", tasks: str = TASKS) -> None:
        super().__init__(folder, SETTINGS.format(database=database) + dedent(settings))
        self.write("shop/tasks.py", tasks)

    def most_at_once(self) -> int:
        """Return how many of the tasks that have ended ran at the same moment."""
        runs = [[float(moment) for moment in line.split()] for line in (self.folder / "runs").read_text().splitlines()]
        return max(sum(began <= moment < ended for began, ended in runs) for moment, _ in runs)

    @contextmanager
    def started(self, *arguments: str, log: str = "log") -> Iterator[Running]:
        """Start this Python with arguments; end it at the end of the block."""
        path = os.pathsep.join([str(self.folder), str(ROOT)])
        variables = {"DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        process = Running(program(*arguments), {**os.environ, **variables}, self.folder / log, cwd=self.folder)
        try:
            yield process
        finally:
            process.clean_up()


def enqueue(alias: str, count: int = 1, task: str = "shop.tasks.noop", **keys: str) -> None:
    """Enqueue calls of a task of the project from this process, each in a transaction of its own."""
    for _ in range(count):
        now = engine_for(alias).now()
        new = NewJobs("default", task, 0, 3, 60_000_000, now, now, [(new_id(), '{"args": [], "kwargs": {}}')])
        for name, key in keys.items():
            setattr(new, name, [key])
        store(new, alias, parse({}))
