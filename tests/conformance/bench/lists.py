"""Lists of jobs and dead letters, as pages and commands show them, at the second 100 if a test says nothing else."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from django_vtqueue.core.ids import digits_in
from django_vtqueue.inspection import lists
from django_vtqueue.models import Job
from django_vtqueue.queue.named_jobs import ids_of
from tests.fake_clock import at

from .queue import Bench

MOST_PAGES = 100


def listed(bench: Bench, looked_at: int = 100, limit: int = 2, now: float = 100, **query: Any) -> list[str]:
    """Return the ids of the jobs of a list, read page by page; ``query``: ``word``, ``queue_name``, ``text``.

    A page has ``limit`` rows, and looks at ``looked_at`` of them, at the most.
    """
    wanted = lists.ListQuery(**query)
    return _pages(lambda key: lists.list_jobs(bench.jobs, wanted, key, size=looked_at, limit=limit, now=at(now)))


def listed_letters(bench: Bench, limit: int = 2) -> list[str]:
    """Return the ids of the dead letters of the list, read page by page."""
    return _pages(lambda key: lists.list_letters(bench.letters, lists.ListQuery(), key, size=100, limit=limit))


def number_listed(bench: Bench, word: str, now: float, **query: Any) -> tuple[int, bool]:
    """Return how many jobs such a list has, of which 10 are looked at, and whether there may be more."""
    return lists.count_jobs(bench.jobs, lists.ListQuery(**query), 10, at(now))[word]


def first_page(bench: Bench, looked_at: int, **query: Any) -> tuple[list[str], bool]:
    """Return the ids of the first page, and whether it has ended since so many rows were looked at."""
    wanted = lists.ListQuery(**query)
    page = lists.list_jobs(bench.jobs, wanted, None, size=looked_at, limit=looked_at, now=at(100))
    return [row.pk.hex for row in page.rows], page.looked_to is not None


def between_priorities(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something each time when a page goes on to the next priority."""
    ready_parts = lists.ready_parts

    def parts(*given: Any) -> Any:
        for number, part in enumerate(ready_parts(*given)):
            if number:
                act()
            yield part

    patch.setattr(lists, "ready_parts", parts)


def found_by_end(bench: Bench, text: str) -> list[list[UUID]]:
    """Return the ids of the jobs that end in these digits, by each way in which they are looked for."""
    page = lists.list_jobs(bench.jobs, lists.ListQuery(text=text), None, size=100, limit=2, now=at(100))
    ends = lists.ending(bench.jobs, digits_in(text), 2)
    return [[row.pk for row in page.rows], [row.pk for row in ends], ids_of(f"…{text}", bench.alias, Job)]


def is_end_of_id(text: str) -> bool:
    """Return whether people may name a job by this text."""
    return digits_in(text) != ""


def _pages(read: Callable[[Any], lists.Page]) -> list[str]:
    found, after = list[str](), None
    for _ in range(MOST_PAGES):
        page = read(after)
        found += [row.pk.hex for row in page.rows]
        after = page.next_key
        if after is None:
            return found
    pytest.fail("the list does not end")
