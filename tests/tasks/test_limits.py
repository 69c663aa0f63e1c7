"""``@task(concurrency=…, order_key=…, rate=…)``, ``queue_options`` and ``publish(concurrency_key=…)``: what is said
where, what is refused, and that it holds for every way of running jobs.
"""

import threading
from typing import Any

import pytest
from pytest_django import Settings

from django_vtqueue import Queue, control, task
from django_vtqueue.conf import parse
from django_vtqueue.core.unique import checked_key
from django_vtqueue.models import Job
from django_vtqueue.tasks.compat import InvalidTask, task_backends
from tests.pending import run_pending

pytestmark = pytest.mark.django_db

any_task: Any = task


def function(tenant_id: int, host: str = "example.com") -> str:
    return f"{tenant_id} {host}"


@task(concurrency=2)
def two(number: int) -> int:
    return number


@task(concurrency=1, concurrency_key="tenant:{tenant_id}", rate="10/s", rate_key="api:{host}")
def of_tenant(tenant_id: int, host: str = "example.com") -> int:
    return tenant_id


@task(order_key="customer:{customer}")
def in_order(customer: int, number: int) -> int:
    return number


def configure(settings: Settings, **queues: dict[str, Any]) -> None:
    settings.TASKS = {
        "default": {
            "BACKEND": "django_vtqueue.backend.VTQueueBackend",
            "QUEUES": [],
            "OPTIONS": {"queue_options": queues, "task_modules": [__name__]},
        }
    }


# -- what is said -----------------------------------------------------------------------------------------------------


def test_keys_are_stored() -> None:
    """A format is formed of the call; without one the key is the path of the task."""
    two.enqueue(1)
    of_tenant.enqueue(9)
    of_tenant.enqueue(8, host="b")
    in_order.enqueue(7, 1)
    assert list(Job.objects.order_by("pk").values_list("concurrency_key", "rate_key")) == [
        ("tests.tasks.test_limits.two", None),
        ("tenant:9", "api:example.com"),
        ("tenant:8", "api:b"),
        ("customer:7", None),
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"concurrency": 0}, "concurrency is 0, but must be a whole number, 1 or more"),
        ({"concurrency": None}, "concurrency is None, but must be"),
        ({"concurrency_key": "a"}, "concurrency_key without concurrency: give that too"),
        ({"rate_key": "a", "burst": 2}, "burst and rate_key without rate"),
        (
            {"concurrency": 1, "concurrency_key": "{tenant}"},
            r"concurrency_key is '{tenant}', which has {tenant}; allowed",
        ),
        ({"order_key": "a", "concurrency": 1}, "order_key and concurrency: jobs in order run one at a time"),
        ({"order_key": "{"}, "order_key is '{', which is no format"),
        ({"rate": "100"}, "rate is '100', but must be a number a second, minute, hour or day, such as '10/s'"),
        ({"rate": "0/s"}, "rate is '0/s'"),
        ({"rate": 5}, "rate is 5"),
        ({"rate": "1/m", "burst": 0}, "burst is 0"),
    ],
    ids=str,
)
def test_what_is_refused(options: dict[str, Any], words: str) -> None:
    """Where the task is defined, with what was found and what is allowed."""
    with pytest.raises(ValueError, match=words):
        any_task(**options)(function)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"concurrency": "5"}, "concurrency is '5', but must be a whole number, 1 or more"),
        ({"rate": "fast"}, "rate is 'fast', but must be a number a second"),
        ({"burst": 5}, "has burst without rate"),
        ({"overflow": True, "concurrency": 5}, "overflow has several workers run one job, so it does not go together"),
        ({"overflow": True, "rate": "1/s"}, "overflow has several workers run one job"),
    ],
    ids=str,
)
def test_settings_that_are_refused(options: dict[str, Any], words: str) -> None:
    """By the check, and when they are first needed."""
    with pytest.raises(ValueError, match=words):
        parse({"OPTIONS": {"queue_options": {"emails": options}}})


def test_limits_belong_to_a_queue() -> None:
    """There is no limit for all queues together, nor one for each of them."""
    with pytest.raises(ValueError, match="has no option 'concurrency': say it of single queues, in queue_options"):
        parse({"OPTIONS": {"concurrency": 5}})


def test_a_limited_task_in_a_queue_with_overflow(settings: Settings) -> None:
    """The check finds it, and so does the enqueue: several workers would run one of its jobs."""
    words = "two has concurrency, but its queue 'wide' has overflow"
    configure(settings, wide={"overflow": True})
    with pytest.raises(InvalidTask, match=words):
        two.using(queue_name="wide").enqueue(1)
    configure(settings, default={"overflow": True})
    found = [message for message in task_backends["default"].check() if message.id == "vtqueue.E011"]
    assert [message.msg.partition(" has")[0].rpartition(".")[2] for message in found] == [
        "two",
        "of_tenant",
        "in_order",
    ]
    assert words.replace("wide", "default") in found[0].msg


