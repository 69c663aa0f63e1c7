"""The banners on the first page of the app in the admin: what is wrong, or was stopped on purpose."""

import re
from io import StringIO
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.urls import reverse

from django_vtqueue.core import clock
from django_vtqueue.core.clock import LAST_INSTANT as LAST
from django_vtqueue.core.clock import SECOND
from django_vtqueue.models import DeadLetter, Job, QueueState
from django_vtqueue.queue.workers import start_command

from .rows import OVERVIEW, ago, banners, html, job, letter, part, row_of, worker

pytestmark = pytest.mark.django_db

EVIL = "<script>alert('x')</script>"


def test_a_queue_that_nobody_serves(admin_client: Client) -> None:
    """Due jobs that no live worker takes are a banner with the command that helps, and stand out in the table."""
    job("emails"), job("default"), job("later", 60), job("raw", task_path="")
    worker(queues="default,a"), worker(4712, silent=40, queues="emails")
    said = "Jobs are due in a queue that no live worker serves: emails. Start a worker: "
    assert f"{said}python manage.py vtworker --queues emails" in banners(admin_client)
    assert row_of(admin_client, "queue-emails").startswith("emails no worker 1")
    for name in ("default", "later", "raw"):
        assert "no worker" not in row_of(admin_client, f"queue-{name}")


def test_a_name_with_a_comma(admin_client: Client) -> None:
    """A worker that serves it is no other for its comma."""
    job("mail,slow")
    worker(queues="default,mail,slow")
    assert "no live worker serves" not in banners(admin_client)


@pytest.mark.parametrize("name", ["mail,slow", "tenant:x", "tenant:3"])
def test_a_name_that_queues_cannot_take(admin_client: Client, name: str) -> None:
    """The command that helps starts a worker for all queues: --queues would read another name in it, or refuse it."""
    job(name)
    worker(queues="default")
    assert banners(admin_client).endswith(f"serves: {name}. Start a worker: python manage.py vtworker")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "python manage.py vtworker Workers"),
        ({"handler": "shop.jobs.on_sensor"}, "serves: raw. Start a worker: python manage.py vtworker"),
    ],
)
def test_without_any_worker(admin_client: Client, settings: Any, options: Any, said: str) -> None:
    """If no worker lives, any will do; raw payloads wait for a worker only where the queue has a handler."""
    entry = settings.TASKS["default"]
    settings.TASKS = {"default": {**entry, "OPTIONS": {"queue_options": {"raw": options}}}}
    job("raw", task_path="")
    if not options:
        job("emails"), job("it's")
        said = "serves: emails, it&#x27;s. Start a worker: python manage.py vtworker"
    assert said in banners(admin_client)


def test_a_queue_of_another_entry_of_tasks(admin_client: Client, settings: Any) -> None:
    """The command is that of the entry which names the queue: here, in ``vtqueue status``, and in ``vtqueue why``."""
    entry = settings.TASKS["default"]
    settings.TASKS = {"default": {**entry, "QUEUES": ["default"]}, "second": {**entry, "QUEUES": ["emails"]}}
    row = job("emails")
    command = "python manage.py vtworker --backend second"
    assert banners(admin_client).endswith(f"serves: emails. Start a worker: {command}")
    for asked in (["status"], ["why", str(row.pk)]):
        call_command("vtqueue", *asked, stdout=(said := StringIO()))
        assert said.getvalue().strip().endswith(command)
    for queues in (["emails"], ["emails", "images"]):  # of images none knows
        assert start_command("default", queues) == command


def test_a_full_queue(admin_client: Client, settings: Any) -> None:
    """Each queue with a max_depth says how full it is; one that has reached it has a banner."""
    limits = {"emails": {"max_depth": 2}, "images": {"max_depth": 3}}
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": {"queue_options": limits}}}
    for name, count in (("emails", 2), ("images", 2), ("other", 9)):
        for _ in range(count):
            job(name, 60)
    said = "A queue is full: emails. New jobs there are refused, or wait, until workers have made room."
    assert banners(admin_client) == said
    assert row_of(admin_client, "queue-emails").startswith("emails full 2 of 2 wait, 100 %")
    assert row_of(admin_client, "queue-images").startswith("images 2 of 3 wait, 66 %")
    assert " wait" not in row_of(admin_client, "queue-other")
    job("emails")
    assert row_of(admin_client, "queue-emails").startswith("emails no worker full 2+ of 2 wait, 100 %")


