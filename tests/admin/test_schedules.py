"""Schedules in the admin: the list, the page with the last runs, pause, resume, run now, and making one."""

import html
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from django_vtqueue.core import clock
from django_vtqueue.core.clock import SECOND, from_instant, to_instant
from django_vtqueue.core.ids import new_id
from django_vtqueue.models import Job, Schedule

from ..project.tasks import add
from .rows import html as page_of
from .rows import part, worker

pytestmark = pytest.mark.django_db

LIST, ADD = reverse("admin:vtqueue_schedule_changelist"), reverse("admin:vtqueue_schedule_add")
GIVEN = {"name": "nightly sum", "task_path": add.module_path, "arguments": "[1, 2]", "expression": "0 3 * * *"}
MORE = {"time_zone": "Europe/Paris", "missed": "one", "overlap": "on"}
Staff = Callable[..., Client]


def schedule(name: str = "nightly", **values: Any) -> Schedule:
    """Store a schedule that is declared in code, with a run that took two seconds and one that died."""
    now = clock.now()
    runs = [
        {"id": new_id(), "at": now - 60 * SECOND, "state": "dead", "ran": SECOND},
        {"id": new_id(), "at": now - 120 * SECOND, "state": "done", "ran": 2 * SECOND},
    ]
    row = {
        "task_path": add.module_path,
        "expression": "0 3 * * *",
        "time_zone": "Europe/Paris",
        "payload": {"args": [1, 2], "kwargs": {}},
        "declared": True,
        "next_at": now + 3600 * SECOND,
        "recent": runs,
    }
    return Schedule.objects.create(name=name, **row | values)


def change(row: Schedule) -> str:
    return reverse("admin:vtqueue_schedule_change", args=[row.pk])


def send(client: Client, view: str, name: str = "nightly") -> HttpResponse:
    return client.post(reverse(f"admin:vtqueue_schedule_{view}"), {"name": name}, follow=True)  # type: ignore[return-value]


def test_the_list(admin_client: Client, django_assert_max_num_queries: Any) -> None:
    """Each with its expression in words, its state, the next tick and the last run; the number of queries is fixed."""
    schedule()
    schedule("paused", paused_at=clock.now(), paused_by="ann")
    schedule("admin's", declared=False)
    worker(schedules="abc nightly")
    shown = page_of(admin_client, LIST)
    assert "At 03:00 every day, Europe/Paris" in shown
    assert "declared by no running code" in part(shown, "paused</a>", "</tr>")
    assert "dead 1 s" in part(shown, "nightly</a>", "</tr>")
    for number in range(20):
        schedule(f"more {number}")
    with django_assert_max_num_queries(14):
        admin_client.get(LIST)


def test_ticks_of_a_period_are_in_the_zone_of_the_page(admin_client: Client, settings: Settings) -> None:
    """They are in no zone of their own, so they are as all times of the page are."""
    settings.TIME_ZONE = "Asia/Tokyo"
    shown = page_of(admin_client, change(schedule(expression="every 3600", time_zone="", declared=False)))
    assert shown.count(":00:00 JST") == 5


def test_the_page(admin_client: Client) -> None:
    """The next ticks in the zone of the schedule, the arguments by name, and a plot of the last runs."""
    shown = page_of(admin_client, change(schedule("a/b ☃?", declared=False)))
    assert shown.count("03:00:00 CE") == 5
    assert "Last runs: 1 succeeded, 1 died; the longest took 2 s." in shown
    assert 'class="vtq-fill vtq-dead"' in shown
    assert "&quot;a&quot;: 1" in shown


