"""The fields of a moment and of JSON: stored as the queue's own SQL needs them, in Python and in queries as Django's.

A moment is integer microseconds: Django's own datetimes are text on SQLite and do not compare reliably there, and naive
local times would move a lease when daylight saving ends. JSON is text that no constraint parses: what was damaged by
hand can be stored, moved and shown, and no insert pays for that.
"""

import json
import re
from datetime import date, datetime
from typing import Any, TypeVar

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import NotSupportedError, models
from django.db.models import lookups
from django.db.models.expressions import Col, ExpressionList, Func, Value
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Now
from django.db.models.lookups import Lookup
from django.db.models.sql import Query, UpdateQuery
from django.utils.dateparse import parse_datetime

from ..core.clock import EPOCH, FIRST, LAST, MICROSECOND, SECOND, from_instant, to_instant
from ..core.encoding import NULL, decode, encode

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

    def formfield(self, **kwargs: Any) -> forms.Field | None:
        return super().formfield(**{"form_class": forms.DateTimeField, **kwargs})


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


class StoredText(str):
    """Text as it stands in a column of JSON: what is read of a damaged row; what is to be stored as it is."""


def text_of(value: Any) -> str:
    """Return the stored form of what was read from a column of JSON, be it damaged or not."""
    if isinstance(value, StoredText):
        return str(value)
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    except RecursionError:  # it could be read where less of the stack was in use
        return "[…"


class JSONTextField(models.JSONField):
    """A JSON value in a column of plain text; what is no JSON there is read as StoredText, and has no keys."""

    def check(self, **kwargs: Any) -> Any:
        """Return what is wrong with any field; that the database can hold text needs no look at it."""
        return models.Field.check(self, **kwargs)

    def deconstruct(self) -> Any:
        """Return a TextField, which is what the column is: for migrations the values are texts."""
        name, _, args, kwargs = super().deconstruct()
        if callable(default := kwargs.get("default")):
            kwargs["default"] = encode(default())
        return name, "django.db.models.TextField", args, without_texts(kwargs)

    def db_type(self, connection: Any) -> Any:
        return models.TextField().db_type(connection)

    def db_check(self, connection: Any) -> None:
        return None

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        if value is None or isinstance(expression, KeyTransform):
            return super().from_db_value(value, expression, connection)
        try:
            return decode(value)
        except ValueError:
            return StoredText(value)

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        if isinstance(value, Value) and isinstance(value.output_field, models.JSONField):
            value = value.value
        if hasattr(value, "as_sql"):
            return value
        return str(value) if isinstance(value, StoredText) else encode(value)

    def get_db_prep_save(self, value: Any, connection: Any) -> Any:
        return NULL if value is None and not self.null else super().get_db_prep_save(value, connection)

    def get_transform(self, lookup_name: str) -> Any:
        return lambda value: Key(lookup_name, value if isinstance(value, KeyTransform) else Sound(value))

    def value_to_string(self, obj: models.Model) -> str:
        """Return the text that is stored: a dump has what is in the row, be it damaged or not."""
        text = text_of(self.value_from_object(obj))
        try:
            text.encode()
        except UnicodeEncodeError:  # half of a pair of surrogates, which JSON can hold as an escape
            return json.dumps(json.loads(text), separators=(",", ":"))
        return text

    def to_python(self, value: Any) -> Any:
        """Return what a dump has, to be stored as it is."""
        return StoredText(value) if isinstance(value, str) else value

    def clean(self, value: Any, model_instance: models.Model | None) -> Any:
        """Return a value as it is: a text is a value, not what a dump has of one."""
        self.validate(value, model_instance)
        self.run_validators(value)
        return value


def unescaped(params: Any) -> tuple[Any, ...]:
    """Return parameters with the letters themselves in paths of JSON: SQLite compares keys as they are stored."""
    return tuple(
        QUOTED.sub(lambda key: json.dumps(json.loads(key[0]), ensure_ascii=False), each)
        if isinstance(each, str) and each.startswith("$")
        else each
        for each in params
    )


QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


class Key(KeyTransform):
    """A key of a column of JSON."""

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        sql, params = super().as_sqlite(compiler, connection)
        return sql, unescaped(params)


class Sound(models.Func):
    """A column of JSON, NULL where it is damaged: SQLite fails a whole query for a single text that is no JSON."""

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        column, params = compiler.compile(self.get_source_expressions()[0])
        return f"CASE WHEN json_valid({column}) THEN {column} END", [*params, *params]


class SoundLookup(models.Lookup):
    """A lookup that parses the whole of a column."""

    def __init__(self, lhs: Any, rhs: Any) -> None:
        super().__init__(lhs if isinstance(lhs, KeyTransform) else Sound(lhs), rhs)

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        above: Any = super()
        sql, params = (above.as_sqlite if hasattr(above, "as_sqlite") else above.as_sql)(compiler, connection)
        return sql, unescaped(params)


for lookup in ("has_key", "has_keys", "has_any_keys", "in"):
    base = models.JSONField.get_class_lookups()[lookup]
    name = f"Sound{base.__name__}"
    globals()[name] = JSONTextField.register_lookup(type(name, (SoundLookup, base), {}))