def test_many_queues_that_nobody_serves(admin_client: Client) -> None:
    """A banner stays a sentence, however many queues it is about; the command has them all."""
    for number in range(7):
        job(f"q{number}")
    worker(queues="other")
    assert "serves: q0, q1, q2, q3, q4 and 2 more. Start" in banners(admin_client)
    assert "vtworker --queues q0,q1,q2,q3,q4,q5,q6" in banners(admin_client)


def test_a_quiet_worker_serves_nothing(admin_client: Client) -> None:
    """A worker that was asked to be quiet takes nothing, and the banner says whom to ask."""
    job(), worker(asked_to="quiet")
    assert "no live worker serves: default. Asked to claim nothing: web1:4711." in banners(admin_client)


def test_nothing_is_wrong_with_a_paused_queue(admin_client: Client) -> None:
    """A paused queue needs no worker: the banner says who paused it, why, and until when, and can end it."""
    job("emails")
    values = {"paused_by": "anna", "reason": f"SMTP is down {EVIL}", "paused_until": ago(-3600)}
    QueueState.objects.create(queue_name="emails", paused_at=ago(60), **values)
    QueueState.objects.create(queue_name="over", paused_at=ago(60), paused_until=ago(1))
    said = banners(admin_client)
    assert re.match(
        r"“emails” is paused by anna: SMTP is down &lt;s.*, until \S+( \S+)?\. It began at \S+\. Resume", said
    )
    assert "no live worker" not in said
    assert "over" not in said
    assert row_of(admin_client, "queue-emails").startswith("emails paused 1")


def test_a_silent_worker(admin_client: Client) -> None:
    """A worker that was not heard of for too long is a banner; one that is heard of is none."""
    worker(), worker(4712, silent=31)
    assert re.match(r"A worker has fallen silent: web1:4712 since \S+\. Jobs that are held", banners(admin_client))


def test_banners_do_not_talk_all_the_time(admin_client: Client) -> None:
    """What a screen reader says when it changes does not change as long as nothing happens."""
    job("emails", -3), worker(4712, silent=31)
    QueueState.objects.create(queue_name="paused", paused_at=ago(60))
    first = banners(admin_client)
    assert first
    job("emails")
    assert banners(admin_client) == first


def test_tables_that_are_missing(admin_client: Client) -> None:
    """Before the migrations have run, the overview says which command makes the tables, and the lists lead there."""
    with connection.cursor() as cursor:
        for model in apps.get_app_config("vtqueue").get_models():
            cursor.execute(f"ALTER TABLE {model._meta.db_table} RENAME TO gone_{model._meta.db_table}")
    shown = part(html(admin_client), 'id="vtq-banners"', "</div>")
    assert shown.endswith("missing, or of another version: python manage.py migrate vtqueue")
    for name in ("job", "deadletter", "requeue", "workerprocess"):
        response = admin_client.get(reverse(f"admin:vtqueue_{name}_changelist"), {"q": "x"} if name == "job" else {})
        assert response["Location"] == OVERVIEW


def test_a_dead_worker_is_told_of(admin_client: Client) -> None:
    """A worker that died stays on the overview, with when, what became of its jobs, and links to these."""
    went_on, died = job(), letter(task_path="shop.tasks.welcome")
    left = f"{died.pk} {went_on.pk}"
    dead = worker(died_at=ago(60), went_on=3, buried=1, left=left, heartbeat_at=ago(62))
    said = banners(admin_client)
    tails = f"…{str(died.pk)[-8:]} …{str(went_on.pk)[-8:]}"
    assert re.search(rf"web1:4711 died at \S+; 3 jobs went on, 1 job died: {tails} …\.", said)
    assert "fallen silent" not in said
    assert row_of(admin_client, f"worker-{dead.pk}").startswith("web1:4711 died")
    assert f'href="/admin/vtqueue/job/{died.pk}/change/"' in html(admin_client)
    page = html(admin_client, reverse("admin:vtqueue_workerprocess_change", args=[dead.pk]))
    assert "3 jobs went on, 1 job died" in page
    assert "Stop it" not in page


