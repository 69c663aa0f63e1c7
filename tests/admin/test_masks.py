"""What is secret by its name is hidden wherever the admin shows it, and in the texts that repeat it."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client
from django.urls import reverse

from django_vtqueue import JobContext, Queue, task
from django_vtqueue.fields import text_of
from django_vtqueue.models import DeadLetter, Job
from tests.pending import run_pending

from .test_admin import job, letter, listed, page
from .tools import send, shown

pytestmark = pytest.mark.django_db


@task
def sign_in(user: str, password: str, retries: int = 3) -> None: ...


@task
def revoke(user: str, *tokens: str) -> None: ...


@task
def connect(host: str, password: str = "built-in") -> None: ...


CALLS = {
    "too many arguments": (sign_in, '{"args":["ann","hunter2",3,"hunter2"],"kwargs":{}}'),
    "an argument given twice": (sign_in, '{"args":["ann","hunter2"],"kwargs":{"user":"bob"}}'),
    "any number of them": (revoke, '{"args":["ann","x","hunter2","hunter2"],"kwargs":{}}'),
}


@pytest.mark.parametrize("call", CALLS)
def test_calls_that_do_not_fit(admin_client: Client, call: str) -> None:
    """A call that its task does not take, or of which arguments have no name each, shows no secret either."""
    function, payload = CALLS[call]
    waiting, dead = (
        job(task_path=function.module_path, payload=payload),
        letter(task_path=function.module_path, payload=payload),
    )
    for found in every_page(admin_client, waiting, dead):
        assert "hunter2" not in found
    assert not listed(admin_client, q="hunter2")
    assert not listed(admin_client, "deadletter", q="hunter2")


def test_defaults_that_are_secret(admin_client: Client) -> None:
    """Where a form says which arguments a task takes, it does not say the default of a secret one."""
    row = letter(task_path=connect.module_path, payload='{"args":["a"],"kwargs":{}}')
    form = admin_client.get(reverse("admin:vtqueue_deadletter_edit", args=[row.pk])).context["form"]
    values = {name: form[name].value() for name in form.fields} | {"payload": '{"args":[],"kwargs":{}}'}
    said = send(admin_client, "edit", row.pk, **values).content.decode()
    assert "missing a required argument" in said
    assert "built-in" not in said


@task
def reset(user: str) -> None: ...


@task
def reset_by_name(*, user: str, token: str) -> None: ...


UNKNOWN = {
    "renamed": "tests.admin.test_masks.gone",
    "not a task": "tests.admin.test_masks.shown",
    "its module does not exist": "tests.project.nowhere.reset",
    "not to be imported": "antigravity.reset",
    "an argument was taken away": reset.module_path,
    "by name only": reset_by_name.module_path,
}


def every_page(client: Client, waiting: Job, dead: DeadLetter) -> Iterator[str]:
    """Yield all that shows the call of a job, and of a letter."""
    yield page(client, waiting)
    yield page(client, dead)
    yield shown(client, "edit", dead.pk)
    yield client.get(reverse("admin:vtqueue_job_enqueue"), {"like": str(waiting.pk)}).content.decode()
    yield b"".join(client.get(reverse("admin:vtqueue_deadletter_export"))).decode()


@pytest.mark.parametrize("path", UNKNOWN.values(), ids=UNKNOWN)
def test_tasks_that_are_not_known(admin_client: Client, path: str) -> None:
    """An argument whose name is not known is hidden, and not found; what is passed by name is shown."""
    payload = '{"args":["s3cret-1","s3cret-2"],"kwargs":{"city":"Paris"}}'
    if path == reset.module_path:
        payload = payload.replace("s3cret-1", "ann")
    waiting, dead = job(task_path=path, payload=payload), letter(task_path=path, payload=payload)
    for found in every_page(admin_client, waiting, dead):
        assert "s3cret" not in found
        assert "Paris" in found
    for model, row in (("job", waiting), ("deadletter", dead)):
        assert not listed(admin_client, model, q="s3cret")
        assert listed(admin_client, model, q="Paris") == {row.pk}


def test_a_requeue_keeps_what_is_not_known(admin_client: Client) -> None:
    """A change of the letter of a task that is not known keeps its hidden arguments, each in its place."""
    dead = letter(
        task_path=UNKNOWN["renamed"], payload='{"args":["s3cret-1",["s3cret-2"],3],"kwargs":{"city":"Paris"}}'
    )
    form = admin_client.get(reverse("admin:vtqueue_deadletter_edit", args=[dead.pk])).context["form"]
    values = {name: form[name].value() for name in form.fields}
    send(admin_client, "edit", dead.pk, **values | {"payload": values["payload"].replace("Paris", "Rome")})
    assert Job.objects.get().payload == {"args": ["s3cret-1", ["s3cret-2"], 3], "kwargs": {"city": "Rome"}}


def test_damaged_arguments(admin_client: Client) -> None:
    """What cannot be read is hidden whole if the task takes a secret, or is not known: its text need not name it."""
    for path in (sign_in.module_path, revoke.module_path, UNKNOWN["renamed"]):
        waiting, dead = (store(task_path=path, payload='{"args":["ann","hunter2",') for store in (job, letter))
        for found in every_page(admin_client, waiting, dead):
            assert "hunter2" not in found
    assert not listed(admin_client, q="hunter2")
    assert "Paris" in page(admin_client, job(task_path=reset.module_path, payload='{"args":["Paris",'))


def test_deep_arguments(admin_client: Client) -> None:
    """However deeply arguments are nested, their letter can be opened to be changed, and shows no secret."""
    for depth in (500, 900, 950, 2000):
        payload = '{"a":' * depth + '{"password":"hunter2"}' + "}" * depth
        assert "hunter2" not in shown(admin_client, "edit", letter(task_path="", payload=payload).pk)


# -- several backends --------------------------------------------------------------------------------------------------

BOTH = '{"args":[],"kwargs":{"n":{"ssn":"078-05-1120","iban":"DE12-3456"}}}'
BACKENDS = {"default": ("mail", "IBAN"), "hr": ("staff", "ssn")}
HIDDEN_OF = {"mail": {"DE12-3456"}, "staff": {"078-05-1120"}, "nobody's": {"DE12-3456", "078-05-1120"}}


@pytest.fixture
def two_backends(settings: Any) -> None:
    """Two backends in one database, each with a queue and a mask of its own."""
    own = settings.TASKS["default"]
    settings.TASKS = {
        alias: {**own, "QUEUES": [queue], "OPTIONS": {"mask": [word]}} for alias, (queue, word) in BACKENDS.items()
    }


@pytest.mark.usefixtures("two_backends")
@pytest.mark.parametrize("queue", HIDDEN_OF)
def test_each_backend_has_its_mask(admin_client: Client, queue: str) -> None:
    """The mask of the backend that serves a queue counts for it, and all of them for a queue that none serves."""
    values = {"queue_name": queue, "payload": BOTH, "task_path": reset.module_path}
    waiting, dead = job("done", **values, result=BOTH), letter(**values)
    for found in every_page(admin_client, waiting, dead):
        assert {part for part in ("DE12-3456", "078-05-1120") if part not in found} == HIDDEN_OF[queue]
    for part in ("DE12-3456", "078-05-1120"):
        sought = set() if part in HIDDEN_OF[queue] else {waiting.pk, dead.pk}
        assert listed(admin_client, q=part) | listed(admin_client, "deadletter", q=part) == sought


@pytest.mark.usefixtures("two_backends")
def test_a_requeue_keeps_what_another_backend_hides(admin_client: Client) -> None:
    """What the mask of a second backend hides stays as it is stored when the rest is changed."""
    dead = letter(queue_name="staff", payload=BOTH, task_path="")
    form = admin_client.get(reverse("admin:vtqueue_deadletter_edit", args=[dead.pk])).context["form"]
    values = {name: form[name].value() for name in form.fields}
    send(admin_client, "edit", dead.pk, **values | {"payload": values["payload"].replace("DE12", "FR99")})
    assert text_of(Job.objects.get().payload) == BOTH.replace("DE12", "FR99")


@pytest.mark.usefixtures("two_backends")
def test_the_task_decides_which_mask_a_form_has(admin_client: Client) -> None:
    """Where the form for a new job says what a task takes, it hides the defaults that the task's queue hides."""
    hire = task(backend="hr", queue_name="staff")(hire_function)
    globals()["hire_function"], kept = hire, hire_function
    try:
        response = admin_client.post(
            reverse("admin:vtqueue_job_enqueue"), {"task_path": hire.module_path, "arguments": "[]"}
        )
    finally:
        globals()["hire_function"] = kept
    told = str(response.context["form"].errors)
    assert "missing a required argument" in told
    assert "built-in" not in told


