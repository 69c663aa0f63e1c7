"""Steps of durable tasks: two writers of one row, of which neither overwrites the other, and no wake-up is lost."""

from contextlib import suppress
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from tests.fake_clock import at

from .bench import (
    EVENT,
    GATHER,
    SLEEP,
    SNOOZE,
    WITHOUT_END,
    Bench,
    Held,
    StoredText,
    altered,
    failure,
    made_steps,
    moment,
    success,
    suspension,
    waits_for,
)

TASK = "shop.tasks.order"
DONE = [{"kind": "step", "name": "charge", "value": 1}]


def held(bench: Bench) -> Held:
    """Publish a task's job, and claim it."""
    bench.publish("x", task=TASK)
    return bench.one(raw=False)


def note(bench: Bench, job: Held, event: int | None = None) -> Any:
    return bench.note_steps(job, DONE, event)


def send(bench: Bench, job_id: str, name: str = "paid", value: Any = 1) -> Any:
    return bench.send_event(job_id, name, value, now=2)


def wait(bench: Bench, job: Held, kind: str = EVENT, name: str = "paid", until: float | None = None) -> bool:
    """Have a job wait; return whether it was still held."""
    return not bench.settle(suspension(job, kind, name, until, now=1))


def stored(bench: Bench, job_id: str) -> Any:
    return bench.jobs.get(pk=job_id).steps


def child(bench: Bench, parent: Held) -> Held:
    bench.publish("c", queue="c", task=TASK, parent=parent.id, ids=[f"{len(bench.jobs.all()):032x}"])
    return bench.one(queues=("c",), raw=False)


def wait_for(bench: Bench, parent: Held, children: list[Held]) -> None:
    """Have a parent wait for children: its last step has their ids."""
    bench.note_steps(parent, [{"kind": GATHER, "name": "all", "children": [each.id for each in children]}])
    wait(bench, parent, GATHER, "all", 300)


def test_only_the_holder_reads_and_writes(bench: Bench) -> None:
    """After its lease was taken it reads nothing, and what it writes changes nothing."""
    job = held(bench)
    assert bench.steps(job) == (None, None)
    assert note(bench, job) == (len((bench.steps(job) or ("",))[0] or ""), False)
    assert made_steps(*bench.steps(job)) == ["charge"]
    again = bench.one(100, raw=False)
    assert (bench.steps(job), note(bench, job), wait(bench, job)) == (None, None, False)
    assert note(bench, again)


def test_both_write(bench: Bench) -> None:
    """Events that are sent while the holder writes are kept, in their order; it takes out the one that it has read."""
    job = held(bench)
    note(bench, job)
    for value in (1, 2, 3):
        assert send(bench, job.id, value=value) == "q"
    note(bench, job, event=1)
    assert [event["value"] for event in stored(bench, job.id)["events"]] == [1, 3]
    assert stored(bench, job.id)["done"]


def test_waiting(bench: Bench) -> None:
    """It holds nothing, has used no attempt, does not expire, and comes at its time."""
    job = held(bench)
    assert wait(bench, job, SLEEP, "nap", 50)
    row = bench.jobs.get(pk=job.id)
    assert (row.state, row.attempts, row.start_by, row.worker_id, row.lease_until) == ("WAITING", 0, None, "", None)
    assert bench.claim(49, raw=False) == []
    assert bench.one(50, raw=False).attempts == 1


def test_an_event_for_one_that_waits(bench: Bench) -> None:
    """It is due at once; another event changes nothing of that."""
    job = held(bench)
    wait(bench, job)
    send(bench, job.id, "other")
    assert bench.due_at(job.id) is None
    send(bench, job.id)
    assert bench.due_at(job.id) == 2


@pytest.mark.parametrize("kind", [EVENT, GATHER])
def test_a_failure_before_it_takes_what_it_waited_for(bench: Bench, kind: str) -> None:
    """Neither another event nor the end of a child cuts the backoff short; its wait has the end that it had."""
    job = held(bench)
    wait(bench, job, kind, "paid", 900)
    bench.jobs.update(state="WAITING", due_at=moment(2), wake_at=moment(2))
    assert bench.nack(bench.one(2, raw=False), 3, delay=60)
    send(bench, job.id)
    bench.wake_parents(job.id, now=5)
    assert bench.due_at(job.id) == 63
    assert waits_for(stored(bench, job.id)) == (kind, "paid", 900, 1)


def test_an_event_before_it_waits(bench: Bench) -> None:
    """An event that came while the holder was about to wait is seen by the wait itself."""
    job = held(bench)
    send(bench, job.id)
    assert wait(bench, job)
    assert bench.due_at(job.id) == 1


def test_a_wait_for_another_event(bench: Bench) -> None:
    """Events of other names end no wait, nor do events end a sleep."""
    for kind, name in ((EVENT, "other"), (SLEEP, "paid")):
        job = held(bench)
        send(bench, job.id)
        wait(bench, job, kind, name)
        assert bench.due_at(job.id) is None


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
    bench.park_all()
    assert send(bench, job.id)
    assert bench.due_at(job.id) is None


