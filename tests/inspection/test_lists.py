"""Lists of jobs and dead letters are read page by page, and each row of a list is on one page."""

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from django_vtqueue.core.clock import LAST, from_instant
from django_vtqueue.core.ids import digits_in, id_end
from django_vtqueue.inspection import lists
from django_vtqueue.inspection.lists import ListQuery, Page, ending, list_jobs, list_letters, waiting_parts
from django_vtqueue.models import Job
from django_vtqueue.queue.named_jobs import ids_of
from tests.conformance import conftest as both
from tests.conformance.bench import Bench, interruption
from tests.fake_clock import at

alias, traced, bench = both.alias, both.traced, both.bench  # of each engine

COUNT = 7
WORDS = ("", "due", "scheduled", "retrying", "blocked", "running", "expired", "done")


def pages(read: Callable[[Any], Page]) -> list[str]:
    """Return the ids of a list, read page by page."""
    found, after = list[str](), None
    while len(found) <= COUNT:
        page = read(after)
        found += [row.pk.hex for row in page.rows]
        after = page.next_key
        if after is None:
            break
    return found


def stored(bench: Bench, word: str) -> list[str]:
    """Store jobs that have a word of ListQuery at the second 100; return their ids."""
    due = 1000 if word in ("scheduled", "retrying") else 0
    ids = bench.publish(*range(COUNT), due=due)
    if word in ("running", "expired", "done"):
        held = bench.claim(limit=COUNT, lease=200 if word == "running" else 50)
        if word == "done":
            for job in held:
                bench.ack(job)
    elif word == "retrying":
        bench.jobs.update(attempts=1)
    elif word == "blocked":
        bench.jobs.update(due_at=LAST, moved_from=from_instant(at(0)), concurrency_key="key:\u00a0ä")
    return ids


def test_what_a_worker_gave_back_is_due(bench: Bench) -> None:
    """It is in the list of what is due, and its number, before a claim has unhidden it: there may be no worker."""
    bench.publish(1, 2)
    bench.publish(3, 4, queue="r", task="shop.tasks.welcome")
    for job in bench.claim(limit=2) + bench.claim(limit=2, queues=("r",), raw=False):
        bench.settle(interruption(job, 10, 11))
    bench.publish(5, 6)
    for query, count in (({}, 6), ({"queue_name": "r"}, 2), ({"queue_name": "q"}, 4)):
        due = ListQuery(word="due", **query)
        found = pages(partial(list_jobs, bench.jobs, due, size=3, limit=1, now=at(20)))
        assert sorted(found) == sorted({row.pk.hex for row in bench.jobs.filter(**query)})
        assert lists.count_jobs(bench.jobs, due, 10, at(20))["due"] == (count, False)
    early = pages(partial(list_jobs, bench.jobs, ListQuery(word="due"), size=100, limit=10, now=at(10)))
    assert len(early) == 2


@pytest.mark.parametrize("word", WORDS)
def test_jobs(bench: Bench, word: str) -> None:
    """Those of each word of a list are read, none twice."""
    ids = stored(bench, word)
    read = partial(list_jobs, bench.jobs, ListQuery(word=word), size=100, limit=2, now=at(100))
    found = pages(read)
    assert len(found) == COUNT
    assert sorted(found) == sorted(ids)


def test_dead_letters(bench: Bench) -> None:
    """They are read, none twice."""
    ids = [bench.dead() for _ in range(COUNT)]
    found = pages(partial(list_letters, bench.letters, ListQuery(), size=100, limit=2))
    assert len(found) == COUNT
    assert sorted(found) == sorted(ids)


def test_what_is_published_while_a_page_is_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than may be looked at make the page end, and no error."""
    bench.publish(*range(COUNT - 1), priority=5)
    bench.publish(0, priority=0)

    def parts(*given: Any) -> Any:
        for number, part in enumerate(waiting_parts(*given)):
            if number:
                bench.publish("a", "b", priority=5)
            yield part

    monkeypatch.setattr(lists, "waiting_parts", parts)
    query = ListQuery(word="due", text="nothing has this")
    page = list_jobs(bench.jobs, query, None, size=COUNT, limit=COUNT, now=at(100))
    assert page.rows == []
    assert page.looked_to


@pytest.mark.parametrize("count", [8, 12, 13, 16, 17, 20, 24, 25, 32])
def test_the_end_of_an_id(bench: Bench, count: int) -> None:
    """A row is found by the last digits of its id, or by all of them, with dashes as people see it or without."""
    job_id, other = map(UUID, bench.publish("a", "b"))
    digits = job_id.hex[-count:]
    for text in (digits, digits.upper(), id_end(digits)):
        query = ListQuery(text=text)
        assert [row.pk for row in list_jobs(bench.jobs, query, None, size=100, limit=2, now=at(100)).rows] == [job_id]
        assert [row.pk for row in ending(bench.jobs, digits_in(text), 2)] == [job_id]
        assert ids_of(f"…{text}", bench.engine.alias, Job) == [job_id] != [other]


@pytest.mark.parametrize("text", ["", "123", "1234567", "no digits", "2030-12-31", "1" * 33, "…", "-", "12345678-"])
def test_what_is_no_end_of_an_id(text: str) -> None:
    """A few digits, and those with dashes where an id has none, are none."""
    assert digits_in(text) == ""
