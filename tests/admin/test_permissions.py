"""Who may do what: each view and each action has its permissions, and nothing is done by a link or by another site."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from django_vtqueue import requeueing
from django_vtqueue.admin import ReadOnlyAdmin
from django_vtqueue.models import DeadLetter, Job, QueueState, Requeue, Schedule, WorkerProcess

from ..project.tasks import add
from .rows import WORKER, worker
from .test_admin import act, job, letter, page
from .test_admin import client_with as client_with

pytestmark = pytest.mark.django_db

# The views beside Django's, and the permissions that each needs.
VIEWS = {
    "job_enqueue": ("enqueue_job",),
    "deadletter_groups": ("view_deadletter",),
    "deadletter_export": ("view_deadletter",),
    "deadletter_requeue": ("requeue_deadletter", "view_deadletter"),  # it shows letters, or counts them
    "deadletter_discard": ("discard_deadletter", "view_deadletter"),
    "deadletter_edit": ("requeue_deadletter", "view_deadletter"),
    "deadletter_review": ("change_deadletter",),
    "requeue_stop": ("requeue_deadletter", "view_deadletter"),
    "requeue_resume": ("requeue_deadletter", "view_deadletter"),
    "workerprocess_ask": ("stop_worker",),
    "queuestate_pause": ("pause_queue",),
    "queuestate_resume": ("pause_queue",),
    "queuestate_charts": ("view_job",),
    "schedule_pause": ("run_schedule",),
    "schedule_resume": ("run_schedule",),
    "schedule_run": ("run_schedule",),
    "schedule_edit": ("change_schedule",),
}
READING = {"deadletter_groups", "deadletter_export", "queuestate_charts"}
# Without a page of their own.
BUTTONS = {"requeue_stop", "requeue_resume", "workerprocess_ask", "queuestate_resume"}
BUTTONS |= {"schedule_pause", "schedule_resume", "schedule_run"}
ACTIONS = {
    ("job", "run_now"): "run_job",
    ("job", "change_priority"): "change_job",
    ("job", "move"): "change_job",
    ("job", "cancel"): "cancel_job",
    ("job", "delete_selected"): "delete_job",
    ("deadletter", "requeue"): "requeue_deadletter",
    ("deadletter", "review_selected"): "change_deadletter",
    ("deadletter", "delete_selected"): "discard_deadletter",
}
FILLED_IN = {"criteria": "{}", "note": "x", "worker_id": WORKER, "to": "stop", "queue_name": "mail", "priority": "9"}
NO_ARGUMENTS: dict[str, Any] = {"args": [], "kwargs": {}}
FILLED_IN |= {"name": "nightly"}


@pytest.fixture
def addresses() -> dict[str, str]:
    """Return where the views are, with rows for each to be about."""
    row, _worker = letter(), worker()
    run = requeueing.start(requeueing.Criteria(), rate=1)
    Schedule.objects.create(name="nightly", task_path=add.module_path, expression="every 60", payload=NO_ARGUMENTS)
    about = {"deadletter_edit": row, "deadletter_review": row, "requeue_stop": run, "requeue_resume": run}
    return {
        view: reverse(f"admin:vtqueue_{view}", args=[about[view].pk] if view in about else [])  # type: ignore[attr-defined]
        for view in VIEWS
    } | {"schedule_edit": f"{reverse('admin:vtqueue_schedule_edit')}?name=nightly"}


def stored() -> list[Any]:
    """Return all rows, to see that nothing has changed."""
    return [
        list(model.objects.order_by("pk").values())
        for model in (Job, DeadLetter, Requeue, QueueState, Schedule, LogEntry)
    ]


def test_each_view_has_its_permissions_here() -> None:
    """The table above has all of them."""
    pages = [page for page in admin.site._registry.values() if isinstance(page, ReadOnlyAdmin)]
    views = {f"{page.opts.model_name}_{place.rpartition('/')[2]}" for page in pages for place in page.own_views()}
    assert {"job_enqueue", "requeue_stop"} <= views <= VIEWS.keys()


@pytest.mark.parametrize(("view", "missing"), [(view, each) for view, needed in VIEWS.items() for each in needed])
def test_views(staff: Callable[..., Client], addresses: dict[str, str], view: str, missing: str) -> None:
    """Without one of the permissions that it needs a view is refused, and nothing has changed."""
    client, before = staff(*{*VIEWS[view]} - {missing}), stored()
    assert client.get(addresses[view]).status_code == client.post(addresses[view], FILLED_IN).status_code == 403
    assert stored() == before


@pytest.mark.parametrize("view", VIEWS)
def test_views_with_their_permissions(staff: Callable[..., Client], addresses: dict[str, str], view: str) -> None:
    """They are enough."""
    client = staff(*VIEWS[view])
    assert client.get(addresses[view]).status_code == (405 if view in BUTTONS else 200)
    assert client.post(addresses[view], FILLED_IN).status_code in (200, 302)


@pytest.mark.parametrize("view", [view for view in VIEWS if view not in READING])
def test_only_a_post_with_a_token_acts(admin_user: User, addresses: dict[str, str], view: str) -> None:
    """A link changes nothing, nor does a form of another site; who is not logged in is sent to the login."""
    client, before = Client(enforce_csrf_checks=True), stored()
    assert "/login/" in Client().post(addresses[view], FILLED_IN)["Location"]
    client.force_login(admin_user)
    assert client.post(addresses[view], FILLED_IN).status_code == 403
    client.get(addresses[view], FILLED_IN)
    assert stored() == before


def test_an_action_needs_a_token(admin_user: User) -> None:
    """An action asked for by GET, or by another site's form, is not carried out."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)
    data = {"action": "run_now", "_selected_action": str(job("scheduled").pk)}
    before = stored()
    assert client.post(reverse("admin:vtqueue_job_changelist"), data).status_code == 403
    client.get(reverse("admin:vtqueue_job_changelist"), data)
    assert stored() == before


