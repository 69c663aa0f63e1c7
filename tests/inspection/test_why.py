"""One sentence on each job: why it is not running, or what became of it."""

import io
import json
import re
import sys
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from django_vtqueue import Queue
from django_vtqueue.core.clock import from_instant
from django_vtqueue.core.humanize import time_of
from django_vtqueue.core.job import Scope
from django_vtqueue.core.settlement import snoozed
from django_vtqueue.engines import engine_for
from django_vtqueue.inspection.lists import ListQuery, count_jobs, list_jobs
from django_vtqueue.models import DeadLetter, Job, WorkerProcess
from django_vtqueue.queue.claims import Claims
from django_vtqueue.queue.pauses import pause
from django_vtqueue.queue.settling import settle
from django_vtqueue.queue.workers import serves
from django_vtqueue.tasks.compat import task_backends
from django_vtqueue.tasks.lookup import found_tasks
from tests import project
from tests.fake_clock import FakeClock
from tests.project import limited, tasks

pytestmark = pytest.mark.django_db


def said(job_id: UUID | str) -> str:
    """Return what ``vtqueue why`` says, without the name of the job."""
    out = io.StringIO()
    call_command("vtqueue", "why", str(job_id), stdout=out)
    [line] = out.getvalue().splitlines()
    return line.partition(": ")[2]


def worker(time: FakeClock, pid: int = 4711, **values: Any) -> WorkerProcess:
    now = from_instant(time.instant)
    values = {"host": "web1", "slots": 1, "started_at": now, "heartbeat_at": now} | values
    return WorkerProcess.objects.create(worker_id=f"web1:{pid}:abc", pid=pid, **values)


def held_by(row: WorkerProcess, job_id: str, **values: Any) -> None:
    held = {"attempts": 1, "started_at": row.heartbeat_at} | values
    job = Job.objects.get(pk=job_id)
    held = {"lease_until": job.lease_until or row.heartbeat_at} | held
    Job.objects.filter(pk=job_id).update(state="RUNNING", worker_id=row.pk, **held)


def test_due_without_a_worker(time: FakeClock) -> None:
    """A job that nobody takes, because nobody is there: how to start somebody."""
    result = tasks.add.enqueue(1, 2)
    time.advance(240)
    assert said(result.id) == "due for 4 min; no worker is alive; start one: python manage.py vtworker"


def test_due_in_a_queue_that_nobody_serves(time: FakeClock) -> None:
    """A job that nobody takes, because all who are there serve others."""
    result = tasks.add.using(queue_name="emails").enqueue(1, 2)
    worker(time, queues="default,other")
    worker(time, 4712, heartbeat_at=from_instant(time.instant - 60_000_000))  # it would, but it is gone
    assert said(result.id).endswith("; no live worker serves 'emails' (web1:4711 serves default, other)")


@pytest.mark.parametrize(
    ("name", "taken"), [("a", True), ("b,c", True), ("d", True), ("c", True), ("b,", False), ("x", False)]
)
def test_who_serves_a_queue(name: str, taken: bool) -> None:
    """Whoever has its name among those that he serves, or serves all, whatever characters it has."""
    assert serves(WorkerProcess(queues="a,b,c,d"), name) == taken
    assert serves(WorkerProcess(queues=""), name)


def test_due_while_all_slots_are_in_use(time: FakeClock) -> None:
    """A job that waits for a slot, and one that is the next."""
    result, other = tasks.add.enqueue(1, 2), tasks.add.enqueue(1, 2)
    row = worker(time)
    assert said(result.id).endswith("; next for a free slot of web1:4711")
    held_by(row, other.id, lease_until=from_instant(time.instant + 1))
    assert said(result.id).endswith("; all slots are in use of web1:4711")


def test_run_by_several(time: FakeClock) -> None:
    """Who runs a copy of it, and for how long; and who could take one more once its visibility timeout is over."""
    result, [first, second] = tasks.add.enqueue(1, 2), [worker(time, pid) for pid in (4711, 4712)]
    runs = {"1": [first.pk, time.instant - 9_000_000, time.instant], "2": [second.pk, time.instant, time.instant]}
    held_by(second, result.id, copies=runs, lease_until=from_instant(time.instant + 1))
    sentence = "run by web1:4711 (9 s), web1:4712 (0 ms); the first to finish settles it"
    assert said(result.id) == sentence
    time.advance(1)
    worker(time, 4713)
    assert said(result.id) == sentence.replace("9 s", "10 s").replace("0 ms", "1 s") + "; next for a free slot of " + (
        "web1:4711, web1:4713"
    )


