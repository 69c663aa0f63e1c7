"""The workers that announced themselves: what each does, and asking one to be quiet or to stop."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import transaction
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from .. import control
from ..core import clock
from ..core.ids import shown_worker
from ..engines import engine_for
from ..inspection.overview import begun, held
from ..models import WorkerProcess
from . import display
from .base import ReadOnlyAdmin
from .worker_rows import badge, busy, ending, heartbeat, memory, word_of

DETAILS = ("host", "pid", "served", "slots", "occupied", "started", "heartbeat", "doorbell")
LISTED = 100  # running jobs on the page of a worker
MOST_LEFT = 100  # jobs on the page of a dead worker
LOOKED_AT = 10_000  # held jobs

# What a worker may be asked to do: what the user is told, and what the admin's log says.
ASKED = {
    "": (_("The worker %s is asked to work again."), _("Asked to work again.")),
    "quiet": (_("The worker %s is asked to claim nothing more."), _("Asked to claim nothing more.")),
    "stop": (_("The worker %s is asked to stop."), _("Asked to stop.")),
}


@admin.register(WorkerProcess)
class WorkerProcessAdmin(ReadOnlyAdmin):
    """Live workers, and those that died or fell silent within the last hour."""

    list_display = ("worker", "presence", "served", "slots", "occupied", "started", "heartbeat")
    ordering = ("-started_at",)
    actions = None
    fieldsets = (
        (None, {"fields": ("presence", "doing")}),
        (_("Details"), {"fields": DETAILS}),
    )

    class Media:
        css = {"all": ["django_vtqueue/overview.css"]}

    @admin.display(description=_("worker"))
    def worker(self, worker: WorkerProcess) -> str:
        return f"{worker.host}:{worker.pid}"

    @admin.display(description=_("state"))
    def presence(self, worker: WorkerProcess) -> SafeString:
        return badge(word_of(worker, clock.now()))

    @admin.display(description=_("queues"))
    def served(self, worker: WorkerProcess) -> str:
        return worker.queues.replace(",", ", ") or gettext("(all)")

    @admin.display(description=_("memory"))
    def occupied(self, worker: WorkerProcess) -> str:
        return memory(worker)

    @admin.display(description=_("started"))
    def started(self, worker: WorkerProcess) -> SafeString | str:
        return display.moment(worker.started_at)

    @admin.display(description=_("last heartbeat"))
    def heartbeat(self, worker: WorkerProcess) -> SafeString | str:
        return heartbeat(worker, clock.now())

    @admin.display(description=_("runs"))
    def doing(self, worker: WorkerProcess) -> SafeString | str:
        engine = engine_for(str(worker._state.db))
        now = engine.now()
        jobs = begun(engine.alias, [worker.pk], LISTED)
        [row] = busy([worker], held(engine.alias, LOOKED_AT, now), jobs, now, self.admin_site.name)
        if worker.died_at:
            return ending(worker, self.admin_site.name, MOST_LEFT)
        return render_to_string("vtqueue/running.html", {"row": row})

    def get_fieldsets(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """A user who may not see jobs sees the worker without them."""
        if request.user.has_perm("vtqueue.view_job"):
            return self.fieldsets
        return ((None, {"fields": ("presence", *DETAILS)}),)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_stop_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("vtqueue.stop_worker")

    def get_urls(self) -> list[URLPattern]:
        ask = path("ask/", self.admin_site.admin_view(self.ask), name="vtqueue_workerprocess_ask")
        return [ask, *super().get_urls()]

    def ask(self, request: HttpRequest) -> HttpResponse:
        """Ask a worker to be quiet, to work again, or to stop; it obeys with one of its next heartbeats."""
        if not self.has_stop_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        worker_id, to = request.POST.get("worker_id", ""), request.POST.get("to")
        if to not in ASKED:
            raise BadRequest(f"A worker can be asked to {', '.join(map(repr, ASKED))}, not {to!r}.")
        said, note = ASKED[to]
        queryset = self.get_queryset(request)
        with transaction.atomic(using=queryset.db):
            asked = control.ask([worker_id], to, using=queryset.db)
            if asked:
                self.log_change(request, WorkerProcess(pk=worker_id), str(note))
        if asked:
            self.message_user(request, said % shown_worker(worker_id), messages.SUCCESS)
        else:
            text = gettext("The worker %s is not here any more.") % shown_worker(worker_id)
            self.message_user(request, text, messages.WARNING)
        return HttpResponseRedirect(self.next(request))

    def next(self, request: HttpRequest) -> str:
        """Return the page of the admin that the button was on."""
        page = request.POST.get("next", "")
        if url_has_allowed_host_and_scheme(page, {request.get_host()}, require_https=request.is_secure()):
            return page
        return self.overview(request)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page has the buttons, if the worker is there and the user may press them."""
        worker = self.get_object(request, unquote(object_id))
        word = "gone" if worker is None else word_of(worker, clock.now())
        context: dict[str, Any] = {"word": word}
        if word not in ("gone", "died") and self.has_stop_permission(request):
            context["ask_url"] = reverse("admin:vtqueue_workerprocess_ask", current_app=self.admin_site.name)
        return super().change_view(request, object_id, form_url, {**context, **(extra_context or {})})