def test_pause_resume_and_run(staff: Staff) -> None:
    """Each is a button, and a line in the admin's log; of a pause nothing is missed."""
    schedule(next_at=clock.now() - SECOND)
    client = staff("run_schedule")
    assert "is paused" in send(client, "pause").content.decode()
    assert Schedule.objects.get().paused_by == "staff"
    assert ">Resume<" in page_of(client, change(Schedule.objects.get()))
    send(client, "resume")
    assert to_instant(Schedule.objects.get().next_at or 0) > clock.now()
    send(client, "run")
    job = Job.objects.get()
    assert (job.task_path, job.args) == (add.module_path, [1, 2])
    assert Schedule.objects.get().recent[0]["id"] == job.pk.hex
    texts = [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")]
    assert texts == ["Paused.", "Resumed.", f"Run now: job {job.pk}."]


def test_a_run_that_is_refused(admin_client: Client) -> None:
    """The page says why: there is one, or its task is gone."""
    schedule(overlap=False)
    send(admin_client, "run")
    assert "one of this schedule is not finished" in send(admin_client, "run").content.decode()
    schedule("gone", task_path="tests.project.tasks.gone")
    assert "is not a task" in html.unescape(send(admin_client, "run", "gone").content.decode())
    assert Job.objects.count() == 1


@pytest.mark.parametrize("view", ["pause", "resume", "run", "edit", "add"])
def test_permissions(staff: Staff, view: str) -> None:
    """A user who may only look sees no button, and can do nothing."""
    row = schedule()
    client = staff("view_schedule")
    shown = page_of(client, change(row))
    assert not any(f">{word}<" in shown for word in ("Run now", "Pause", "Change", "Delete"))
    assert client.post(reverse(f"admin:vtqueue_schedule_{view}"), {"name": "nightly"}).status_code == 403


def test_make_one(admin_client: Client) -> None:
    """The next five ticks are shown first; then it is stored, as the form has it, with its first tick."""
    response = admin_client.post(ADD, {**GIVEN, **MORE})
    shown = response.content.decode()
    assert shown.count("03:00:00 CE") == 5
    assert not Schedule.objects.exists()
    fields = {**GIVEN, **MORE, "jitter": "5", "shown": "0 3 * * * Europe/Paris"}
    admin_client.post(ADD, fields)
    row = Schedule.objects.get()
    assert (row.name, row.task_path, row.payload) == ("nightly sum", add.module_path, {"args": [1, 2], "kwargs": {}})
    assert (row.expression, row.time_zone, row.missed) == ("0 3 * * *", "Europe/Paris", "one")
    assert (row.overlap, row.jitter_us, row.declared) == (True, 5 * SECOND, False)
    assert to_instant(row.next_at or 0) > clock.now()


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"expression": "0 0 3 * * *"}, "has 6 fields, but must have five"),
        ({"expression": "0 0 30 2 *"}, "It never comes"),
        ({"expression": "every 60000000000"}, "It never comes"),
        ({"name": ".."}, "The name of a schedule cannot be '..'"),
        ({"time_zone": "Mars/Olympus"}, "There is no time zone"),
        ({"task_path": "os.system"}, "is not a task"),
        ({"task_path": "tests.project.tasks.gone"}, "is not a task"),
        ({"task_path": "tests.project.long_lived.succeed"}, "Workers load only the tasks"),
        ({"arguments": "[1, 2, 3]"}, "does not take these arguments"),
        ({"arguments": "{"}, "This is not JSON"),
        ({"name": "nightly"}, "There is a schedule of this name"),
        ({"name": "two\nlines"}, "The name of a schedule is one line"),
        ({"missed": "never"}, "Select a valid choice"),
    ],
)
def test_what_is_refused(admin_client: Client, wrong: dict[str, str], problem: str) -> None:
    """The form says what is wrong, and nothing is stored."""
    schedule()
    response = admin_client.post(ADD, {**GIVEN, **MORE, **wrong})
    assert problem in html.unescape(response.context["form"].errors.as_text())
    assert Schedule.objects.count() == 1


def test_what_no_code_declares_is_deleted_here(admin_client: Client) -> None:
    """Also where no worker runs all the time: the code of this process does not declare it."""
    shown = page_of(admin_client, change(schedule()))
    assert "declared by no running code" in shown
    assert ">Delete<" in shown
    assert "CE" not in part(shown, "Next ticks", "Last runs")
    assert admin_client.post(reverse("admin:vtqueue_schedule_delete", args=["nightly"])).status_code == 302
    assert not Schedule.objects.exists()


def test_a_task_that_is_gone(admin_client: Client) -> None:
    """The schedule is not run any more: it has no next tick. It can be changed to another task."""
    given = {"declared": False, "task_path": "tests.project.tasks.gone", "next_at": clock.now() - 61 * SECOND}
    shown = page_of(admin_client, change(schedule(**given)))
    assert "its task does not exist" in shown
    assert "CE" not in part(shown, "Next ticks", "Last runs")
    assert ">Change<" in shown
    assert "its task does not exist -" in part(page_of(admin_client, LIST), "nightly</a>", "</tr>")


def test_change_one(admin_client: Client) -> None:
    """Its state stays: what a worker has written meanwhile, and the next tick if its times are the same."""
    row = schedule("made", declared=False)
    row.refresh_from_db()
    edit = f"{reverse('admin:vtqueue_schedule_edit')}?name=made"
    assert "Change" in page_of(admin_client, change(row))
    assert 'value="0 3 * * *"' in page_of(admin_client, edit)
    fields = {**GIVEN, **MORE, "arguments": "[3, 4]", "shown": "0 3 * * * Europe/Paris"}
    admin_client.post(edit, fields)
    changed = Schedule.objects.get()
    assert (changed.name, changed.payload["args"]) == ("made", [3, 4])
    assert (changed.next_at, changed.recent) == (row.next_at, row.recent)
    admin_client.post(edit, {**fields, "expression": "every 60", "shown": "every 60"})
    changed = Schedule.objects.get()
    assert (changed.expression, changed.time_zone) == ("every 60", "")
    assert (changed.next_at or from_instant(0)) <= from_instant(clock.now() + 60 * SECOND)


def test_what_code_declares_is_not_changed_here(admin_client: Client) -> None:
    """Nor deleted, as long as a running worker declares it."""
    row = schedule()
    worker(schedules="abc nightly")
    shown = page_of(admin_client, change(row))
    assert not any(f">{word}<" in shown for word in ("Change", "Delete"))
    assert admin_client.get(f"{reverse('admin:vtqueue_schedule_edit')}?name=nightly").status_code == 404
    delete = reverse("admin:vtqueue_schedule_delete", args=["nightly"])
    assert admin_client.post(delete, {"post": "yes"}).status_code == 403
    Schedule.objects.update(declared=False)
    assert "Delete the schedule “nightly”?" in page_of(admin_client, delete)
    assert admin_client.post(delete).status_code == 302
    assert not Schedule.objects.exists()