@pytest.mark.parametrize("allowed", [None, *dict.fromkeys(ACTIONS.values())])
def test_each_action_has_its_permission(client_with: Callable[..., Client], allowed: str | None) -> None:
    """Who may only look is offered no action; a permission offers its own. A forged POST of another is refused."""
    client = client_with(*([allowed] if allowed else []))
    for (model, action), permission in ACTIONS.items():
        row: Model = job("scheduled") if model == "job" else letter()
        offered = (
            f'<option value="{action}">' in client.get(reverse(f"admin:vtqueue_{model}_changelist")).content.decode()
        )
        before = stored()
        answer = act(client, action, row, **FILLED_IN, post="yes")
        assert offered == (permission == allowed)
        assert (answer.status_code == 403) == (stored() == before) == (permission != allowed)


def test_buttons_on_the_page(client_with: Callable[..., Client], admin_client: Client) -> None:
    """A page has the buttons of the actions that are possible, for those who have their permissions."""

    def buttons(client: Client, row: Model) -> set[str]:
        return set(re.findall(r'<input type="hidden" name="action" value="(\w+)">', page(client, row)))

    waiting, held, done, dead = job("scheduled"), job("running"), job("done"), letter()
    assert buttons(admin_client, waiting) == {"run_now", "change_priority", "move", "cancel", "delete_selected"}
    assert buttons(admin_client, held) == {"cancel"}
    assert buttons(admin_client, done) == {"delete_selected"}
    assert buttons(admin_client, dead) == {"requeue", "delete_selected"}
    viewer = client_with()
    for row in (waiting, held, done, dead):
        assert buttons(viewer, row) == set()


def test_links_to_views(client_with: Callable[..., Client]) -> None:
    """Who may only look finds no link to a view that changes something."""
    client, rows = client_with(), (letter(), job("done"))
    lists = ("deadletter_groups", "deadletter_changelist", "job_changelist")
    shown = [client.get(reverse(f"admin:vtqueue_{name}")).content.decode() for name in lists]
    for html in (*shown, *(page(client, row) for row in rows)):
        assert not re.search(r"/(requeue|discard|edit|review|enqueue)/[?\"]", html)


def test_pages_change_nothing(admin_client: Client) -> None:
    """No page adds or edits a row, for a superuser either; that of Django which deletes one leads to the row's page."""
    rows = [job("scheduled"), letter(), worker()]
    before = stored()
    for row in rows:
        name, pk = f"admin:vtqueue_{row._meta.model_name}", quote(row.pk)
        for url in (reverse(f"{name}_add"), reverse(f"{name}_change", args=[pk])):
            assert admin_client.post(url, {"queue_name": "x"}).status_code == 403
        deleting = admin_client.post(reverse(f"{name}_delete", args=[pk]), {"post": "yes"})
        assert deleting.status_code == (403 if isinstance(row, WorkerProcess) else 302)
    assert stored() == before
    assert WorkerProcess.objects.exists()
