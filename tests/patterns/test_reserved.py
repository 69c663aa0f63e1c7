"""Reserved queues: their rows are held, and no user publishes, claims, pauses, counts or changes them."""

import io
import json
import re
import uuid
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import Error
from django.core.management import CommandError, call_command
from django.db import connections

from django_vtqueue import Lease, LeaseLost, Queue, control, requeue
from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.core import clock, history, states
from django_vtqueue.core.clock import SECOND
from django_vtqueue.core.names import RESERVED_PREFIXES, is_reserved
from django_vtqueue.engines import engine_for
from django_vtqueue.inspection import overview
from django_vtqueue.inspection.lists import ListQuery, count_jobs, list_jobs
from django_vtqueue.models import RESERVED as ROWS
from django_vtqueue.models import Job
from django_vtqueue.queue.pauses import pause, resume
from django_vtqueue.queue.proof_of_death import declare_dead
from django_vtqueue.tasks.compat import InvalidTask
from tests.project import tasks

from ..fake_clock import FakeClock
from .conftest import TTL, BootClock

NAMES = [f"{prefix}{rest}" for prefix in RESERVED_PREFIXES for rest in ("", "x", "näch", "\U0010ffff")]


@pytest.fixture
def lease(leases: Any) -> Lease:
    """Return a lease that was released: its row waits like a job."""
    lease: Lease = leases()
    lease.acquire()
    lease.release()
    return lease


def row(alias: str) -> Job:
    return Job.objects.using(alias).get()


@pytest.mark.parametrize("name", NAMES)
def test_no_queue_of_that_name(name: str, alias: str) -> None:
    """``Queue`` is refused, and so are a pause, a move or a requeue there, and a task; with what is to be done."""
    attempts: list[Callable[[], object]] = [
        lambda: Queue(name),
        lambda: pause(name, using=alias),
        lambda: resume(name, using=alias),
        lambda: control.move([], name, using=alias),
        lambda: requeue([], using=alias, queue_name=name),
    ]
    for attempt in attempts:
        with pytest.raises(ValueError, match=r"is reserved for Lease and SlotCycle.*does not begin with 'lease:'"):
            attempt()
    with pytest.raises(InvalidTask, match="is reserved"):
        tasks.add.using(queue_name=name)


@pytest.mark.parametrize("name", ["lease", "Lease:x", "leases:x", "my lease:x", "lease;", "slots", "slots;x", "SLOTS:"])
def test_names_that_are_not_reserved(name: str, alias: str) -> None:
    """Only what begins exactly so is reserved; the condition for rows says the same as that for names."""
    queue = Queue(name, using=alias)
    queue.publish(1)
    assert not is_reserved(name)
    assert not Job.objects.using(alias).filter(ROWS).exists()
    assert control.cancel(queue.publish(2), using=alias)


def test_rows_and_names_agree(alias: str) -> None:
    """The condition for rows finds each reserved name."""
    Queue("x", using=alias).publish(1)
    for name in NAMES:
        Job.objects.using(alias).update(queue_name=name)
        assert Job.objects.using(alias).filter(ROWS).count() == 1


def test_control_leaves_them_out(lease: Lease, alias: str) -> None:
    """Nothing that people do with jobs changes such a row, whether it is held or not."""
    for hold in (False, True):
        if hold:
            lease.acquire()
            Job.objects.using(alias).update(lease_until=1)
        before = Job.objects.using(alias).values().get()
        for change in (
            control.run_now,
            control.cancel,
            control.discard,
            lambda ids, using: control.move(ids, "other", using=using),
            lambda ids, using: control.change_priority(ids, 5, using=using),
        ):
            assert change([before["id"]], using=alias) == []
        assert Job.objects.using(alias).values().get() == before


def test_no_worker_takes_them(lease: Lease, alias: str, settings: Any) -> None:
    """A worker of all queues, even one with a handler of that name, leaves them alone; so does its housekeeping."""
    settings.TASKS = {
        "default": {"BACKEND": "django_vtqueue.backend.VTQueueBackend", "QUEUES": [], "OPTIONS": {"database": alias}}
    }
    engine = engine_for(alias)
    call_command("vtworker", drain=True, stderr=io.StringIO())
    assert row(alias).claims == 1
    assert engine.prune(clock.now() + 10**15, 100) == 0
    assert row(alias).state == states.READY


