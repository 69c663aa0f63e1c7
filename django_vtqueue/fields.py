"""The field of an instant: integer microseconds in the database, a datetime in Python.

Django's own datetimes are text on SQLite and do not compare reliably there, and naive local times would move a lease
when daylight saving ends.
"""

from datetime import date, datetime
from typing import Any, TypeVar

from django import forms
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import lookups
from django.db.models.expressions import Col
from django.db.models.sql import Query, UpdateQuery
from django.utils.dateparse import parse_datetime

from .clock import EPOCH, MICROSECOND, from_instant, to_instant
from .moments import AsDatetime, InstantLookup, as_instant

M = TypeVar("M", bound=models.Model)
FAR = 1 << 62  # microseconds: further than any datetime


class InstantField(models.Field):
    """A moment, to the microsecond, the same on every database and in every time zone.

    Lookups are those of a DateTimeField; they take datetimes, expressions that are datetimes, and the integer itself.
    """

    description = "Moment (integer microseconds since 1970 UTC)"

    def get_internal_type(self) -> str:
        return "BigIntegerField"

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> datetime | None:
        if value is None:
            return None
        # A text (somebody damaged the row) is above every number for SQLite, so it is shown as the last of moments.
        return from_instant(int(max(min(value, FAR), -FAR)) if isinstance(value, int | float) else FAR)

    def to_python(self, value: Any) -> datetime | None:
        if value is None or isinstance(value, datetime):
            return value
        if isinstance(value, int):
            return from_instant(value)
        if isinstance(value, date):
            return datetime(value.year, value.month, value.day)
        if isinstance(value, str) and (moment := parse_datetime(value)):
            return moment
        raise ValidationError("%(value)r is not a moment; give a datetime or ISO 8601 text.", params={"value": value})

    def get_prep_value(self, value: Any) -> int | None:
        if isinstance(value, int):
            return value
        moment = self.to_python(value)
        return None if moment is None else to_instant(moment)

    def get_db_prep_save(self, value: Any, connection: Any) -> Any:
        return as_instant(value) if hasattr(value, "as_sql") else super().get_db_prep_save(value, connection)

    def get_transform(self, lookup_name: str) -> Any:
        """Return what a DateTimeField has by this name: ``date``, ``year``, ``hour`` and so on."""
        own, transform = super().get_transform(lookup_name), models.DateTimeField().get_transform(lookup_name)
        return own or (transform and (lambda moment: transform(AsDatetime(moment))))

    def value_from_object(self, obj: models.Model) -> str | None:  # type: ignore[override]
        """Return what exports and forms show: text, for of a datetime Django's JSON keeps the milliseconds only."""
        return None if getattr(obj, self.attname) is None else self.value_to_string(obj)

    def value_to_string(self, obj: models.Model) -> str:
        """Return the moment in UTC, whole: local time without its zone is two moments when the clocks go back."""
        instant = self.get_prep_value(getattr(obj, self.attname))
        return "" if instant is None else (EPOCH + instant * MICROSECOND).isoformat()

    def formfield(self, **kwargs: Any) -> forms.Field | None:
        return super().formfield(**{"form_class": forms.DateTimeField, **kwargs})


for comparison in ("Exact", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual", "In", "Range"):
    InstantField.register_lookup(type(f"Instant{comparison}", (InstantLookup, getattr(lookups, comparison)), {}))


class MomentQuery(Query):
    """A query in whose expressions the moments of its model are datetimes."""

    def resolve_ref(self, *args: Any, **kwargs: Any) -> Any:
        found = super().resolve_ref(*args, **kwargs)
        return AsDatetime(found) if isinstance(found, Col) and isinstance(found.output_field, InstantField) else found

    def chain(self, klass: Any = None) -> Any:
        return super().chain(MomentUpdateQuery if klass is UpdateQuery else klass)


class MomentUpdateQuery(MomentQuery, UpdateQuery):
    """An update in whose expressions the moments of its model are datetimes."""


class MomentManager(models.Manager[M]):
    """The manager of a model that has moments."""

    def get_queryset(self) -> models.QuerySet[M]:
        return models.QuerySet(self.model, MomentQuery(self.model), self._db, self._hints)  # type: ignore[attr-defined]
