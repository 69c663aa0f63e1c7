"""Moments in the ORM: integers in their columns, and what Django's own datetimes are in expressions.

A column is compared, ordered and selected as the integer that its indexes hold. Wherever an expression of a query names
it (``F("died_at")``, ``TruncHour("died_at")``, ``died_at__date``) it becomes a datetime in the form that Django uses in
this database: so ``Now()``, differences, sums and all of Django's functions work by Django's own means. What comes from
there to be compared with a column, or stored in one, becomes an integer again.
"""

from typing import Any

from django.conf import settings
from django.db import NotSupportedError, models
from django.db.models.expressions import ExpressionList, Func
from django.db.models.functions import Now
from django.db.models.lookups import Lookup
from django.db.models.sql import Query

from .clock import EPOCH, FIRST, LAST, MICROSECOND, SECOND

EARLIEST, LATEST = (FIRST - EPOCH) // MICROSECOND, (LAST - EPOCH) // MICROSECOND
YEARS = -EARLIEST  # added, so that all that is divided is positive: SQLite rounds towards zero


class AsDatetime(Func):
    """A column of integers as the datetime that Django would have stored there; one method for each engine."""

    output_field = models.DateTimeField()

    # As in Python: what is no integer, or none that a datetime can hold, is the nearest moment that exists.
    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        column, params = compiler.compile(self.get_source_expressions()[0])
        shifted = f"(CAST(min(max({column}, {EARLIEST}), {LATEST}) AS INTEGER) + {YEARS})"
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
    plain = isinstance(value, Query | ExpressionList) or not hasattr(value, "as_sql")
    field = None if plain else getattr(value, "_output_field_or_none", None)
    return AsInstant(value) if isinstance(field, models.DateField) else value


class InstantLookup(Lookup):
    """A comparison of a column of integers with values, or with whatever the database has datetimes in."""

    def process_lhs(self, compiler: Any, connection: Any, lhs: Any = None) -> Any:
        lhs = lhs or self.lhs
        if isinstance(self.rhs, Query) and isinstance(self.rhs.output_field, models.DateField):
            lhs = AsDatetime(lhs)
        return super().process_lhs(compiler, connection, lhs)

    def process_rhs(self, compiler: Any, connection: Any) -> Any:
        several = isinstance(self.rhs, list | tuple)
        self.rhs = [as_instant(value) for value in self.rhs] if several else as_instant(self.rhs)
        return super().process_rhs(compiler, connection)
