"""The admin's pages beside a million jobs and a hundred thousand dead letters: the time and the queries of each.

The raw limit is the first page of Django's admin, which has nothing of the queue but its name.
"""

import json
import os
import re
import time
from argparse import Namespace
from collections.abc import Iterator
from html import unescape
from statistics import median
from typing import Any
from urllib.parse import urlencode, urljoin
from uuid import UUID

os.environ["VTQUEUE_BENCH_ADMIN"] = "1"  # read with the settings

from . import crowd
from .figures import arguments, heading, keep, show
from .tools import fresh, rows  # it sets Django up

# ruff: isort: split
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

SLOWEST, MOST = 200.0, 20  # milliseconds, and queries: each page stays below
WARM = 5
NEXT = re.compile(r'href="([^"]*)" rel="next"')
ADMIN, HERE = "/admin/", "/admin/vtqueue/"


def main() -> None:
    given = filled()
    measure(f"10. Pages of the admin: {numbers(given)} (raw: the admin's first page)", given.steps)


def filled() -> Namespace:
    """Fill a database; return what the command line says."""
    given = arguments(__doc__, jobs=(1_000_000, 50_000), letters=(100_000, 5_000), steps=(20, 5))
    fresh()
    crowd.fill(given.jobs, given.letters)
    return given


def numbers(given: Namespace) -> str:
    return f"{given.jobs:,} jobs, {given.letters:,} dead letters"


def measure(title: str, steps: int) -> None:
    """Measure all pages on the default database."""
    client = Client()
    client.force_login(User.objects.create_superuser("anna"))
    heading(title)
    raw = Page(client, ADMIN)
    raw.show("Django's own first page")
    missed = []
    for name, path in pages(client, steps):
        page = Page(client, path)
        page.show(name, raw.warm)
        if page.warm >= SLOWEST or page.queries >= MOST:
            missed.append(name)
    print(f"\nnot below {SLOWEST:g} ms and {MOST} queries: {', '.join(missed) or 'none'}")


class Page:
    """A page that was asked for once, and then some times more, in milliseconds; an export up to its first slice."""

    def __init__(self, client: Client, path: str) -> None:
        self.client, self.path = client, path
        with CaptureQueriesContext(connection) as queries:
            self.first = self.timed()
        self.queries = len(queries)
        self.warm = median(self.timed() for _ in range(WARM))

    def timed(self) -> float:
        began = time.perf_counter()
        response = self.client.get(self.path)
        size = len(next(iter(response))) if response.streaming else len(response.content)
        if response.status_code != 200 or not size:
            raise RuntimeError(f"{self.path} was answered with {response.status_code}.")
        return (time.perf_counter() - began) * 1000

    def show(self, name: str, raw: float | None = None) -> None:
        show(name, self.warm, "ms", raw, f"{self.queries} queries, {self.first:.0f} ms at first")
        keep("points", what=name, queries=self.queries, first=self.first)


def pages(client: Client, steps: int) -> Iterator[tuple[str, str]]:
    """Yield the names and addresses of all pages; a deep one lies in the middle, or ``steps`` behind the first."""
    yield "overview", HERE
    yield "workers", f"{HERE}workerprocess/"
    job_id, letter_id = middle("vtqueue_job"), middle("vtqueue_deadletter")
    [(died_at,)] = rows("SELECT died_at FROM vtqueue_deadletter WHERE id = ?", letter_id)
    yield from lists(client, "jobs", f"{HERE}job/", JOB_LISTS, [job_id], steps)
    yield "job", f"{HERE}job/{job_id}/change/"
    yield "enqueueing a job", f"{HERE}job/enqueue/"
    yield from lists(client, "dead letters", f"{HERE}deadletter/", LETTER_LISTS, [died_at, letter_id], steps)
    yield "dead letter", f"{HERE}deadletter/{letter_id}/change/"
    yield "editing a dead letter", f"{HERE}deadletter/{UUID(letter_id)}/edit/"
    yield "groups", f"{HERE}deadletter/groups/"
    yield "groups, a queue", f"{HERE}deadletter/groups/?queue_name=queue-7"
    yield "groups, a task", f"{HERE}deadletter/groups/?task_path=shop.tasks.task_7"
    for what in ("requeue", "discard", "export"):
        yield f"{what}: all", f"{HERE}deadletter/{what}/"
        yield f"{what}: a queue", f"{HERE}deadletter/{what}/?queue_name=queue-7"
    yield "requeues", f"{HERE}requeue/"


JOB_LISTS = {
    "state due": {"state": "due"},
    "state scheduled": {"state": "scheduled"},
    "state retrying": {"state": "retrying"},
    "state running": {"state": "running"},
    "state expired": {"state": "expired"},
    "state done": {"state": "done"},
    "a queue": {"queue_name": "queue-7"},
    "a queue's due": {"queue_name": "queue-7", "state": "due"},
    "a task": {"task_path": "shop.tasks.task_7"},
    "the last hour": {"time": "hour"},
    "older than a week": {"time": "older"},
    "a worker": {"worker_id": "web1:3:abcd"},
    "a worker's running": {"worker_id": "web1:3:abcd", "state": "running"},
    "an unknown queue": {"queue_name": "nowhere"},
    "search: task": {"q": "task_7"},
    "search: argument": {"q": "order-777"},
    "search: nothing": {"q": "there is no such text"},
    "search: an argument in a queue": {"q": "order-777", "queue_name": "queue-7"},
}
LETTER_LISTS = {
    "a queue": {"queue_name": "queue-7"},
    "a task": {"task_path": "shop.tasks.task_7"},
    "an exception": {"exception_class": "shop.errors.Error3"},
    "a fingerprint": {"fingerprint": "0" * 31 + "7"},
    "the last hour": {"died": "1h"},
    "an unknown queue": {"queue_name": "nowhere"},
    "a queue's task": {"queue_name": "queue-7", "task_path": "shop.tasks.task_1"},
    "search: message": {"q": "was refused"},
    "search: argument": {"q": "user777@example.com"},
    "search: nothing": {"q": "there is no such text"},
}


def lists(
    client: Client, what: str, path: str, filters: dict[str, dict[str, str]], key: list[Any], steps: int
) -> Iterator[tuple[str, str]]:
    yield f"{what}, first page", path
    yield f"{what}, the middle", f"{path}?{urlencode({'after': json.dumps(key)})}"
    yield f"{what}, search: id", f"{path}?{urlencode({'q': key[-1]})}"
    for name, parameters in filters.items():
        yield f"{what}, {name}", (first := f"{path}?{urlencode(parameters)}")
        deep = first
        for _ in range(steps):
            deep = following(client, deep) or deep
        if deep != first:
            yield f"{what}, {name}, deep", deep


def following(client: Client, path: str) -> str | None:
    """Return the address of the page behind one; None behind the last."""
    found = NEXT.search(client.get(path).content.decode())
    return urljoin(path, unescape(found[1])) if found else None


def middle(table: str) -> str:
    """Return the id of the row in the middle of a table."""
    [(found,)] = rows(f"SELECT id FROM {table} WHERE rowid = (SELECT max(rowid) / 2 FROM {table})")
    return str(found)


if __name__ == "__main__":
    main()
