"""What is secret by the name of its parameter is hidden wherever the admin shows the call of a task."""

import pytest
from django.test import Client
from django.urls import reverse

from django_vtqueue import task

from ..test_admin import job, letter, listed, page
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
    pages = [page(admin_client, waiting), page(admin_client, dead), shown(admin_client, "edit", dead.pk)]
    pages.append(admin_client.get(reverse("admin:vtqueue_job_enqueue"), {"like": str(waiting.pk)}).content.decode())
    pages.append(b"".join(admin_client.get(reverse("admin:vtqueue_deadletter_export"))).decode())
    for found in pages:
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
