"""What is moved arrives as it was, in every column, and once."""

from datetime import UTC, datetime
from typing import Any

from django_vtqueue.core import clock
from django_vtqueue.core.ids import new_uuid
from django_vtqueue.fields import StoredText
from django_vtqueue.models import HourlyThroughput, QueueState, Rate, Requeue, Schedule, Throughput
from django_vtqueue.moving.move import Move

from .conftest import MODELS, Pair, stored
from .rows import HAS_ENDED, HOUR_AGO, job, letter

NOTHING: dict[str, list[Any]] = {model.__name__: [] for model in MODELS if model is not Schedule}


def fill(alias: str) -> None:
    """Store a row of each kind, and of each state that a job may have without being held."""
    job(alias, payload=StoredText('{"args": [1.50, "\\u0000 ä \\ud800"],  "kwargs": {}}'), progress=0.1)
    job(alias, payload=StoredText("no JSON"), history=StoredText('[{"a":  1}]'), claims=2**53, attempts=2)
    job(alias, unique_key="order:7", unique_until="start", kept_until=None, rate_key="api", priority=-100)
    job(alias, concurrency_key="tenant:9", ordered=True, state="BLOCKED", wake_at=clock.LAST)
    booked: Any = {"moved_from": HOUR_AGO, "wake_at": clock.now() + 10**12, "start_by": clock.now() + 10**12}
    job(alias, rate_key="api", state="SCHEDULED", **booked)
    job(alias, task_path="", payload=[1, {"a": None}], state="RUNNING", lease_until=clock.now() + 10**12)  # given back
    job(
        alias,
        earlier_steps=[{"kind": "step", "name": "0"}],
        steps={"done": [{"kind": "step", "name": "a", "value": 1}]},
        copies={"3": ["w", 1, 2, 2]},
    )
    job(alias, **HAS_ENDED, result={"x": [1]}, started_at=HOUR_AGO + 2, kept_until=clock.now() + 10**12, claims=1)
    waits: Any = {"state": "WAITING", "wake_at": datetime(2999, 1, 1, tzinfo=UTC)}
    parent = job(alias, **waits, cancelled_at=HOUR_AGO, cancelled_by="anna")
    job(alias, **HAS_ENDED, parent_id=parent.pk, progress_text="half")
    letter(alias, parent_id=parent.pk, note="seen", reviewed_at=HOUR_AGO, reviewed_by="bob")
    letter(alias, history=StoredText("[1, 2,3]"), steps={}, message="Boom", claims=4, kept_until=clock.now() + 10**12)
    QueueState(queue_name="emails", paused_at=HOUR_AGO, paused_by="anna", reason="SMTP").save(using=alias)
    Requeue(
        criteria="{}", queue_name="emails", state="done", created_at=HOUR_AGO, ended_at=HOUR_AGO, last_id=new_uuid()
    ).save(using=alias)
    for name, declared in (("made", False), ("nightly", True)):
        Schedule(
            name=name, task_path="t.t", expression="0 3 * * *", declared=declared, next_at=clock.now() + 10**12,
            last_at=HOUR_AGO, overlap=False, recent=[{"id": "a"}],
        ).save(using=alias)  # fmt: skip
    Rate(key="api", next_at=clock.now(), interval_us=5).save(using=alias)
    for model in (Throughput, HourlyThroughput):
        counts = {"succeeded": 3, "run_times": '{"1":2}', "depth": 4}
        model(starts_at=HOUR_AGO, queue_name="emails", task_path="t.t", worker_id="w", **counts).save(using=alias)


def test_every_column_arrives(pair: Pair) -> None:
    """Each row of each table is the same on the other side, to the byte, and no more in the source; so on the way back.

    Of a schedule that code declares a paused row stays, which is no schedule of the source any more.
    """
    fill(pair.source)
    before = stored(pair.source)
    assert all(before.values())
    for source, target in (pair, pair.back, pair):
        move = Move(source, target)
        move.go()
        left = stored(source)
        [schedule] = left.pop("Schedule")
        assert (schedule["name"], schedule["paused_by"]) == ("nightly", f"vtqueue move to {target}")
        assert left == NOTHING
        assert stored(target) == before
        assert move.refusals == {}