def test_due_while_workers_are_quiet(time: FakeClock) -> None:
    """A worker that was asked to claim nothing is no hope for a job; where there is another, that one is named."""
    result = tasks.add.enqueue(1, 2)
    worker(time, asked_to="quiet")
    worker(time, pid=4712, asked_to="stop")
    assert said(result.id).endswith("; every live worker that serves 'default' was asked to be quiet or to stop")
    worker(time, pid=4713)
    assert said(result.id).endswith("; next for a free slot of web1:4713")


def test_due_raw_payload() -> None:
    """No worker takes a raw payload of a queue without a handler."""
    job_id = Queue("sensors").publish("x")
    assert said(job_id).endswith("; a raw payload in a queue without a handler: your own code claims it")


def test_held(time: FakeClock) -> None:
    """Who holds a job and until when; what is known of a holder that has fallen silent, or has not begun."""
    result = tasks.add.enqueue(1, 2)
    row = worker(time)
    held_by(row, result.id, lease_until=from_instant(time.instant + 60_000_000))
    assert said(result.id) == "held by web1:4711, lease ends in 1 min"
    time.advance(40)
    assert said(result.id) == "held by web1:4711, lease ends in 20 s; that worker has been silent for 40 s"
    held_by(row, result.id, started_at=None)
    assert said(result.id) == "claimed ahead by web1:4711, which has not begun it; lease ends in 20 s"
    time.advance(21)
    assert (
        said(result.id)
        == "the lease of web1:4711 ended 1 s ago; no worker is alive; start one: python manage.py vtworker"
    )


def test_scheduled_and_retrying(time: FakeClock) -> None:
    """When a job that waits for its time runs, and after which error."""
    queue = Queue("sensors")
    scheduled = queue.publish("x", delay=timedelta(days=400))
    assert said(scheduled).startswith("scheduled for 20")
    retried = queue.publish("y", max_attempts=3)
    job = queue.claim()
    assert job
    job.nack(delay=60, error=ConnectionError("refused\nby the server"))
    assert " after ConnectionError: refused (attempts: 1/3)" in said(retried)
    assert said(retried).startswith("retrying at ")


def test_put_off(time: FakeClock) -> None:
    """A job that its own code has put off says so, also after a failure before; one that failed since does not."""
    queue = Queue("sensors", max_attempts=9)
    job_id = queue.publish("x")
    for delays, told in (("snooze", True), ("fail", False), ("snooze", True)):
        [held] = queue.claim_many(1)
        if delays == "fail":
            held.nack(delay=60, error=ValueError("no"))
        else:
            settle(engine_for("default"), [snoozed(held._held, 60, time.instant)])
        assert said(job_id).startswith("put off by its own code (Snooze) until ") is told
        time.advance(61)


def test_done_and_dead(time: FakeClock) -> None:
    """What became of jobs that do not run any more."""
    queue = Queue("sensors", max_attempts=1)
    done, dead = queue.publish("x"), queue.publish("y")
    for job in queue.claim_many(2):
        job.ack() if job.payload == "x" else job.nack(error=ValueError("no"))
    time.advance(7200)
    assert said(done).startswith("done 2 h ago by ")
    assert said(dead) == "dead for 2 h: ValueError: no; requeue it to have it run again"


@pytest.mark.parametrize("model", [Job, DeadLetter])
def test_the_page_says_it(admin_client: Client, model: type[Job | DeadLetter]) -> None:
    """The page of a job and that of a dead letter show the sentence, escaped."""
    queue = Queue("sensors", max_attempts=2 if model is Job else 1)
    job_id = queue.publish("x")
    job = queue.claim()
    assert job
    job.nack(delay=60, error=ValueError("<script>"))
    page = admin_client.get(reverse(f"admin:vtqueue_{model._meta.model_name}_change", args=[job_id])).content.decode()
    assert "ValueError: &lt;script&gt;" in page
    assert '<script>"' not in page
    assert ("retrying at " if model is Job else "requeue it to have it run again") in page