def test_settings_that_name_one(alias: str) -> None:
    """A handler, options or QUEUES for such a queue are a check error."""
    for params in (
        {"QUEUES": ["lease:x"]},
        {"QUEUES": [], "OPTIONS": {"queue_options": {"slots:x": {"handler": "tests.project.tasks.handle"}}}},
    ):
        found = [check for check in VTQueueBackend("default", params).check() if check.id == "vtqueue.E010"]
        assert [type(check) for check in found] == [Error]
        assert "is reserved" in found[0].msg


def test_they_are_no_jobs_in_numbers_and_lists(lease: Lease, alias: str) -> None:
    """No number, list or name of a queue has them, held or free, nor the list of that queue."""
    for _ in range(2):
        now = clock.now()
        assert engine_for(alias).queue_names() == []
        assert overview.sizes(alias, 10, 10) == {}
        assert overview.held(alias, 10, now).queues.total() == 0
        rows = Job.objects.using(alias)
        for word, name in product(("", *states.WORDS[:-1]), (None, "lease:nightly")):
            asked = ListQuery(word=word, queue_name=name)
            assert list_jobs(rows, asked, None, size=100, limit=100, now=now).rows == []
        assert {number for number, _ in count_jobs(rows, ListQuery(), 100, now).values()} == {0}
        lease.acquire()


# -- commands ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def vtqueue(lease: Lease, alias: str, settings: Any) -> Callable[..., str]:
    """Return a function that runs a subcommand on the database of the lease; it returns what that wrote."""
    options = settings.TASKS["default"]["OPTIONS"] | {"database": alias}
    settings.TASKS = {"default": {"BACKEND": "django_vtqueue.backend.VTQueueBackend", "QUEUES": [], "OPTIONS": options}}

    def vtqueue(*arguments: str) -> str:
        out = io.StringIO()
        call_command("vtqueue", *arguments, stdout=out)
        return out.getvalue()

    return vtqueue


def test_leases(time: FakeClock, vtqueue: Callable[..., str], lease: Lease, leases: Any) -> None:
    """``vtqueue leases`` lists holder, token, since when and until when, and when a free one was acquired; for scripts
    too. With names it lists these, and an unknown one is an error.
    """
    time.advance(3)
    assert re.fullmatch(r"nightly +\(free\) +1 +- +last acquired 3 s ago", vtqueue("leases").splitlines()[1])
    lease.acquire()
    time.advance(4)
    leases("other name").acquire()
    first, second = vtqueue("leases").splitlines()[1:]
    holder = lease._holder._worker_id.rpartition(":")[0]
    assert first.split() == ["nightly", holder, "2", *["4", "s", "ago", "in", "26", "s"]]
    assert second.startswith("other name")
    assert '"token": 2' in vtqueue("leases", "--json")
    [one] = vtqueue("leases", "other name").splitlines()[1:]
    assert one.split()[:4] == second.split()[:4]
    with pytest.raises(CommandError, match=r"There is no lease x\. Leases: nightly, other name\."):
        vtqueue("leases", "x")


def test_a_holder_that_is_gone(time: FakeClock, vtqueue: Callable[..., str], lease: Lease, alias: str) -> None:
    """A lease is free when it has ended, or when its holder is dead; and one reads for how long an instance waits."""
    lease.acquire()
    ended = clock.now() - 5 * SECOND
    Job.objects.using(alias).update(lease_until=ended)
    host = lease._holder._worker_id.rpartition(":")[0]
    line = rf"nightly +\(free\) +2 +- +the lease of {host} ended 5 s ago; an instance that asks now waits 30 s"
    assert re.fullmatch(line, vtqueue("leases").splitlines()[1])
    [found] = json.loads(vtqueue("leases", "--json"))
    assert (found["holder"], found["since"], found["until"]) == (None, None, None)
    Job.objects.using(alias).update(lease_until=clock.now() + 10**7)
    assert lease._holder._bell
    declare_dead(Path(lease._holder._bell.path))
    assert re.fullmatch(rf"nightly +\(free\) +2 +- +the process of {host} is dead", vtqueue("leases").splitlines()[1])


def test_a_lease_that_a_clock_has_stamped_that_was_ahead(
    time: FakeClock, vtqueue: Callable[..., str], lease: Lease
) -> None:
    """No lease is shown to last for longer than its ttl."""
    time.advance(86_400)
    lease.acquire()
    time.advance(-86_400)
    lease.renew()
    assert vtqueue("leases").splitlines()[1].split()[-3:] == ["in", "30", "s"]