def hire_function(name: str, ssn: str = "built-in") -> None: ...


# -- texts that repeat what is hidden ----------------------------------------------------------------------------------


@task(max_attempts=2, backoff=3600)
def log_in(user: str, password: str, **more: Any) -> None:
    try:
        raise KeyError(password)
    except KeyError as error:
        error.add_note(f"sent to https://example.com/?{urlencode({'password': password})}")
        raise ValueError(f"{user} may not use {password}, {json.dumps(more)}") from error


@task(max_attempts=1, takes_context=True)
def log_in_slowly(context: JobContext, token: str) -> None:
    context.progress(0.5, f"half way with {token}")


def everywhere(client: Client) -> Iterator[str]:
    """Yield each page on which the text of an exception stands."""
    yield b"".join(client.get(reverse("admin:vtqueue_deadletter_export"))).decode()
    for view in ("changelist", "groups"):
        yield shown(client, view)
    yield client.get(reverse("admin:vtqueue_job_changelist")).content.decode()
    for model in (Job, DeadLetter):
        for row in model.objects.all():
            yield page(client, row)
            if isinstance(row, DeadLetter):
                yield shown(client, "edit", row.pk)


@pytest.mark.parametrize("attempts", [1, 2], ids=["waits for a retry", "dead"])
def test_exceptions_of_tasks(admin_client: Client, attempts: int) -> None:
    """No page shows, no search finds, and no result tells a value that is hidden and that an exception repeats."""
    nested = {"account": [{"api_token": "t0p/s3cret", "pin": 1}]}
    result = log_in.enqueue("ann", "hunter2 &c", **nested)
    run_pending(until=timedelta(hours=2 * (attempts - 1)))
    rows = [*Job.objects.all(), *DeadLetter.objects.all()]
    pages = [*everywhere(admin_client)]
    assert any("may not use ••••" in each for each in pages)
    assert sum("ann may not use" in each for each in pages) >= attempts
    result.refresh()
    stored = "".join(str(row.history) + getattr(row, "message", "") for row in rows)
    for text in (*pages, stored, *(error.traceback for error in result.errors)):
        assert not any(secret in text for secret in ("hunter2", "s3cret"))
    for secret in ("hunter2", "s3cret"):
        assert not listed(admin_client, "deadletter", q=secret)
    assert len(listed(admin_client, "deadletter", q="ann may not")) == attempts - 1


