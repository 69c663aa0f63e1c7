"""The workers that announced themselves."""

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from .. import clock
from ..models import WorkerProcess
from ..presence import SILENCE
from ..shown import duration
from . import display
from .base import ReadOnlyAdmin


@admin.register(WorkerProcess)
class WorkerProcessAdmin(ReadOnlyAdmin):
    """Live workers, and those that fell silent a while ago."""

    list_display = ("worker", "presence", "served", "slots", "started", "heartbeat")
    ordering = ("-started_at",)
    actions = None
    fieldsets = (
        (None, {"fields": ("presence", "host", "pid", "served", "slots", "started", "heartbeat", "doorbell")}),
    )

    @admin.display(description=_("worker"))
    def worker(self, worker: WorkerProcess) -> str:
        return f"{worker.host}:{worker.pid}"

    @admin.display(description=_("state"))
    def presence(self, worker: WorkerProcess) -> SafeString:
        silent = abs(clock.now() - clock.to_instant(worker.heartbeat_at))  # ahead: by a clock that was wrong
        if silent < clock.microseconds(SILENCE):
            return format_html('<span class="vtq-word vtq-running">{}</span>', gettext("alive"))
        return format_html('<span class="vtq-word vtq-expired">{}</span>', gettext("gone"))

    @admin.display(description=_("queues"))
    def served(self, worker: WorkerProcess) -> str:
        return worker.queues.replace(",", ", ") or gettext("(all)")

    @admin.display(description=_("started"))
    def started(self, worker: WorkerProcess) -> SafeString | str:
        return display.moment(worker.started_at)

    @admin.display(description=_("last heartbeat"))
    def heartbeat(self, worker: WorkerProcess) -> SafeString | str:
        silent = clock.now() - clock.to_instant(worker.heartbeat_at)
        return display.moment(worker.heartbeat_at, gettext("%s ago") % duration(max(silent, 0)))

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False