def test_ends_of_ids_and_unknown_ones() -> None:
    """An id may be cut as the log cuts it; one that is unknown is an error, after the others were told."""
    result = tasks.add.enqueue(1, 2)
    assert "due for" in said(f"…{result.id[-8:]}")
    out = io.StringIO()
    with pytest.raises(CommandError, match="There is no job ffffffff"):
        call_command("vtqueue", "why", "ffffffff", result.id, stdout=out)
    assert "due for" in out.getvalue()


def test_damaged_rows_are_shown(admin_client: Client, time: FakeClock) -> None:
    """A damaged row of a worker hides neither the page of a letter nor that of a due job."""
    queue = Queue("sensors", max_attempts=1)
    letter = queue.publish("x")
    job = queue.claim()
    assert job
    job.nack(error=ValueError("no"))
    due = tasks.add.enqueue(1, 2)
    worker(time)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE vtqueue_workerprocess SET queues = x'00ff'")
    for model, pk in (("deadletter", letter), ("job", due.id)):
        assert admin_client.get(reverse(f"admin:vtqueue_{model}_change", args=[pk])).status_code == 200


def test_due_in_a_paused_queue(time: FakeClock) -> None:
    """Who paused it, why, until when: for tasks and payloads, and for one whose holder has died; not for others."""
    ids = [tasks.add.enqueue(1, 2).id, Queue("default").publish("x"), tasks.add.enqueue(1, 2).id]
    other = tasks.add.using(queue_name="other").enqueue(1, 2).id
    held_by(worker(time), str(ids[2]), lease_until=from_instant(time.instant))
    pause("default", by="anna", reason="SMTP down", until=3600)
    time.advance(240)
    told = "; paused by anna: SMTP down, until "
    assert [told in said(job_id) for job_id in (*ids, other)] == [True, True, True, False]
    assert said(ids[0]).startswith("due for 4 min; paused by anna")
    time.advance(3600)
    assert told not in said(ids[0])


def test_expiry(time: FakeClock) -> None:
    """How long a job that waits has left to start; that it will never run when that is over."""
    late = Queue("raw").publish(1, expires=120)
    later = Queue("raw").publish(1, delay=60, expires=120)
    expires = f"expires in 2 min, at {time_of(from_instant(time() + 120_000_000))}, if it has not started by then"
    assert said(late).startswith(f"due for 0 ms; {expires}; ")
    assert said(later).endswith(f"; {expires}")
    time.advance(180)
    assert said(late) == "expired 1 min ago, so a worker will make it a dead letter"
    assert Queue("raw").claim() is None
    assert said(late).startswith(
        "dead for 0 ms: JobExpired: It had not started by 2027-01-15 08:02:00+00:00; requeue it"
    )


# -- limits -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def narrow(settings: Settings) -> Queue:
    options = {"queue_options": {"narrow": {"concurrency": 2}, "slow": {"rate": "1/m"}}}
    settings.TASKS = {"default": {"BACKEND": "django_vtqueue.backend.VTQueueBackend", "QUEUES": [], "OPTIONS": options}}
    return Queue("narrow")


def test_parked(time: FakeClock, narrow: Queue) -> None:
    """How many jobs of its key run, of how many that may; and that the key has room, where nothing gave it back."""
    ids = narrow.publish_many([1, 2, 3], concurrency_key=lambda payload: "tenant:9")
    assert len(narrow.claim_many(5)) == 2
    assert said(ids[2]) == "blocked by the limit 'tenant:9': 2 of 2 jobs with this key run"
    Job.objects.filter(pk=ids[0]).delete()
    room = "there is room now, and a worker gives it back within a second or so"
    assert said(ids[2]) == f"blocked by the limit 'tenant:9': {room}"


def test_parked_behind_another_job(time: FakeClock) -> None:
    """Which job comes first of an order."""
    first, second = (limited.in_order.enqueue("", 0, 7, number) for number in (1, 2))
    with engine_for("default").transaction():
        Claims(engine_for("default"), task_backends["default"].limits).claim([Scope(None, False)], 5, "w", time.instant)
    assert said(second.id) == f"blocked by the limit 'customer:7': job …{first.id[-8:]} comes first there"