def test_progress(admin_client: Client) -> None:
    """What a task says of its progress does not repeat what is hidden either."""
    log_in_slowly.enqueue("hunter2")
    run_pending()
    assert Job.objects.get().progress_text == "half way with ••••"


def test_errors_of_raw_jobs(admin_client: Client) -> None:
    """The same for what a consumer says of a payload, as a text or as an exception."""
    queue = Queue("sensors", max_attempts=1)
    payload = {"device": "d-17", "auth": {"token": "hunter2"}}
    queue.publish_many([payload] * 2)
    for error in ("d-17 refused hunter2", ValueError({"refused": payload})):
        claimed = queue.claim()
        assert claimed
        claimed.nack(error=error)
    assert DeadLetter.objects.count() == 2
    for found in everywhere(admin_client):
        assert "hunter2" not in found
    assert not listed(admin_client, "deadletter", q="hunter2")
    assert len(listed(admin_client, "deadletter", q="d-17")) == 2


@pytest.mark.usefixtures("two_backends")
def test_exceptions_have_the_mask_of_their_queue(admin_client: Client) -> None:
    """What an exception must not repeat is what the mask of the backend of its queue hides."""
    queue = Queue("staff", max_attempts=1)
    queue.publish({"ssn": "078-05-1120", "iban": "DE12-3456"})
    claimed = queue.claim()
    assert claimed
    claimed.nack(error=str(claimed.payload))
    assert DeadLetter.objects.get().message == "{'ssn': '••••', 'iban': 'DE12-3456'}"
