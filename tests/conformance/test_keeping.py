"""What is kept, for how long, and what is deleted."""

import json
from typing import Any

import pytest

from tests.fake_clock import at

from .bench import DAY, Bench, Boom, StoredText, failure, success

# What JSON can hold and databases are said to stumble over.
NASTY: list[Any] = [
    None, True, False, 0, -1, 2**63, 10**30, 1.5, 1e-300, -0.0, "", " ", "x" * 100_000,
    "'; DROP TABLE vtqueue_job; --", '"\\', "%s %(now)s :now ?", "\0", "a\0b", "\ud800", "\N{SNOWMAN}\U0001f600",
    "\r\n\u2028", [], {}, [[[]]], {"": ""}, {"a": {"b": [1, {"c": None}]}}, {"$[0]": "$.x"}, list(range(1000)),
]  # fmt: skip


def test_what_goes_in_comes_out(bench: Bench) -> None:
    """Payloads and results are the same JSON text before and after, one by one and many at once."""

    single = [bench.publish(value)[0] for value in NASTY]
    many = bench.publish(*NASTY)
    assert [json.loads(bench.found(job_id).payload) for job_id in single] == NASTY
    assert [json.loads(bench.found(job_id).payload) for job_id in many] == NASTY
    jobs = bench.claim()
    assert [json.loads(job.payload) for job in jobs] == NASTY + NASTY
    assert bench.settle(*(success(job, job.payload) for job in jobs)) == set()
    assert [json.loads(bench.found(job_id).result or "") for job_id in single] == NASTY


@pytest.mark.parametrize("text", ["\0", "a\0b", "\ud800", "'\"\\", "\N{SNOWMAN}", "x" * 3000], ids=ascii)
def test_any_words_of_an_exception_can_be_stored(bench: Bench, text: str) -> None:
    """An exception's words go into the history and the dead letter, whatever characters are in them."""
    [retried, dead] = bench.publish("a", "b")
    jobs = zip(bench.claim(), [0, None], strict=True)
    assert bench.settle(*(failure(job, 1, delay, Boom, text) for job, delay in jobs)) == set()
    assert [bench.outcomes(job_id) for job_id in (retried, dead)] == [["failed"], ["failed"]]
    letter = bench.letters.get()
    assert letter.exception_class == f"{Boom.__module__}.{Boom.__qualname__}"
    assert letter.message
    assert len(letter.message) <= 255


def test_many_jobs_go_in_together_in_order(bench: Bench) -> None:
    """Publishing more than one statement takes is one transaction all the same, and keeps its order."""
    ids = bench.publish(*range(12_000))
    assert bench.unfinished("q") == 12_000
    assert [job.id for job in bench.claim(limit=5001)] == ids[:5001]
    assert bench.purge("q", 1) == 12_000 - 5001
    assert bench.unfinished("q") == 5001


# -- history ----------------------------------------------------------------------------------------------------------


def test_history_goes_on_after_a_requeue(bench: Bench) -> None:
    """A letter's past is the past of the job it becomes again; the numbers of its attempts go on.

    The name of the person that requeued it, and the time, stand between them; it is no attempt.
    """
    [job_id] = bench.publish("x", max_attempts=2)
    for life in range(3):
        for attempt in range(2):
            bench.nack(bench.one(now=10 * life + attempt), now=10 * life + attempt)
        assert bench.requeue(job_id, now=10 * life + 5, by="anna") == {job_id}
    entries = bench.past(job_id)
    assert [entry.get("number") for entry in entries] == [1, 2, 0, 3, 4, 0, 5, 6, 0]
    assert entries[2] == {"number": 0, "worker": "anna", "ended": at(5), "outcome": "requeued"}
    assert [entry["worker"] for entry in entries if entry["number"]] == ["w1"] * 6


def test_requeues_keep_the_caps_of_the_history(bench: Bench) -> None:
    """However often a job dies and is requeued, what is left out of its history counts its attempts alone."""
    [job_id] = bench.publish("x", max_attempts=1)
    for life in range(40):
        bench.nack(bench.one(now=10 * life), now=10 * life)
        assert bench.requeue(job_id, now=10 * life + 5) == {job_id}
    entries = bench.past(job_id)
    assert len(entries) == 50 + 1 + 1  # what stands for the others; the last requeue goes with the next attempt
    assert sum(entry.get("omitted", 1) for entry in entries if entry.get("number") != 0) == 40


