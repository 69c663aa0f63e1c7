"""The states as people call them, as conditions on the columns."""

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from .. import states
from ..engines import engine_for

LABELS = {
    "due": _("due"),
    "scheduled": _("scheduled"),
    "retrying": _("retrying"),
    "running": _("running"),
    "expired": _("expired"),
    "done": _("done"),
    "dead": _("dead"),
}


def condition(word: str, now: int) -> Q:
    """Return what ``states.word`` says, as a condition; "finished" comes with it, for the indexes' sake."""
    waiting = Q(finished_at__isnull=True, state=states.READY)
    held = Q(finished_at__isnull=True, state=states.RUNNING)
    return {
        "due": waiting & Q(visible_at__lte=now),
        "scheduled": waiting & Q(visible_at__gt=now, attempts=0),
        "retrying": waiting & Q(visible_at__gt=now, attempts__gt=0),
        "running": held & Q(visible_at__gt=now),
        "expired": held & Q(visible_at__lte=now),
        "done": Q(finished_at__isnull=False),
    }[word]


class StateFilter(admin.SimpleListFilter):
    """Jobs by the word for their state."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(word, LABELS[word]) for word in states.WORDS if word != "dead"]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        word = self.value()
        if word not in dict(self.lookup_choices):
            return queryset
        return queryset.filter(condition(word, engine_for(queryset.db).now()))
