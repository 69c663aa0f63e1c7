"""Steps of durable tasks: two writers of one row, of which neither overwrites the other, and no wake-up is lost."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from django_vtqueue.core import steps
from django_vtqueue.core.clock import LAST, LAST_INSTANT, from_instant
from django_vtqueue.core.job import HeldJob, NewJobs
from django_vtqueue.core.settlement import succeeded, suspended
from django_vtqueue.core.steps import EVENT, GATHER, SLEEP, SNOOZE, Waiting
from django_vtqueue.fields import StoredText
from django_vtqueue.queue.settling import settle
from tests.fake_clock import at

from .bench import Bench, failure

TASK = "shop.tasks.order"
DONE = json.dumps([{"kind": "step", "name": "charge", "value": 1}])


def held(bench: Bench) -> HeldJob:
    """Publish a task's job, and claim it."""
    bench.publish("x", task=TASK)
    return bench.one(raw=False)


def note(bench: Bench, job: HeldJob, event: int | None = None) -> Any:
    return bench.engine.write_steps(job, DONE, at(1), event)


def send(bench: Bench, job_id: str, name: str = "paid", value: Any = 1) -> Any:
    return bench.engine.send_event(name, json.dumps({"name": name, "value": value}), at(2), job_id=job_id)


def wait(bench: Bench, job: HeldJob, kind: str = EVENT, name: str = "paid", until: int = LAST_INSTANT) -> bool:
    """Have a job wait; return whether it was still held."""
    return not bench.settle(suspended(job, Waiting(kind, name, until, at(1))))


def stored(bench: Bench, job_id: str) -> Any:
    return bench.jobs.get(pk=job_id).steps


def due_at(bench: Bench, job_id: str) -> int:
    return bench.found(job_id).due_at


def child(bench: Bench, parent: HeldJob) -> HeldJob:
    new = NewJobs("c", TASK, 0, 3, 60_000_000, at(0), at(0), [(f"{len(bench.jobs.all()):032x}", "{}")])
    new.parent_id = parent.id
    bench.engine.insert_with_keys(new)
    return bench.one(queues=("c",), raw=False)


def wait_for(bench: Bench, parent: HeldJob, children: list[HeldJob]) -> None:
    """Have a parent wait for children: its last step has their ids."""
    done = [{"kind": GATHER, "name": "all", "children": [each.id for each in children]}]
    bench.engine.write_steps(parent, json.dumps(done), at(1))
    wait(bench, parent, GATHER, "all", at(300))


def test_only_the_holder_reads_and_writes(bench: Bench) -> None:
    """After its lease was taken it reads nothing, and what it writes changes nothing."""
    job = held(bench)
    assert bench.engine.steps(job) == (None, None)
    assert note(bench, job) == (len((bench.engine.steps(job) or ("",))[0] or ""), False)
    assert steps.read(bench.engine.steps(job)[0]).done[0]["name"] == "charge"  # type: ignore[index]
    again = bench.one(100, raw=False)
    assert (bench.engine.steps(job), note(bench, job), wait(bench, job)) == (None, None, False)
    assert note(bench, again)


def test_both_write(bench: Bench) -> None:
    """Events that are sent while the holder writes are kept, in their order; it takes out the one that it has read."""
    job = held(bench)
    note(bench, job)
    for value in (1, 2, 3):
        assert send(bench, job.id, value=value)[0] == "q"
    note(bench, job, event=1)
    assert [event["value"] for event in stored(bench, job.id)["events"]] == [1, 3]
    assert stored(bench, job.id)["done"]


def test_waiting(bench: Bench) -> None:
    """It holds nothing, has used no attempt, does not expire, and comes at its time."""
    job = held(bench)
    assert wait(bench, job, SLEEP, "nap", at(50))
    row = bench.jobs.get(pk=job.id)
    assert (row.state, row.attempts, row.start_by, row.worker_id, row.lease_until) == ("READY", 0, None, "", None)
    assert bench.claim(49, raw=False) == []
    assert bench.one(50, raw=False).attempts == 1


def test_an_event_for_one_that_waits(bench: Bench) -> None:
    """It is due at once; another event changes nothing of that."""
    job = held(bench)
    wait(bench, job)
    send(bench, job.id, "other")
    assert due_at(bench, job.id) == LAST_INSTANT
    send(bench, job.id)
    assert due_at(bench, job.id) == at(2)