def test_history_that_somebody_damaged_does_not_stop_a_job(bench: Bench) -> None:
    """An unreadable history is shown as one entry and added to; the job goes on."""
    [job_id] = bench.publish("x")
    bench.jobs.update(history=StoredText("{not json"))
    bench.nack(bench.one(now=0), now=1)
    assert bench.outcomes(job_id) == ["unreadable", "failed"]
    assert bench.one(now=2).attempts == 2


# -- results and letters ----------------------------------------------------------------------------------------------


def test_result_ttl_0_removes_the_row(bench: Bench) -> None:
    """On success the row goes at once, and only that row."""
    [gone, kept] = bench.publish("a", "b")
    jobs = bench.claim()
    assert bench.settle(success(jobs[0], "1", 5, ttl=0), success(jobs[1], "2", 5, ttl=1)) == set()
    assert bench.find(gone) is None
    assert bench.found(kept).result == "2"


def test_result_ttl_0_removes_nothing_of_a_late_holder(bench: Bench) -> None:
    """A refused acknowledgement does not delete what another holds."""
    [job_id] = bench.publish("x")
    late = bench.one(now=0)
    bench.one(now=60)
    assert not bench.ack(late, now=61, ttl=0)
    assert bench.found(job_id).state == "RUNNING"


def test_prune_deletes_what_was_kept_for_long_enough(bench: Bench) -> None:
    """Finished jobs and dead letters, each from the end of its time on; None is for ever."""
    [day, ever] = bench.publish("day", "ever")
    jobs = bench.claim()
    bench.ack(jobs[0], now=0, ttl=DAY)
    bench.ack(jobs[1], now=0, ttl=None)
    letters = [bench.dead(), bench.dead()]
    bench.letters.filter(pk=letters[0]).update(kept_until=at(DAY))

    assert bench.prune(DAY - 1e-6, 10) == 0
    assert bench.prune(DAY, 10) == 2
    assert bench.prune(100 * DAY, 10) == 0
    assert [bench.find(job_id) is None for job_id in (day, ever, *letters)] == [True, False, True, False]


def test_prune_works_in_slices(bench: Bench) -> None:
    """Never more than ``limit`` of each table at a time, the longest kept first."""
    ids = bench.publish(*range(5))
    for number, job in enumerate(reversed(bench.claim())):
        bench.ack(job, now=number, ttl=1)
    assert bench.prune(100, 2) == 2
    assert [job_id for job_id in ids if bench.find(job_id)] == ids[:3]
    assert bench.prune(100, 2) == 2
    assert bench.prune(100, 2) == 1


def test_prune_never_touches_the_unfinished(bench: Bench) -> None:
    """A job that still has to run is not deleted, whatever stands in its row; nor one that was requeued."""
    [waiting] = bench.publish("x")
    bench.jobs.update(kept_until=at(1))
    requeued = bench.dead(queue="other")
    bench.letters.update(kept_until=at(1))
    assert bench.requeue(requeued, now=2) == {requeued}
    assert bench.prune(1000, 10) == 0
    assert [bench.found(job_id).state for job_id in (waiting, requeued)] == ["READY", "READY"]


def test_purge_deletes_what_is_not_held(bench: Bench) -> None:
    """Due, scheduled, retried and expired jobs of one queue go; held and finished ones, letters and others stay."""
    dead = bench.dead()
    [done, held, expired, retried] = [
        *bench.publish("done", "held"),
        *bench.publish("expired", lease=5),
        *bench.publish("retried"),
    ]
    jobs = {job.id: job for job in bench.claim(now=0)}
    bench.ack(jobs[done], now=1)
    bench.nack(jobs[retried], now=1, delay=500)
    gone = [expired, retried, *bench.publish("due"), *bench.publish("scheduled", due=900)]
    stay = [dead, done, held, *bench.publish("other", queue="other")]
    assert bench.purge("q", 10) == 4
    assert [bench.find(job_id) for job_id in gone] == [None] * 4
    assert all(bench.find(job_id) for job_id in stay)
    assert bench.purge("q", 10) == 0
    assert bench.ack(jobs[held], now=11)
