"""Filters of the lists. A filter says what to look for; the list (changelists.py) looks for it."""

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..core import states
from ..core.counts import HOUR, MINUTE
from ..core.ids import shown_worker
from ..engines import backend_options, database_for, engine_for, named_queues
from ..inspection.overview import names
from ..models import WorkerProcess
from ..tasks.lookup import loaded_tasks
from . import display

CHOICES = 100  # of one filter
LABELS = {
    "due": _("due"),
    "scheduled": _("scheduled"),
    "retrying": _("retrying"),
    "waiting": _("waiting"),
    "blocked": _("blocked"),
    "running": _("running"),
    "expired": _("expired"),
    "done": _("done"),
    "dead": _("dead"),
}
DAY = 24 * HOUR
PERIODS = {
    "quarter": (_("Last 15 minutes"), 15 * MINUTE),
    "hour": (_("Last hour"), HOUR),
    "day": (_("Last 24 hours"), DAY),
    "week": (_("Last 7 days"), 7 * DAY),
}
OLDER = "older"


class Filter(admin.SimpleListFilter):
    """A filter whose value is looked for in the column of its parameter's name."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        names = self.names(database_for(), model_admin.opts.model_name)
        chosen = self.value()
        return [
            (name, self.label(name)) for name in sorted({*names} - {""} | ({chosen} if chosen is not None else set()))
        ]

    def names(self, database: str, model_name: str) -> list[str]:
        """Return the values that one can choose."""
        return names(database, str(self.parameter_name), CHOICES)

    def label(self, name: str) -> str:
        return name

    def criteria(self, now: int) -> dict[str, Any]:
        """Return what to look for, by the names of ListQuery."""
        return {} if (value := self.value()) is None else {str(self.parameter_name): value}


class QueueFilter(Filter):
    """By queue: those configured, and those in which something is."""

    title, parameter_name = _("queue"), "queue_name"

    def names(self, database: str, model_name: str) -> list[str]:
        found = (
            engine_for(database).queue_names(CHOICES) if model_name == "job" else super().names(database, model_name)
        )
        return [*named_queues(database), *found]


class TaskFilter(Filter):
    """Dead letters by task; an empty one is that of raw payloads."""

    title, parameter_name = _("task"), "task_path"

    def label(self, name: str) -> str:
        return name or gettext("(raw payload)")


class JobTaskFilter(TaskFilter):
    """Jobs by task: those that this process knows, for there is no index of the others."""

    def names(self, database: str, model_name: str) -> list[str]:
        return sorted({task.module_path for task in loaded_tasks(backend_options(database).task_modules)})[:CHOICES]


class ExceptionFilter(Filter):
    """Dead letters by the class of their last exception."""

    title, parameter_name = _("exception"), "exception_class"


class WorkerFilter(Filter):
    """By worker: those that announced themselves."""

    title, parameter_name = _("worker"), "worker_id"

    def names(self, database: str, model_name: str) -> list[str]:
        return list(WorkerProcess.objects.using(database).order_by("pk").values_list("pk", flat=True)[:CHOICES])

    def label(self, name: str) -> str:
        return shown_worker(name)


class PeriodFilter(Filter):
    """By time, from now back."""

    title, parameter_name = _("time"), "time"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [*((name, label) for name, (label, _microseconds) in PERIODS.items()), (OLDER, _("Older"))]

    def criteria(self, now: int) -> dict[str, Any]:
        if self.value() == OLDER:
            return {"until": now - 7 * DAY}
        return {"since": now - PERIODS[name][1]} if (name := self.value()) in PERIODS else {}


class StateFilter(Filter):
    """Jobs by the word for their state, with how many there are."""

    title, parameter_name = _("state"), "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(word, LABELS[word]) for word in states.WORDS if word != "dead"]

    def criteria(self, now: int) -> dict[str, Any]:
        return {"word": word} if (word := self.value()) in dict(self.lookup_choices) else {}

    def choices(self, changelist: Any) -> Iterator[Any]:
        first, *others = super().choices(changelist)
        yield first
        for (word, label), choice in zip(self.lookup_choices, others, strict=True):
            rows, more = changelist.counts.get(word, (0, True))
            if rows or not more:
                choice["display"] = f"{label} ({display.number(rows, more=more)})"
            yield choice
