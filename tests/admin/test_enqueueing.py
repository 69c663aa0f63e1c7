"""Enqueueing from the admin: a registered task, arguments that fit it, the backend's own way; and again like a job."""

import html
import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import ADDITION, LogEntry
from django.core.exceptions import ValidationError
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from django_vtqueue import Queue, TaskContext, task
from django_vtqueue.admin.fields import check_call
from django_vtqueue.core import clock
from django_vtqueue.core.masks import Mask
from django_vtqueue.models import Job
from django_vtqueue.tasks.compat import task_enqueued
from tests.pending import run_pending

from ..fake_clock import FakeClock
from ..project.tasks import add, hold_newest
from .test_admin import EVIL, SECOND, client_with, job, page, sign_in

__all__ = ["client_with"]

pytestmark = pytest.mark.django_db

ADD = add.module_path
ENQUEUE = reverse("admin:vtqueue_job_enqueue")


@task(takes_context=True, queue_name="mail", priority=3)
def with_context(context: TaskContext, user: str) -> None: ...


@task(takes_context=True)
def with_any_options(context: TaskContext, **options: Any) -> None: ...


def sent(client: Client, arguments: Any = "[1, 2]", task_path: str = ADD, **more: Any) -> HttpResponse:
    """Send the form."""
    return client.post(ENQUEUE, {"task_path": task_path, "arguments": arguments, **more})  # type: ignore[return-value]


def errors(response: HttpResponse) -> str:
    """Return what the form says against what was sent."""
    assert response.status_code == 200
    return html.unescape(response.context["form"].errors.as_text())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "arguments",
    ["[1, 2]", '{"a": 1, "b": 2}', '{"args": [1], "kwargs": {"b": 2}}', '{"args": [], "kwargs": {"a": 1, "b": 2}}'],
)
def test_enqueue(admin_client: Client, arguments: str) -> None:
    """A task and its arguments become a job, which runs; its page is shown, and the admin's log has it."""
    response = sent(admin_client, arguments)
    row = Job.objects.get()
    assert response["Location"] == reverse("admin:vtqueue_job_change", args=[row.pk])
    assert (row.task_path, row.queue_name, row.priority) == (ADD, "default", 0)
    entry = LogEntry.objects.get()
    assert (entry.action_flag, entry.object_id) == (ADDITION, str(row.pk))
    run_pending()
    assert Job.objects.get().result == 3


def test_where_and_when(admin_client: Client, time: FakeClock) -> None:
    """Queue, priority and time may be given; what is not is the task's own."""
    path = with_context.module_path
    sent(admin_client, '["ann"]', path)
    sent(admin_client, '{"user": "ann"}', path, queue_name="other", priority="-5", delay="90")
    at = (timezone.localtime() + timedelta(days=400)).replace(microsecond=0)
    sent(admin_client, '{"user": "ann"}', path, run_at=f"{at:%Y-%m-%dT%H:%M:%S}")
    own, given, later = Job.objects.order_by("pk")
    assert (own.queue_name, own.priority, own.visible_at) == ("mail", 3, own.enqueued_at)
    assert (given.queue_name, given.priority) == ("other", -5)
    assert given.visible_at == clock.from_instant(clock.now() + 90 * SECOND)
    assert later.visible_at == at


def test_the_way_of_the_backend(admin_client: Client, django_capture_on_commit_callbacks: Any) -> None:
    """Signals are sent, and workers woken after the commit, as for any other call."""
    seen: list[Any] = []
    receiver = lambda sender, task_result, **kwargs: seen.append(task_result.args)  # noqa: E731
    task_enqueued.connect(receiver)
    try:
        with django_capture_on_commit_callbacks() as callbacks:
            sent(admin_client)
    finally:
        task_enqueued.disconnect(receiver)
    assert seen == [[1, 2]]
    assert callbacks


WRONG = {
    "too few": ({"arguments": "[1]"}, "missing a required argument: 'b'", "add(a: int, b: int) -> int"),
    "too many": ({"arguments": "[1, 2, 3]"}, "too many positional arguments", "add(a: int, b: int) -> int"),
    "unknown": ({"arguments": '{"a": 1, "c": 2}'}, "", "add(a: int, b: int) -> int"),
    "the context": (
        {"arguments": "[1, 2]", "task_path": f"{__name__}.with_context"},
        "too many positional arguments",
        "with_context(user: str) -> None",
    ),
    "no JSON": ({"arguments": "[1, 2"}, "This is not JSON", ""),
    "no arguments": ({"arguments": "3"}, "Give a list or an object.", ""),
    "NaN": ({"arguments": "[1, NaN]"}, "is not JSON", ""),
    "unknown task": ({"task_path": "tests.project.tasks.gone"}, "is not a task", ""),
    "not in an app": ({"task_path": "os.system"}, "", ""),
    "priority": ({"priority": "101"}, "less than or equal to 100", ""),
    "two times": ({"run_at": "2099-01-01T00:00:00", "delay": "5"}, "Give a time or a delay, not both.", ""),
    "time": ({"run_at": "tomorrow"}, "Enter a valid date/time.", ""),
    "delay": ({"delay": "-1"}, "greater than or equal to 0", ""),
    "queue": ({"queue_name": "x" * 256}, "at most 255 characters", ""),
}


@pytest.mark.parametrize(("values", "reason", "signature"), WRONG.values(), ids=WRONG)
def test_what_is_wrong(admin_client: Client, values: dict[str, str], reason: str, signature: str) -> None:
    """What does not fit is refused with the reason, and the signature of the task; nothing is enqueued."""
    told = errors(sent(admin_client, **values))
    assert reason in told
    assert signature in told
    assert not Job.objects.exists()
    assert not LogEntry.objects.exists()


