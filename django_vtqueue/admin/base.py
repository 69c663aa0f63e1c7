"""The base of the pages of all tables."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeAlias

import django
from django.contrib import admin
from django.contrib.admin.helpers import ActionForm
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import DatabaseError
from django.db.models import Model, QuerySet
from django.forms import Form
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.text import capfirst

from ..engines import Trouble, database_for, engine_for
from .links import address

CRUMBS = "vtqueue/crumbs_as_list.html" if django.VERSION >= (6, 1) else "vtqueue/crumbs.html"
LARGE = ("payload", "history", "result", "steps", "earlier_steps", "followed")
POSTED_KEYS = ("name", "worker_id")  # that no form validates
Views: TypeAlias = dict[str, tuple[Callable[..., HttpResponseBase], str]]


def without_nul(patterns: list[URLPattern]) -> list[URLPattern]:
    """Have the views answer 400 to a NUL character in an address or a form: PostgreSQL takes none, not in a query."""

    def checked(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
        @wraps(view)
        def call(request: HttpRequest, *args: Any, **named: Any) -> HttpResponseBase:
            given = [text for name, texts in request.GET.lists() if name != "q" for text in texts]  # q has a form
            keys = [request.POST.get(name, "") for name in POSTED_KEYS]
            if any("\0" in str(text) for text in [*given, *keys, *named.values()]):
                raise BadRequest("There is a NUL character in the address or the form.")
            return view(request, *args, **named)

        return call

    for pattern in patterns:
        pattern.callback = checked(pattern.callback)
    return patterns


def permitted(codename: str) -> Callable[[Any, HttpRequest], bool]:
    """Return a method that says whether a user has a permission of the app."""

    def has_permission(model_admin: Any, request: HttpRequest) -> bool:
        return request.user.has_perm(f"vtqueue.{codename}")

    return has_permission


class LeanChangeList(ChangeList):
    """A list that leaves the large columns in the database."""

    def get_queryset(self, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        return self.without_large_columns(super().get_queryset(*args, **kwargs))

    def without_large_columns(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        names = {field.name for field in self.lookup_opts.get_fields()}
        return queryset.defer(*names.intersection(LARGE))


class ChoiceOfAction(ActionForm):
    """The actions of a list; Unfold, a theme, shows the button beside them once this "model" has a value."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.fields["action"].widget.attrs["x-model"] = "action"


class ReadOnlyAdmin(admin.ModelAdmin):
    """Rows to look at, in the database that the workers use, whatever the routers say."""

    list_per_page = 50
    show_full_result_count = False
    ordering = ("-pk",)
    sortable_by = ()
    action_form = ChoiceOfAction
    changelist: type[ChangeList] = LeanChangeList

    class Media:
        css = {"all": ["django_vtqueue/admin.css"]}

    def own_views(self) -> Views:
        """Return the views beside Django's: by place, a function and the permission that it needs."""
        return {}

    def get_urls(self) -> list[URLPattern]:
        return [*self.own_urls(), *without_nul(super().get_urls())]

    def own_urls(self) -> list[URLPattern]:
        """Return the addresses of ``own_views``."""
        own = [
            path(
                f"{place}/",
                self.admin_site.admin_view(partial(self.call, view, permission)),
                name=f"vtqueue_{self.opts.model_name}_{place.rpartition('/')[2]}",
            )
            for place, (view, permission) in self.own_views().items()
        ]
        return without_nul(own)

    def call(
        self, view: Callable[..., HttpResponseBase], permission: str, request: HttpRequest, **arguments: Any
    ) -> HttpResponseBase:
        """Call one of our own views for a user with its permission, which is named as in ``admin.action``."""
        if not getattr(self, f"has_{permission}_permission")(request):
            raise PermissionDenied
        return view(self, request, **arguments)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).using(database_for())

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return self.changelist

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Refuse an action without its permission; Django would ignore it and show the list."""
        action = request.POST.get("action")
        if action in (self.actions or ()) and action not in self.get_actions(request):
            raise PermissionDenied
        try:
            return super().changelist_view(
                request, {"title": capfirst(self.opts.verbose_name_plural)} | (extra_context or {})
            )
        except DatabaseError as error:
            if engine_for(database_for()).trouble(error) is not Trouble.SCHEMA:
                raise
            return HttpResponseRedirect(self.overview(request))  # which says what is wrong with the tables

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Give the page of a row the name of its model: Django's title would be “View” and that name."""
        own = {"title": capfirst(self.opts.verbose_name), **self.own_context(request, kwargs["obj"])}
        return super().render_change_form(request, context | own, *args, **kwargs)

    def own_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return what else the template of the page of a row needs."""
        return {}

    def page(self, request: HttpRequest, template: str, **context: Any) -> TemplateResponse:
        """Return a page of our own, with the frame that Django's pages have."""
        own = {**self.admin_site.each_context(request), "opts": self.opts, "crumbs": CRUMBS, "media": self.media}
        return TemplateResponse(request, template, own | context)

    def form_page(self, request: HttpRequest, form: Form | None, **context: Any) -> TemplateResponse:
        """Return the page of a form, or of a question without one; the template says what else it shows."""
        media = self.media if form is None else self.media + form.media
        return self.page(request, "vtqueue/form.html", **{"form": form, "media": media, "possible": True} | context)

    def go_to(self, name: str, *args: object) -> HttpResponse:
        """Redirect to a page of the app, or to the index of a site that does not have that page."""
        site = self.admin_site.name
        return HttpResponseRedirect(address(site, name, *args) or reverse("admin:index", current_app=site))

    def overview(self, request: HttpRequest) -> str:
        """Return the address of the app's first page; of the site's for a user who may see nothing of the app."""
        site, label = self.admin_site, self.opts.app_label
        if site.get_app_list(request, label):
            return reverse("admin:app_list", args=[label], current_app=site.name)
        return reverse("admin:index", current_app=site.name)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False