@pytest.mark.parametrize("kind", [EVENT, GATHER])
def test_a_failure_before_it_takes_what_it_waited_for(bench: Bench, kind: str) -> None:
    """Neither another event nor the end of a child cuts the backoff short; its wait has the end that it had."""
    job = held(bench)
    wait(bench, job, kind, "paid", at(900))
    bench.jobs.update(due_at=from_instant(at(2)))
    assert bench.nack(bench.one(2, raw=False), 3, delay=60)
    send(bench, job.id)
    with bench.engine.transaction():
        bench.engine.wake_parents([job.id], at(5))
    assert due_at(bench, job.id) == at(63)
    assert steps.read(stored(bench, job.id)).waiting == Waiting(kind, "paid", at(900), at(1))


def test_an_event_before_it_waits(bench: Bench) -> None:
    """An event that came while the holder was about to wait is seen by the wait itself."""
    job = held(bench)
    send(bench, job.id)
    assert wait(bench, job)
    assert due_at(bench, job.id) == at(1)


def test_a_wait_for_another_event(bench: Bench) -> None:
    """Events of other names end no wait, nor do events end a sleep."""
    for kind, name in ((EVENT, "other"), (SLEEP, "paid")):
        job = held(bench)
        send(bench, job.id)
        wait(bench, job, kind, name)
        assert due_at(bench, job.id) == LAST_INSTANT


def test_events_to_what_has_ended(bench: Bench) -> None:
    """None is sent to what is done or dead, or is no task's."""
    done, dead = held(bench), held(bench)
    bench.ack(done)
    bench.bury(dead)
    [raw] = bench.publish("x")
    assert [send(bench, job_id) for job_id in (done.id, dead.id, raw, "f" * 32)] == [None] * 4


def test_a_job_that_a_limit_has_moved(bench: Bench) -> None:
    """An event does not give it another place than the limit did."""
    job = held(bench)
    wait(bench, job)
    bench.jobs.update(moved_from=at(1))
    assert send(bench, job.id)
    assert due_at(bench, job.id) == LAST_INSTANT


def test_put_off(bench: Bench) -> None:
    """Nothing is stored of a job that is put off but its new place, and what its steps were is left as it is."""
    job = held(bench)
    wait(bench, job, SNOOZE, "", at(9))
    assert (stored(bench, job.id), due_at(bench, job.id)) == (None, at(9))
    assert wait(bench, bench.one(9, raw=False), SLEEP, "nap", at(20))
    bench.damage("UPDATE vtqueue_job SET steps = 'damaged'")
    assert wait(bench, bench.one(20, raw=False), SNOOZE, "", at(30))


def test_a_cancelled_job_does_not_wait(bench: Bench) -> None:
    """A job that was cancelled does not begin to wait."""
    job = held(bench)
    bench.engine.request_cancel([job.id], at(1), "anna")
    assert note(bench, job).to_suspend
    assert not wait(bench, job)


def test_a_wait_that_was_stored_before(bench: Bench) -> None:
    """One whose commit was not answered is not lost when it is made again, also if an event has come meanwhile."""
    job = held(bench)
    assert wait(bench, job)
    assert wait(bench, job)
    send(bench, job.id)
    assert wait(bench, job)
    assert due_at(bench, job.id) == at(2)


def test_a_wait_that_only_looks_stored(bench: Bench) -> None:
    """That of another attempt with its claim number (a power loss took its claim back), or that was requeued, is lost.

    So is one whose job was put off instead, or to another moment.
    """
    job = held(bench)
    assert wait(bench, job)
    assert not wait(bench, replace(job, started_at=at(0.5)))
    assert not wait(bench, job, SNOOZE, "", at(9))
    job = held(bench)
    assert wait(bench, job, SNOOZE, "", at(9))
    assert not wait(bench, job, SNOOZE, "", at(10))
    job = held(bench)
    bench.bury(job)
    bench.engine.requeue([job.id], at(2))
    assert not wait(bench, job)


def test_steps_survive_death(bench: Bench) -> None:
    """A dead letter keeps them, and so does the job that is made of it."""
    job = held(bench)
    note(bench, job)
    bench.bury(job)
    assert bench.letters.get().steps["done"]
    bench.engine.requeue([job.id], at(5))
    assert stored(bench, job.id)["done"]


@pytest.mark.parametrize("early", [False, True])
def test_the_end_of_the_last_child(bench: Bench, early: bool) -> None:
    """It makes its waiting parent due, however it ends; also if that begins to wait only afterwards."""
    parent = held(bench)
    children = [child(bench, parent) for _ in range(2)]
    if not early:
        wait_for(bench, parent, children)
    with bench.engine.transaction():
        settle(bench.engine, [failure(children[0], 1, None)])
    assert due_at(bench, parent.id) == (at(0) if early else at(300))
    bench.ack(children[1])
    with bench.engine.transaction():
        bench.engine.wake_parents([parent.id], at(7))
    if early:
        wait_for(bench, parent, children)
    assert due_at(bench, parent.id) == at(1 if early else 7)