def test_put_off(bench: Bench) -> None:
    """Nothing is stored of a job that is put off but its new place, and what its steps were is left as it is."""
    job = held(bench)
    wait(bench, job, SNOOZE, "", 9)
    assert (stored(bench, job.id), bench.due_at(job.id)) == (None, 9)
    assert wait(bench, bench.one(9, raw=False), SLEEP, "nap", 20)
    bench.damage("UPDATE vtqueue_job SET steps = 'damaged'")
    assert wait(bench, bench.one(20, raw=False), SNOOZE, "", 30)


def test_a_cancelled_job_does_not_wait(bench: Bench) -> None:
    """A job that was cancelled does not begin to wait."""
    job = held(bench)
    bench.ask_to_stop(job.id, 1)
    assert note(bench, job)[1]  # it is to give its slot back
    assert wait(bench, job)
    assert (bench.found(job.id).state, bench.outcomes(job.id)) == ("FAILED", ["cancelled"])


def test_a_wait_that_was_stored_before(bench: Bench) -> None:
    """One whose commit was not answered is not lost when it is made again, also if an event has come meanwhile."""
    job = held(bench)
    assert wait(bench, job)
    assert wait(bench, job)
    send(bench, job.id)
    assert wait(bench, job)
    assert bench.due_at(job.id) == 2


def test_a_wait_that_only_looks_stored(bench: Bench) -> None:
    """That of another attempt with its claim number (a power loss took its claim back), or that was requeued, is lost.

    So is one whose job was put off instead, or to another moment.
    """
    job = held(bench)
    assert wait(bench, job)
    assert not wait(bench, altered(job, started_at=at(0.5)))
    assert not wait(bench, job, SNOOZE, "", 9)
    job = held(bench)
    assert wait(bench, job, SNOOZE, "", 9)
    assert not wait(bench, job, SNOOZE, "", 10)
    job = held(bench)
    bench.bury(job)
    bench.requeue(job.id, now=2)
    assert not wait(bench, job)


def test_steps_survive_death(bench: Bench) -> None:
    """A dead letter keeps them, and so does the job that is made of it."""
    job = held(bench)
    note(bench, job)
    bench.bury(job)
    assert bench.letters.get().steps["done"]
    bench.requeue(job.id, now=5)
    assert stored(bench, job.id)["done"]


@pytest.mark.parametrize("early", [False, True])
def test_the_end_of_the_last_child(bench: Bench, early: bool) -> None:
    """It makes its waiting parent due, however it ends; also if that begins to wait only afterwards."""
    parent = held(bench)
    children = [child(bench, parent) for _ in range(2)]
    if not early:
        wait_for(bench, parent, children)
    bench.settle(failure(children[0], 1, None))
    assert bench.due_at(parent.id) == (0 if early else 300)
    bench.clock_at(7)
    bench.ack(children[1])
    if early:
        wait_for(bench, parent, children)
    assert bench.due_at(parent.id) == 1 if early else 7


@pytest.mark.parametrize("early", [False, True])
def test_the_end_of_the_last_child_that_is_waited_for(bench: Bench, early: bool) -> None:
    """It makes its parent due, though one of another step has not ended: that was requeued, say, or is made anew."""
    parent = held(bench)
    _other, waited_for = (child(bench, parent) for _ in range(2))
    if not early:
        wait_for(bench, parent, [waited_for])
        bench.wake_parents(parent.id, now=6)
        assert bench.due_at(parent.id) == 300
    bench.clock_at(7)
    bench.ack(waited_for)
    if early:
        wait_for(bench, parent, [waited_for])
    assert bench.due_at(parent.id) == 1 if early else 7


def test_parents_that_do_not_wait_for_children(bench: Bench) -> None:
    """One that sleeps, is damaged, or waits for something else, is not woken by them."""
    parent = held(bench)
    wait(bench, parent, SLEEP, "all", 300)
    for text in (None, "damaged"):
        if text:
            bench.damage("UPDATE vtqueue_job SET steps = %s", text)
        bench.wake_parents(parent.id, now=7)
        assert bench.due_at(parent.id) == 300


@pytest.mark.parametrize("done", ["{}", "[]", '[{"children": 5}]', '[{"children": [5]}]'])
def test_parents_whose_children_cannot_be_read(bench: Bench, done: str) -> None:
    """The end of a child makes them due, so that they look at once."""
    parent = held(bench)
    last = child(bench, parent)
    wait_for(bench, parent, [last])
    stored = f'{{"done": {done}, "waiting": {{"kind": "gather", "until": {at(300)}}}}}'
    bench.damage("UPDATE vtqueue_job SET steps = %s WHERE parent_id IS NULL", stored)
    bench.clock_at(7)
    bench.ack(last)
    assert bench.due_at(parent.id) == 7


YEAR_9999 = 253_402_300_799_999_999  # the last microsecond of it
WAITING = f'{{"kind": "%s", "name": "paid", "since": 5, "until": {YEAR_9999}}}'
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
    with suppress(DatabaseError), transaction.atomic(using=bench.alias):
        bench.jobs.filter(pk=parent.id).update(steps=StoredText(text), due_at=WITHOUT_END, wake_at=WITHOUT_END)
    assert not bench.settle(success(last, now=3))
    for job_id, is_readable in bench.all_that_wait().items():
        assert is_readable or job_id == parent.id
    send(bench, parent.id)
    assert send(bench, other.id)
    assert bench.due_at(other.id) == 2
