"""The field of a moment: integer microseconds in the column, a datetime in Python and in queries.

Django's own datetimes are text on SQLite and do not compare reliably there, and naive local times would move a lease
when daylight saving ends.
"""

from datetime import date, datetime
from typing import Any, TypeVar

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import NotSupportedError, models
from django.db.models import lookups
from django.db.models.expressions import Col, ExpressionList, Func
from django.db.models.functions import Now
from django.db.models.lookups import Lookup
from django.db.models.sql import Query, UpdateQuery
from django.utils.dateparse import parse_datetime

from ..core.clock import EPOCH, FIRST, LAST, MICROSECOND, SECOND, from_instant, to_instant

# -- moments in expressions --------------------------------------------------------------------------------------------
#
# A column is compared, ordered and selected as the integer that its indexes hold. Wherever an expression names it
# (``F("died_at")``, ``TruncHour("died_at")``, ``died_at__date``) it becomes a datetime in the form that Django uses in
# this database: ``Now()``, differences, sums and all of Django's functions work by Django's own means. What is compared
# with a column, or stored in one, becomes an integer again.

EARLIEST, LATEST = (FIRST - EPOCH) // MICROSECOND, (LAST - EPOCH) // MICROSECOND
YEARS = -EARLIEST  # added, so that all that is divided is positive: SQLite rounds towards zero


class AsDatetime(Func):
    """A column of integers as the datetime that Django would have stored there; one method for each engine."""

    output_field = models.DateTimeField()

    # As in Python: what no datetime can hold is the nearest moment that exists.
    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        column, params = compiler.compile(self.get_source_expressions()[0])
        shifted = f"(min(max({column}, {EARLIEST}), {LATEST}) + {YEARS})"
        seconds = f"datetime({shifted} / {SECOND} - {YEARS // SECOND}, 'unixepoch'{zone(connection, 'localtime')})"
        fraction = f"{shifted} %% {SECOND}"
        # Without a fraction where it is zero, for Django writes none, and texts are compared.
        digits = f"CASE {fraction} WHEN 0 THEN '' ELSE '.' || substr({SECOND} + {fraction}, 2) END"
        return f"({seconds} || {digits})", (*params, *params, *params)

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        column, params = compiler.compile(self.get_source_expressions()[0])
        kept = f"least(greatest({column}, {EARLIEST}), {LATEST})"
        # In two parts: an interval times a number is a float.
        seconds, rest = f"({kept} / {SECOND}) * interval '1 second'", f"({kept} %% {SECOND}) * interval '1 microsecond'"
        moment = f"'1970-01-01 00:00:00+00'::timestamptz + {seconds} + {rest}"
        # Of NULL and a number the greater one is the number here.
        return f"CASE WHEN {column} IS NOT NULL THEN {moment} END", (*params, *params, *params)


class AsInstant(Func):
    """A datetime as Django has it in this database, as integer microseconds; one method for each engine."""

    output_field = models.BigIntegerField()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        source = self.get_source_expressions()[0]
        if isinstance(source, Query):
            source.subquery = True  # in parentheses
        text, params = compiler.compile(source)
        # SQLite's clock shows UTC, whatever USE_TZ is: so Now(), and what comes of it, is UTC for Django too.
        utc = "" if any(isinstance(part, Now) for part in source.flatten()) else zone(connection, "utc")
        seconds = f"CAST(strftime('%%s', substr({text}, 1, 19){utc}) AS INTEGER)"
        return (
            f"({seconds} * {SECOND} + CAST(substr(substr({text}, 21) || '000000', 1, 6) AS INTEGER))",
            (*params, *params),
        )

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        source = self.get_source_expressions()[0]
        if isinstance(source, Query):
            source.subquery = True  # in parentheses
        moment, params = compiler.compile(source)
        return f"(extract(epoch FROM ({moment})::timestamptz) * {SECOND})::bigint", params


def zone(connection: Any, modifier: str) -> str:
    """Return what makes SQLite convert between UTC and the time in which Django stores datetimes."""
    if not settings.USE_TZ:
        return f", '{modifier}'"  # Django sets the zone of the process to TIME_ZONE
    if connection.timezone_name != "UTC":
        raise NotSupportedError("Moments of jobs have no expressions in a database with a TIME_ZONE of its own.")
    return ""


def as_instant(value: Any) -> Any:
    """Return what is compared with a column of integers, or stored in it: datetimes of the database as such."""
    if isinstance(value, AsDatetime):
        return value.get_source_expressions()[0]
    if isinstance(value, ExpressionList) or not hasattr(value, "as_sql"):
        return value
    field = value.output_field if isinstance(value, Query) else getattr(value, "_output_field_or_none", None)
    return AsInstant(value) if isinstance(field, models.DateField) else value


class InstantLookup(Lookup):
    """A comparison of a column of integers with values, or with whatever the database has datetimes in."""

    def process_lhs(self, compiler: Any, connection: Any, lhs: Any = None) -> Any:
        lhs = lhs or self.lhs
        if self.of_rows():
            lhs = AsDatetime(lhs)
        return super().process_lhs(compiler, connection, lhs)

    def of_rows(self) -> bool:
        """Return whether the right side is many rows of datetimes: what is compared with them becomes one."""
        several = self.lookup_name == "in" and isinstance(self.rhs, Query)
        return several and isinstance(self.rhs.output_field, models.DateField)

    def process_rhs(self, compiler: Any, connection: Any) -> Any:
        if not self.of_rows():
            several = isinstance(self.rhs, list | tuple)
            self.rhs = [as_instant(value) for value in self.rhs] if several else as_instant(self.rhs)
        return super().process_rhs(compiler, connection)


def without_texts(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a field without what people are shown of it."""
    return {name: value for name, value in kwargs.items() if name not in ("verbose_name", "help_text")}


M = TypeVar("M", bound=models.Model)


class InstantField(models.Field):
    """A moment, to the microsecond, the same on every database and in every time zone.

    Lookups are those of a DateTimeField; they take datetimes, expressions that are datetimes, and the integer itself.
    """

    description = "Moment (integer microseconds since 1970 UTC)"

    def get_internal_type(self) -> str:
        return "BigIntegerField"

    def deconstruct(self) -> Any:
        """Return what makes the column: no migration is needed where people are shown another text."""
        name, path, args, kwargs = super().deconstruct()
        return name, path, args, without_texts(kwargs)

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> datetime | None:
        return None if value is None else from_instant(value)

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


# Each has its name in this module, so that a query can be pickled.
for comparison in ("Exact", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual", "In", "Range"):
    name = f"Instant{comparison}"
    globals()[name] = InstantField.register_lookup(type(name, (InstantLookup, getattr(lookups, comparison)), {}))


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