def test_the_context_is_not_given() -> None:
    """A form refuses its name as enqueue does, also where the task takes any other: a schedule would never run."""
    with pytest.raises(ValidationError, match="'context' is passed by the worker"):
        check_call(with_any_options, [], {"context": 1}, Mask(()))
    check_call(with_any_options, [], {"other": 1}, Mask(()))


def test_the_settings_decide(admin_client: Client, settings: Any) -> None:
    """A queue that QUEUES does not name, and a payload that is too large, are refused as in code."""
    own = {**settings.TASKS["default"], "QUEUES": ["default"], "OPTIONS": {"max_payload_bytes": 100}}
    settings.TASKS = {"default": own}
    assert "The settings allow no queue “mail”" in errors(sent(admin_client, queue_name="mail"))
    assert "max_payload_bytes allows 100" in errors(sent(admin_client, json.dumps([1, "x" * 200])))


def test_tasks_of_other_backends(admin_client: Client, settings: Any) -> None:
    """A task whose backend keeps its jobs elsewhere, or nowhere, is not enqueued from here."""
    immediate = add.get_backend().__class__.__mro__[1].__module__.replace("base", "immediate") + ".ImmediateBackend"
    settings.TASKS = {**settings.TASKS, "now": {"BACKEND": immediate, "QUEUES": []}}
    other = task(backend="now")(add.func)
    try:
        globals()["add_now"] = other
        assert "belongs to another backend of TASKS, “now”" in errors(
            sent(admin_client, "[1, 2]", f"{__name__}.add_now")
        )
    finally:
        del globals()["add_now"]


def test_known_tasks_are_offered(admin_client: Client) -> None:
    """One can choose among the tasks that this process knows, and the queues that there are."""
    job(queue_name="in-use")
    shown = admin_client.get(ENQUEUE).content.decode()
    assert f'<option value="{ADD}">' in shown
    assert '<option value="in-use">' in shown
    assert ADD in admin_client.get(ENQUEUE, {"task_path": ADD}).context["form"]["task_path"].value()


def test_again_like_a_job(admin_client: Client) -> None:
    """The form can begin with the call of a job, by the names of its parameters."""
    row = job("done", queue_name="mail", priority=7)
    address = f"{ENQUEUE}?like={row.pk}"
    assert f'href="{address}"' in page(admin_client, row)
    form = admin_client.get(address).context["form"]
    begin = {name: form[name].value() for name in ("task_path", "queue_name", "priority", "arguments")}
    assert json.loads(begin["arguments"]) == {"a": 1, "b": 2}
    admin_client.post(address, begin)
    again = Job.objects.exclude(pk=row.pk).get()
    assert (again.task_path, again.queue_name, again.priority) == (row.task_path, "mail", 7)


def test_secrets_are_not_repeated(admin_client: Client) -> None:
    """What is hidden in the job is hidden in the form, and has to be filled in: dots are no password."""
    result = sign_in.enqueue("ann", "hunter2", api_token="s3cret")
    response = admin_client.get(ENQUEUE, {"like": result.id})
    assert "ann" in response.content.decode()
    assert not any(secret in response.content.decode() for secret in ("hunter2", "s3cret"))
    told = errors(sent(admin_client, response.context["form"]["arguments"].value(), sign_in.module_path))
    assert "Fill in the values that are shown as “••••”." in told
    sent(admin_client, '{"user": "ann", "password": "hunter2"}', sign_in.module_path)
    assert "hunter2" not in json.dumps(list(LogEntry.objects.values()), default=str)


@pytest.mark.parametrize("like", ["", "no-id", "01a1ed99-c328-7c08-b09a-ad31558dc499"])
def test_like_what_is_not_there(admin_client: Client, like: str) -> None:
    """Without such a job the form begins empty; one of a raw payload, or damaged, gives what it can."""
    assert admin_client.get(ENQUEUE, {"like": like}).status_code == 200
    for row in (job(task_path=""), job(payload="{oops"), job(payload=json.dumps({"args": [EVIL], "kwargs": {}}))):
        assert "<script>alert" not in admin_client.get(ENQUEUE, {"like": str(row.pk)}).content.decode()


def test_a_full_queue_is_said(admin_client: Client, settings: Any) -> None:
    """The form says that there is no room, and nothing was stored."""
    full = {"queue_options": {"default": {"max_depth": 1}}}
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": full}}
    sent(admin_client)
    assert "Queue 'default' is full: its depth is 1" in errors(sent(admin_client))
    assert Job.objects.count() == 1


def test_a_duplicate(admin_client: Client) -> None:
    """A call whose key is taken leads to the job that is there, and says so; the admin's log has one entry only."""
    path, folder = hold_newest.module_path, '{"folder": "x", "name": "k", "text": "y"}'
    first, second = (sent(admin_client, folder, path) for _ in range(2))
    assert first["Location"] == second["Location"]
    shown = html.unescape(admin_client.get(second["Location"]).content.decode())
    assert "No job was added: this one is there already, with the unique key of the call." in shown
    assert LogEntry.objects.count() == Job.objects.count() == 1


def test_a_key_that_another_task_has(admin_client: Client) -> None:
    """The form says what DuplicateJob says."""
    Queue("default").publish({}, unique_key="k")
    refused = sent(admin_client, '{"folder": "x", "name": "k", "text": "y"}', hold_newest.module_path)
    assert "Put the name of the task into the key" in errors(refused)
    assert Job.objects.count() == 1