@pytest.mark.parametrize("key", ["", "a" * 256, "\0", 7])
def test_keys_that_no_job_can_have(settings: Settings, key: Any) -> None:
    """The error says which key it is; nothing is stored."""
    configure(settings, emails={"concurrency": 1})
    queue = Queue("emails")
    with pytest.raises((TypeError, ValueError), match="A concurrency key"):
        queue.publish({}, concurrency_key=key)
    with pytest.raises(ValueError, match="concurrency_key has 1 keys for 2 payloads"):
        queue.publish_many([1, 2], concurrency_key=["a"])
    with pytest.raises(TypeError, match="concurrency_key is 'ab', but must be a callable, or a list"):
        queue.publish_many([1, 2], concurrency_key="ab")
    assert len(queue) == 0


# -- how it holds -----------------------------------------------------------------------------------------------------


def test_claims_of_payloads(settings: Settings) -> None:
    """``claim_many`` never holds more than the queue's concurrency, of each key and of all without one."""
    configure(settings, emails={"concurrency": 2})
    queue = Queue("emails")
    queue.publish_many([1, 2, 3])
    queue.publish_many(["a", "b", "c"], concurrency_key=lambda payload: "tenant:9")
    jobs = queue.claim_many(10)
    assert [job.payload for job in jobs] == [1, 2, "a", "b"]
    assert queue.claim() is None
    jobs[2].ack()
    jobs[3].nack(delay=60)
    assert [job.payload for job in queue.claim_many(10)] == ["c"]
    jobs[0].release()
    assert [job.payload for job in queue.claim_many(10)] == [1]


@pytest.mark.parametrize("how", ["nothing", "settings", "deleted"])
def test_parked_payloads_without_a_worker(settings: Settings, how: str) -> None:
    """Claims look once a second at what is parked: after a limit was removed, or a holder's row deleted."""
    configure(settings, emails={"concurrency": 1})
    queue = Queue("emails")
    queue.publish_many([1, 2, 3], concurrency_key=lambda payload: "k")
    [job] = queue.claim_many(3)
    assert Job.objects.filter(state="BLOCKED").count() == 2
    if how == "settings":
        configure(settings)
    elif how == "deleted":
        Job.objects.filter(pk=job.id).delete()
    queue = Queue("emails")
    expected = {"nothing": [], "settings": [2, 3], "deleted": [2]}[how]
    assert [job.payload for job in queue.claim_many(10)] == expected


def test_run(settings: Settings) -> None:
    """``Queue.run`` takes what it gives back itself, to the end."""
    configure(settings, emails={"concurrency": 1})
    queue, stop, seen = Queue("emails"), threading.Event(), []

    def handle(job: Any) -> None:
        seen.append(job.payload)
        assert Job.objects.filter(state="RUNNING").count() == 1
        if len(seen) == 6:
            stop.set()

    queue.publish_many([1, 2, 3], concurrency_key=lambda payload: "k")
    queue.publish_many([4, 5, 6])
    queue.run(handle, stop=stop)
    assert sorted(seen) == [1, 2, 3, 4, 5, 6]
    assert len(queue) == 0


def test_run_pending(settings: Settings) -> None:
    """Inline runs do all of it: nothing is left behind, and an order is kept."""
    configure(settings, narrow={"concurrency": 1})
    for number in range(3):
        two.enqueue(number)
        two.using(queue_name="narrow").enqueue(10 + number)
        in_order.using(priority=number).enqueue(1, 20 + number)
    results = [result.return_value for result in run_pending()]
    assert sorted(results) == [0, 1, 2, 10, 11, 12, 20, 21, 22]
    assert [result for result in results if result >= 20] == [20, 21, 22]


@pytest.mark.parametrize("how", ["purge", "delete", "cancel", "move", "replace"])
def test_parked_jobs_are_jobs(settings: Settings, how: str) -> None:
    """They can be purged, deleted, cancelled, moved and replaced as any job that waits."""
    configure(settings, emails={"concurrency": 1})
    queue = Queue("emails")
    queue.publish("holder", concurrency_key="k")
    parked = queue.publish("parked", concurrency_key="k", unique_key="u")
    [job] = queue.claim_many(2)
    assert Job.objects.get(pk=parked).state == "BLOCKED"
    if how == "purge":
        assert queue.purge() == 1
    elif how == "delete":
        assert control.discard(parked) == [parked]
    elif how == "cancel":
        assert control.cancel(parked) == [parked]
    elif how == "move":
        assert control.move(parked, "other") == [parked]
        job.ack()
        assert [job.payload for job in Queue("other").claim_many(2)] == ["parked"]
    else:
        assert queue.publish("new", unique_key="u", on_duplicate="replace", concurrency_key="l") == parked
        assert [job.payload for job in queue.claim_many(2)] == ["new"]
    assert queue.claim() is None


def test_an_order_key_that_is_empty() -> None:
    """A key that no job can have is an error of the call that says what a key is."""
    with pytest.raises(ValueError, match="An order key has 1 to 255 characters"):
        checked_key("", "order key")
    with pytest.raises(TypeError, match="A unique key is a text"):
        checked_key(5)
