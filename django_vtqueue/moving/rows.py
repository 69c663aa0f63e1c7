"""Rows as they are stored, read to go to another database: neither moments nor JSON are interpreted on the way."""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from django.db import OperationalError, connections, models

from ..core.ids import slices
from ..models import DeadLetter, HourlyThroughput, Job, QueueState, Rate, Requeue, Schedule, Throughput

Row = dict[str, Any]  # a value for each column
Tables = dict[str, list[Row]]  # rows for each model
Refusals = dict[str, str]  # what the target has refused, by names that people know, and why

MODELS: dict[str, type[models.Model]] = {
    model.__name__: model
    for model in (Job, DeadLetter, QueueState, Requeue, Schedule, Rate, Throughput, HourlyThroughput)
}
OF_JOBS = ("Job", "DeadLetter")


def columns_of(model: type[models.Model]) -> list[str]:
    """Return the columns that are read: not those that the database computes."""
    fields = model._meta.concrete_fields
    return [str(field.column) for field in fields if not isinstance(field, models.GeneratedField)]


def key_of(model: type[models.Model]) -> str:
    """Return the column of the primary key."""
    return str(model._meta.pk.column)


def plain(value: Any) -> Any:
    """Return a value of a row as JSON can have it."""
    return value.hex if isinstance(value, UUID) else value


def read(model: type[models.Model], alias: str, keys: Sequence[Any]) -> dict[Any, Row]:
    """Return the rows with these keys, by key, in their order; those that cannot be read are left out."""
    found: dict[Any, Row] = {}
    for some in slices(keys):
        found |= _read(model, alias, [plain(key) for key in some])
    return {key: found[plain(key)] for key in keys if plain(key) in found}


def _read(model: type[models.Model], alias: str, keys: Sequence[Any]) -> dict[Any, Row]:
    connection, key, columns = connections[alias], key_of(model), columns_of(model)
    names, marks = ", ".join(map(connection.ops.quote_name, columns)), ", ".join(["%s"] * len(keys))
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {names} FROM {model._meta.db_table} WHERE {key} IN ({marks})", keys)
            rows = [dict(zip(columns, map(plain, row), strict=True)) for row in cursor.fetchall()]
    except OperationalError as error:
        if not is_unreadable(error):
            raise
        rows_of_one = (_read(model, alias, [each]) for each in (keys if len(keys) > 1 else ()))
        return {key: row for rows in rows_of_one for key, row in rows.items()}
    return {row[key]: row for row in rows}


def is_unreadable(error: OperationalError) -> bool:
    """Return whether SQLite has a text that is not UTF-8."""
    return "decode to UTF-8" in str(error)


def name_of(name: str, key: Any) -> str:
    """Return what people call a row: the id of a job, else its model and key."""
    return key.hex if isinstance(key, UUID) else str(key) if name in OF_JOBS else f"{name} {key}"


def present(rows: models.QuerySet[Any], ids: Iterable[UUID]) -> set[UUID]:
    """Return which of these ids are among rows.

    Under ``select_for_update`` the rows are locked, and those that another transaction has locked are left out.
    """
    return {key for some in slices(sorted(ids)) for key in rows.filter(pk__in=some).values_list("pk", flat=True)}