@pytest.mark.parametrize("subcommand", ["why", "show"])
def test_parked_where_the_task_is_not_loaded(subcommand: str, time: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands load it, so that they know its limit."""
    first, second = (limited.in_order.enqueue("", 0, 7, number) for number in (1, 2))
    with engine_for("default").transaction():
        Claims(engine_for("default"), task_backends["default"].limits).claim([Scope(None, False)], 5, "w", time.instant)
    monkeypatch.delattr(project, "limited")
    monkeypatch.delitem(sys.modules, limited.__name__)
    monkeypatch.delitem(found_tasks, f"{limited.__name__}.in_order")
    assert any(f"job …{first.id[-8:]} comes first there" in line for line in lines(subcommand, second.id))


def test_moved_by_a_rate(time: FakeClock) -> None:
    """Until when, and by which rate."""
    results = [limited.at_rate.enqueue("") for _ in range(4)]
    with engine_for("default").transaction():
        Claims(engine_for("default"), task_backends["default"].limits).claim([Scope(None, False)], 5, "w", time.instant)
    assert re.fullmatch(r"moved to [\d: -]+ by the rate 20/s", said(results[3].id))


def test_due_in_a_queue_without_room(time: FakeClock, narrow: Queue) -> None:
    """Its queue is at its limit, or over its rate."""
    worker(time)
    ids = narrow.publish_many([1, 2, 3])
    narrow.claim_many(5)
    assert said(ids[2]).endswith("; the queue is at its limit: 2 of 2 jobs run")
    slow = Queue("slow")
    ids = slow.publish_many([1, 2])
    slow.claim_many(5)
    assert re.search(r"; the rate 1/m of the queue allows the next start at [\d: -]+$", said(ids[1]))


def test_limits_in_lists(time: FakeClock, narrow: Queue) -> None:
    """``list`` and ``status`` say what is parked, and which limits a queue has."""
    ids = narrow.publish_many([1, 2, 3], concurrency_key=lambda payload: "tenant:9")
    narrow.claim_many(5)
    assert any(line.startswith("blocked") and str(ids[2]) in line for line in lines("list"))
    assert any(
        line.startswith("narrow") and line.endswith("2 at once; 1 blocked by a limit") for line in lines("status")
    )
    assert any(line.startswith("concurrency_key") and line.endswith("tenant:9") for line in lines("show", str(ids[2])))
    shown = json.loads("\n".join(lines("show", str(ids[2]), "--json")))
    assert (shown["state"], shown["wake_at"]) == ("blocked", None)
    assert shown["waits_for"] == "blocked by the limit 'tenant:9'"


def test_lists_of_what_is_parked(time: FakeClock, narrow: Queue) -> None:
    """What is parked is listed by its keys, page by page, and is not among what is scheduled."""
    keys = ("tenant:9", "tenant:7")
    for key in keys:
        narrow.publish_many([1, 2, 3, 4], concurrency_key=lambda payload, key=key: key, priority=1)
        narrow.publish(5, concurrency_key=key)
    narrow.claim_many(20)
    parked = json.loads("\n".join(lines("list", "--state", "blocked", "--json")))
    assert [(job["concurrency_key"], job["arguments"]) for job in parked] == [
        (key, payload) for key in sorted(keys) for payload in (3, 4, 5)
    ]
    rows, found, after = Job.objects.using("default"), [], None
    while not found or after:
        page = list_jobs(rows, ListQuery(word="blocked"), after, size=10, limit=2, now=time.instant)
        found += [str(row.pk) for row in page.rows]
        after = page.next_key
    assert found == [job["id"] for job in parked]
    assert lines("list", "--state", "scheduled") == []
    counts = count_jobs(rows, ListQuery(), 10, time.instant)
    assert (counts["blocked"], counts["scheduled"], counts["waiting"]) == ((6, False), (0, False), (0, False))


def lines(*command: str) -> list[str]:
    out = io.StringIO()
    call_command("vtqueue", *command, stdout=out)
    return out.getvalue().splitlines()
