"""Lists of jobs and dead letters are read page by page, and each row of a list is on one page."""

from uuid import UUID

import pytest

from .bench import (
    Bench,
    between_priorities,
    first_page,
    found_by_end,
    interruption,
    is_end_of_id,
    listed,
    listed_letters,
    number_listed,
)

COUNT = 7
WORDS = ("", "due", "scheduled", "retrying", "blocked", "running", "expired", "done")


def stored(bench: Bench, word: str) -> list[str]:
    """Store jobs that have a word of the lists at the second 100; return their ids."""
    due = 1000 if word in ("scheduled", "retrying") else 0
    keys = ["key:\u00a0ä"] * COUNT if word == "blocked" else None
    ids = bench.publish(*range(COUNT), due=due, concurrency_keys=keys)
    if word in ("running", "expired", "done"):
        held = bench.claim(limit=COUNT, lease=200 if word == "running" else 50)
        if word == "done":
            for job in held:
                bench.ack(job)
    elif word == "retrying":
        bench.jobs.update(attempts=1)
    elif word == "blocked":
        bench.park_all()
    return ids


def test_what_a_worker_gave_back_is_due(bench: Bench) -> None:
    """It is in the list of what is due, and its number, before a claim has unhidden it: there may be no worker."""
    bench.publish(1, 2)
    bench.publish(3, 4, queue="r", task="shop.tasks.welcome")
    for job in bench.claim(limit=2) + bench.claim(limit=2, queues=("r",), raw=False):
        bench.settle(interruption(job, 10, 11))
    bench.publish(5, 6)
    for query, count in (({}, 6), ({"queue_name": "r"}, 2), ({"queue_name": "q"}, 4)):
        found = listed(bench, looked_at=3, limit=1, now=20, word="due", **query)
        assert sorted(found) == sorted({row.pk.hex for row in bench.jobs.filter(**query)})
        assert number_listed(bench, "due", now=20, **query) == (count, False)
    assert len(listed(bench, limit=10, now=10, word="due")) == 2


@pytest.mark.parametrize("word", WORDS)
def test_jobs(bench: Bench, word: str) -> None:
    """Those of each word of a list are read, none twice."""
    ids = stored(bench, word)
    found = listed(bench, word=word)
    assert len(found) == COUNT
    assert sorted(found) == sorted(ids)


def test_dead_letters(bench: Bench) -> None:
    """They are read, none twice."""
    ids = [bench.dead() for _ in range(COUNT)]
    found = listed_letters(bench)
    assert len(found) == COUNT
    assert sorted(found) == sorted(ids)


def test_what_is_published_while_a_page_is_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than may be looked at make the page end, and no error."""
    bench.publish(*range(COUNT - 1), priority=5)
    bench.publish(0, priority=0)
    between_priorities(monkeypatch, lambda: bench.publish("a", "b", priority=5))
    assert first_page(bench, looked_at=COUNT, word="due", text="nothing has this") == ([], True)


@pytest.mark.parametrize("count", [8, 12, 13, 16, 17, 20, 24, 25, 32])
def test_the_end_of_an_id(bench: Bench, count: int) -> None:
    """A row is found by the last digits of its id, or by all of them, with dashes as people see it or without."""
    job_id, other = map(UUID, bench.publish("a", "b"))
    digits = job_id.hex[-count:]
    dashes = str(job_id)[-(count + sum(count > place for place in (12, 16, 20, 24))) :]
    for text in (digits, digits.upper(), dashes):
        assert found_by_end(bench, text) == [[job_id]] * 3
    assert job_id != other


@pytest.mark.parametrize("text", ["", "123", "1234567", "no digits", "2030-12-31", "1" * 33, "…", "-", "12345678-"])
def test_what_is_no_end_of_an_id(text: str) -> None:
    """A few digits, and those with dashes where an id has none, are none."""
    assert not is_end_of_id(text)