def test_a_worker_that_died_idle(admin_client: Client) -> None:
    """Of a worker that held nothing when it died nothing else is said."""
    job(), worker(died_at=ago(60))
    assert re.search(r"web1:4711 died at \S+; it held no job\.", banners(admin_client))


def test_a_dead_worker_serves_nothing(admin_client: Client) -> None:
    """Its queues have no worker, also while its last heartbeat is recent."""
    job(), worker(died_at=ago(1))
    assert "no live worker serves: default" in banners(admin_client)


def test_failures(admin_client: Client) -> None:
    """What dies is told by task and exception, of the last minute and of the last hour, until it is reviewed."""
    job(), worker()
    declined = {"task_path": "shop.tasks.pay", "exception_class": "shop.PaymentDeclined"}
    for _ in range(40):
        letter(**declined)
    letter(task_path="shop.tasks.mail", exception_class="builtins.OSError", died_at=ago(600))
    letter(task_path="shop.tasks.old", exception_class="builtins.OSError", died_at=ago(4000))
    said = banners(admin_client)
    assert "40 jobs of shop.tasks.pay died in the last minute: PaymentDeclined, the last at " in said
    assert "1 job of shop.tasks.mail died in the last hour: OSError, the last at " in said
    assert "shop.tasks.old" not in said
    DeadLetter.objects.update(reviewed_at=ago(0))
    assert "died" not in banners(admin_client)


def test_reviewed_letters_are_no_alarm(admin_client: Client) -> None:
    """The number of dead letters is red as long as one of them is not reviewed, and says how many are."""
    job(), worker()
    for seen in (None, ago(1), ago(2)):
        letter(reviewed_at=seen)
    assert "3 2 reviewed" in row_of(admin_client, "queue-default")
    assert "vtq-number vtq-bad" in html(admin_client)
    DeadLetter.objects.update(reviewed_at=ago(0))
    assert "3 3 reviewed" in row_of(admin_client, "queue-default")
    assert "vtq-number vtq-bad" not in html(admin_client)


def test_what_people_have_cancelled(admin_client: Client) -> None:
    """It has not failed, so no banner counts it."""
    letter(exception_class="django_vtqueue.exceptions.Cancelled", died_at=ago(5))
    assert "died" not in banners(admin_client)


@pytest.mark.parametrize(
    ("parent", "told"),
    [
        ({"steps": {"waiting": {"kind": "gather", "name": "a", "until": None, "since": 1}}, "wake_at": LAST}, True),
        (
            {"steps": {"waiting": {"kind": "gather", "name": "b", "until": None, "since": LAST}}, "wake_at": LAST},
            False,
        ),
        ({"steps": {"waiting": {"kind": "event", "name": "a", "until": None, "since": 1}}, "wake_at": LAST}, False),
        ({"state": "SUCCESSFUL", "worker_id": "w", "finished_at": 2}, False),
        ({"state": "SUCCESSFUL", "worker_id": "w", "finished_at": 8}, True),
        ({"worker_id": "w"}, False),
        (None, False),
    ],
)
def test_children_whose_parent_has_judged_them(admin_client: Client, parent: Any, told: bool) -> None:
    """A parent that has gone on knows of the failure; one that waits does not yet, and one that had ended before never
    will. Of one that is gone nothing is known.
    """
    given = parent or {}
    if "finished_at" in given:
        given = given | {"finished_at": clock.now() - given["finished_at"] * SECOND}
    row = job("mails", 60, **{name: value for name, value in given.items() if name not in ("steps", "wake_at")})
    if "steps" in given:
        Job.objects.filter(pk=row.pk).update(state="WAITING", **given)
    letter(died_at=ago(5), parent_id=row.pk)
    if parent is None:
        row.delete()
    assert ("died" in banners(admin_client)) is told


def test_a_child_of_a_dead_parent(admin_client: Client) -> None:
    """Both are counted: the child is why its parent has died."""
    parent = letter(died_at=ago(4), task_path="shop.tasks.whole")
    letter(died_at=ago(5), parent_id=parent.pk, task_path="shop.tasks.part")
    assert "whole" in banners(admin_client)
    assert "part" in banners(admin_client)
