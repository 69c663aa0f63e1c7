"""Links to pages, on the admin site that a page is on, and as far as its user may go there."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from ..core import clock
from ..core.humanize import local
from ..models import DeadLetter, Job, Requeue, Schedule, WorkerProcess


class Pages:
    """The addresses of lists and of actions on one admin site; None: not for this user, or not on this site.

    ``app_list``: as Django's admin gives it to its templates.
    """

    def __init__(self, request: HttpRequest, app_list: Sequence[Mapping[str, Any]]) -> None:
        match = request.resolver_match
        self.site: str = getattr(request, "current_app", None) or (match.namespace if match else "admin")
        app: Mapping[str, Any] = next((app for app in app_list if app["app_label"] == "vtqueue"), {})
        lists: dict[str, str] = {model["object_name"]: model["admin_url"] for model in app.get("models", ())}

        def action(permission: str, name: str) -> str | None:
            return address(self.site, name) if request.user.has_perm(f"vtqueue.{permission}") else None

        self.overview: str | None = app.get("app_url")
        self.jobs, self.letters = lists.get("Job"), lists.get("DeadLetter")
        self.groups = self.letters and address(self.site, "deadletter_groups")
        self.requeues, self.schedules = lists.get("Requeue"), lists.get("Schedule")
        self.workers = lists.get("WorkerProcess")
        self.charts = action("view_job", "queuestate_charts")
        self.pause = action("pause_queue", "queuestate_pause")
        self.resume = action("pause_queue", "queuestate_resume")
        self.ask = action("stop_worker", "workerprocess_ask")


def tabs(request: HttpRequest, app_list: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the tabs that this user may open, for the template; ``here``: this page is it, or belongs to it.

    ``app_list``: see Pages.
    """
    pages = Pages(request, app_list)
    found = (
        (_("Overview"), pages.overview),
        (capfirst(Job._meta.verbose_name_plural), pages.jobs),
        (capfirst(DeadLetter._meta.verbose_name_plural), pages.letters),
        (_("Failures"), pages.groups),
        (capfirst(Requeue._meta.verbose_name_plural), pages.requeues),
        (capfirst(Schedule._meta.verbose_name_plural), pages.schedules),
        (capfirst(WorkerProcess._meta.verbose_name_plural), pages.workers),
        (_("Charts"), pages.jobs and pages.charts),
    )
    here = max((url for _text, url in found if url and request.path.startswith(url)), key=len, default="")
    return [{"text": text, "url": url, "here": url == here} for text, url in found if url]


def zone() -> str:
    """Return the name of the time zone in which the pages have their times."""
    return local(clock.from_instant(clock.now())).tzname() or ""


def address(site: str, name: str, *args: object) -> str | None:
    """Return the address of a page of the app on an admin site; None if its model is not registered there."""
    try:
        return reverse(f"admin:vtqueue_{name}", args=args, current_app=site)
    except NoReverseMatch:
        return None


def link(site: str, name: str, text: object, *args: object, **query: str) -> SafeString | str:
    """Return a link to a page of the app on an admin site; the text alone where there is no such page."""
    found = address(site, name, *args)
    if found is None:
        return str(text)
    return format_html('<a href="{}">{}</a>', f"{found}?{urlencode(query)}" if query else found, text)