def test_the_end_of_a_term(leases: Any, boot: BootClock, alias: str) -> None:
    """In the history a term ends when its lease did, however late the next one begins; and a proven death is one."""
    first, second = leases(), leases()
    first.acquire()
    assert not second.acquire(blocking=False)  # has seen it now
    ended = clock.now() - 5 * SECOND
    Job.objects.using(alias).update(lease_until=ended)
    assert not second.acquire(blocking=False)
    boot.pass_by(TTL)
    assert second.acquire(blocking=False)
    assert second._holder._bell
    declare_dead(Path(second._holder._bell.path))
    assert first.acquire(blocking=False)
    late, dead = row(alias).history
    assert (late["outcome"], late["ended"]) == (history.LEASE_EXPIRED, ended)
    assert (dead["outcome"], dead["worker"]) == (history.WORKER_DIED, second._holder._worker_id)


def test_its_own_lease_that_has_ended(leases: Any, boot: BootClock, alias: str) -> None:
    """An instance that takes its own lease anew, before others may, has not died."""
    lease = leases()
    lease.acquire()
    boot.pass_by(TTL)
    with pytest.raises(LeaseLost):
        lease.check()
    assert lease.acquire(blocking=False)
    assert [entry["outcome"] for entry in row(alias).history] == [history.LEASE_EXPIRED]


def test_no_leases(alias: str, settings: Any) -> None:
    """Without any it says so."""
    settings.TASKS = {
        "default": {"BACKEND": "django_vtqueue.backend.VTQueueBackend", "QUEUES": [], "OPTIONS": {"database": alias}}
    }
    out = io.StringIO()
    call_command("vtqueue", "leases", stdout=out)
    assert out.getvalue() == "No lease was acquired in this database yet.\n"


def test_why_and_show(vtqueue: Callable[..., str], lease: Lease, alias: str) -> None:
    """``why`` says who holds it in a sentence; ``show`` has the hand-overs."""
    job_id = str(row(alias).pk)
    assert "free: the next instance that asks has it; the last token was 1" in vtqueue("why", job_id)
    lease.acquire()
    assert "with the token 2; renewed, or else free in" in vtqueue("why", job_id)
    assert "released on" in vtqueue("show", job_id)
    Job.objects.using(alias).update(lease_until=1)
    assert "an instance that asks now waits 30 s; the last token was 2" in vtqueue("why", job_id)
    Job.objects.using(alias).update(lease_until=clock.now() + 10**7)


@pytest.mark.parametrize("arguments", [("pause",), ("resume",), ("purge", "--yes")])
def test_commands_refuse_them(vtqueue: Callable[..., str], arguments: tuple[str, ...]) -> None:
    """``pause``, ``resume`` and ``purge`` of such a queue are refused."""
    with pytest.raises(CommandError, match="is reserved"):
        vtqueue(*arguments, "lease:nightly")


def test_other_commands(vtqueue: Callable[..., str], alias: str) -> None:
    """``cancel`` says why it does nothing; ``purge --all``, ``status`` and ``list`` leave it out; ``list`` of its queue
    says what lists it.
    """
    with pytest.raises(CommandError, match="is reserved"):
        vtqueue("cancel", str(row(alias).pk))
    assert vtqueue("purge", "--all", "--yes") == "Deleted 0 jobs.\n"
    assert "lease:" not in vtqueue("status")
    assert vtqueue("list") == ""
    with pytest.raises(CommandError, match="vtqueue leases"):
        vtqueue("list", "--queue", "lease:nightly")
    assert connections[alias].cursor().execute("SELECT count(*) FROM vtqueue_job").fetchone() == (1,)


@pytest.mark.parametrize("key", [None, "other"])
@pytest.mark.parametrize("held", [True, False])
def test_rows_of_another_kind(leases: Any, alias: str, key: str | None, held: bool) -> None:
    """Rows without the key of the lease (of a queue that had its name) are no leases, whether they wait or are held."""
    first, second = leases(), leases()
    first.acquire()
    there = Job.objects.using(alias).get()
    if not held:
        first.release()
        there.refresh_from_db()
    there.pk, there.unique_key, there.claims = uuid.uuid4(), key, 77
    there.save(force_insert=True, using=alias)
    assert (held and first.held) or first.acquire(blocking=False)
    assert not second.acquire(blocking=False)
    assert first.token == 2 - held
    first.release()
    assert second.acquire(blocking=False)
    assert (second.token, Job.objects.using(alias).get(pk=there.pk).claims) == (3 - held, 77)


def test_a_key_that_is_taken_away(leases: Any, alias: str) -> None:
    """A row that has lost its key is as one that was deleted: its holder learns it, another instance makes it anew."""
    first, second = leases(), leases()
    first.acquire()
    Job.objects.using(alias).update(unique_key=None)
    assert second.acquire(blocking=False)
    with pytest.raises(LeaseLost):
        first.renew()
    assert second.held