@pytest.mark.parametrize("early", [False, True])
def test_the_end_of_the_last_child_that_is_waited_for(bench: Bench, early: bool) -> None:
    """It makes its parent due, though one of another step has not ended: that was requeued, say, or is made anew."""
    parent = held(bench)
    _other, waited_for = (child(bench, parent) for _ in range(2))
    if not early:
        wait_for(bench, parent, [waited_for])
        with bench.engine.transaction():
            bench.engine.wake_parents([parent.id], at(6))
        assert due_at(bench, parent.id) == at(300)
    bench.ack(waited_for)
    with bench.engine.transaction():
        bench.engine.wake_parents([parent.id], at(7))
    if early:
        wait_for(bench, parent, [waited_for])
    assert due_at(bench, parent.id) == at(1 if early else 7)


def test_parents_that_do_not_wait_for_children(bench: Bench) -> None:
    """One that sleeps, is damaged, or waits for something else, is not woken by them."""
    parent = held(bench)
    wait(bench, parent, SLEEP, "all", at(300))
    for text in (None, "damaged"):
        if text:
            bench.damage("UPDATE vtqueue_job SET steps = %s", text)
        with bench.engine.transaction():
            bench.engine.wake_parents([parent.id], at(7))
        assert due_at(bench, parent.id) == at(300)


@pytest.mark.parametrize("done", ["{}", "[]", '[{"children": 5}]', '[{"children": [5]}]'])
def test_parents_whose_children_cannot_be_read(bench: Bench, done: str) -> None:
    """The end of a child makes them due, so that they look at once."""
    parent = held(bench)
    last = child(bench, parent)
    wait_for(bench, parent, [last])
    stored = f'{{"done": {done}, "waiting": {{"kind": "gather", "until": {at(300)}}}}}'
    bench.damage("UPDATE vtqueue_job SET steps = %s WHERE parent_id IS NULL", stored)
    bench.ack(last)
    with bench.engine.transaction():
        bench.engine.wake_parents([parent.id], at(7))
    assert due_at(bench, parent.id) == at(7)


WAITING = f'{{"kind": "%s", "name": "paid", "since": 5, "until": {LAST_INSTANT}}}'
DAMAGE = {
    "no JSON": "damaged",
    "NUL": '{"done": [{"value": "\\u0000"}], "waiting": %s}',
    "half a pair": '{"done": [{"value": "\\ud800"}], "waiting": %s}',
    "NUL character": '{"done": [], "waiting": %s}\0}',
    "NUL in a key": '{"\\u0000": [], "waiting": %s}',
    "a list": "[%s]",
    "events": '{"events": ["\\udc00"], "waiting": %s}',
    "an end that is none": '{"waiting": {"kind": "%s", "name": "paid", "since": 5, "until": "soon"}}',
    "a part of a moment": '{"waiting": {"kind": "%s", "name": "paid", "since": 5, "until": 1.5}}',
    "a long number": '{"waiting": {"kind": "%s", "name": "paid", "since": ' + "5" * 5000 + ', "until": null}}',
    "a large number": '{"waiting": {"kind": "%s", "name": "paid", "since": 1e999999, "until": null}}',
}


@pytest.mark.parametrize("kind", [GATHER, EVENT, SLEEP])
@pytest.mark.parametrize("damage", DAMAGE)
def test_steps_edited_by_hand(bench: Bench, damage: str, kind: str) -> None:
    """The database refuses the edit, or it hinders no other job: its children end, lists and events work."""
    parent, other = held(bench), held(bench)
    last = child(bench, parent)
    wait_for(bench, parent, [last])
    wait(bench, other)
    text = DAMAGE[damage]
    if "%" in text:
        text %= kind if "kind" in text else WAITING % kind
    with suppress(DatabaseError), transaction.atomic(using=bench.engine.alias):
        bench.jobs.filter(pk=parent.id).update(steps=StoredText(text), due_at=LAST)
    with bench.engine.transaction():
        assert not settle(bench.engine, [succeeded(last, "null", at(3), None)])
    for row in bench.jobs.annotate(waits=bench.engine.waits()):
        assert row.waits is None or steps.said_to_wait(row.waits) is not None or row.pk.hex == parent.id
    send(bench, parent.id)
    assert send(bench, other.id)
    assert due_at(bench, other.id) == at(2)
