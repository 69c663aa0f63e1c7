"""The pages between Django's own: their breadcrumbs, also on an older Django, and on another site of one's own."""

import re
from html import unescape
from typing import Any

import django
import pytest
from django.contrib import admin
from django.test import Client
from django.urls import path, reverse

from django_vtqueue.admin import DeadLetterAdmin, JobAdmin, QueueStateAdmin, RequeueAdmin, WorkerProcessAdmin
from django_vtqueue.models import DeadLetter, Job, QueueState, Requeue, WorkerProcess

from .rows import OVERVIEW, html, worker
from .test_admin import act, job, letter

pytestmark = pytest.mark.django_db

PAGES = ["job_enqueue", "deadletter_groups", "deadletter_requeue", "deadletter_discard", "queuestate_pause"]
OF_A_LETTER = ["deadletter_edit", "deadletter_review"]

office = admin.AdminSite(name="office")
office.register(Job, JobAdmin)
office.register(DeadLetter, DeadLetterAdmin)
office.register(QueueState, QueueStateAdmin)
office.register(Requeue, RequeueAdmin)
office.register(WorkerProcess, WorkerProcessAdmin)
small = admin.AdminSite(name="small")
small.register(DeadLetter, DeadLetterAdmin)
urlpatterns = [path("office/", office.urls), path("small/", small.urls), path("admin/", admin.site.urls)]


def addresses(site: str, row: DeadLetter) -> list[str]:
    """Return the pages of our own on a site."""
    pages = [reverse(f"{site}:vtqueue_{name}") for name in PAGES]
    return pages + [reverse(f"{site}:vtqueue_{name}", args=[row.pk]) for name in OF_A_LETTER]


def test_breadcrumbs(admin_client: Client) -> None:
    """Each page says where it is: within the app, within its list, in the markup that this Django's styles know."""
    kind = "ol" if django.VERSION >= (6, 1) else "div"
    for address in addresses("admin", letter()):
        [crumbs] = re.findall(f'<{kind} class="breadcrumbs">(.*?)</{kind}>', html(admin_client, address), re.DOTALL)
        links = re.findall('href="([^"]+)"', crumbs)
        assert links[:2] == ["/admin/", "/admin/vtqueue/"]
        assert links[2:] == [each for each in ("/admin/vtqueue/job/", "/admin/vtqueue/deadletter/") if each in address]


@pytest.mark.urls(__name__)
def test_links_stay_on_their_site(admin_client: Client) -> None:
    """On another site no page leads to the first one, nor does what comes after a form."""
    seen, held = letter(), job("running", worker_id=worker().pk, queue_name="mail")
    history = '[{"number":1,"worker":"web1:4711:abcd","started":1,"ended":2,"outcome":"failed"}]'
    dead, again = letter(history=history), letter()
    pages = addresses("office", dead)
    for name, row in (("job", held), ("deadletter", dead)):
        pages.append(reverse(f"office:vtqueue_{name}_change", args=[row.pk]))
    for address in pages:
        assert not re.findall(r'(?:href|action)="(/admin/[^"]*)"', html(admin_client, address))

    def led(name: str, *args: object, **data: Any) -> str:
        return str(admin_client.post(reverse(f"office:vtqueue_{name}", args=args), data)["Location"])

    form = admin_client.get(reverse("office:vtqueue_deadletter_edit", args=[again.pk])).context["form"]
    values = {name: form[name].value() for name in form.fields}
    assert led("deadletter_edit", again.pk, **values) == f"/office/vtqueue/job/{again.pk}/change/"
    reviewed = f"/office/vtqueue/deadletter/{seen.pk}/change/"
    assert led("deadletter_review", seen.pk, note="") == reviewed
    assert led("deadletter_requeue", criteria="{}", rate="1").startswith("/office/vtqueue/requeue/")
    assert led("deadletter_requeue", criteria="").startswith("/office/vtqueue/deadletter/")
    discarding = {"action": "delete_selected", "_selected_action": str(dead.pk), "page": "1", "post": "yes"}
    assert led("deadletter_changelist", **discarding) == "/office/vtqueue/deadletter/"
    assert led("job_enqueue", task_path="tests.project.tasks.add", arguments="[1,2]").startswith("/office/vtqueue/job/")
    assert led("queuestate_pause", queue_name="mail") == "/office/vtqueue/"


@pytest.mark.urls(__name__)
def test_a_site_without_all_pages(admin_client: Client) -> None:
    """Where a site does not have the page that comes next, what was done leads to the first one of the site."""
    row = letter()
    groups = html(admin_client, reverse("small:vtqueue_deadletter_groups"))
    assert row.task_path in groups
    assert "/charts/" not in groups
    address = reverse("small:vtqueue_deadletter_edit", args=[row.pk])
    form = admin_client.get(address).context["form"]
    response = admin_client.post(address, {name: form[name].value() for name in form.fields})
    assert response["Location"] == "/small/"
    assert Job.objects.get().pk == row.pk


def test_queues_of_two_backends(admin_client: Client, settings: Any) -> None:
    """A job may go to the queue of any backend that shares the database, and all of them are offered."""
    entry = {"BACKEND": settings.TASKS["default"]["BACKEND"]}
    settings.TASKS = {"default": {**entry, "QUEUES": ["default"]}, "mail": {**entry, "QUEUES": ["mail"]}}
    row = job()
    assert '<option value="mail">' in act(admin_client, "move", row).content.decode()
    act(admin_client, "move", row, post="yes", queue_name="mail")
    assert Job.objects.get().queue_name == "mail"


def test_ways_back(admin_client: Client) -> None:
    """A form that one came to from a page has a link back to it, beside the button."""
    row = letter()
    own, all_of = (
        f"/admin/vtqueue/deadletter/{row.pk}/change/",
        "/admin/vtqueue/deadletter/?queue_name=default",
    )
    backs = {"queuestate_pause": OVERVIEW, "deadletter_edit": own, "deadletter_review": own}
    for name, back in {**backs, "deadletter_requeue": all_of, "deadletter_discard": all_of}.items():
        address = reverse(f"admin:vtqueue_{name}", args=[row.pk] if back is own else [])
        [link] = re.findall('class="closelink" href="([^"]+)"', html(admin_client, f"{address}?queue_name=default"))
        assert link.startswith(back)
    assert admin_client.get(unescape(link)).status_code == 200
