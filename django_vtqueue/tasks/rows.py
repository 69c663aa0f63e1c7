"""The rows of a queryset in the order of their primary keys, some at a time: so a loop finds its place again.

A place is the text of a key, as Django's serializers write and read it; an integer stands for itself.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

from django.core.exceptions import ValidationError
from django.db import connections
from django.db.models import CompositePrimaryKey, DecimalField, Model, QuerySet
from django.db.models.expressions import Col
from django.db.models.sql import Query

from ..exceptions import StepError

CHUNK = 500  # rows that are read at once


def rows(source: "QuerySet[Any]", behind: Any, under_way: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each row of a queryset once, with its place; begin ``behind`` a place, or at the one ``under_way``.

    A row between the one that is under way and the last done one was added since: it is passed over, as in a loop that
    nothing interrupts. Raise StepError, before the first row, for what cannot be read so.
    """
    refuse_unfit(source)
    source = source.order_by("pk")
    source.query.standard_ordering = True  # order_by leaves it as reverse() has set it
    key = source.model._meta.pk
    rest = source if behind is None else source.filter(pk__gt=key_at(key, behind))
    if under_way is not None:
        rest = source.filter(pk__gte=key_at(key, under_way))
    while some := placed(key, rest[:CHUNK]):
        yield from some
        rest = source.filter(pk__gt=key_at(key, some[-1][0]))


def placed(key: Any, some: "QuerySet[Any]") -> list[tuple[Any, Model]]:
    """Return rows with their places, each once, though a join may yield it several times."""
    found: list[tuple[Any, Model]] = []
    before: Any = None
    for row in some:
        if found and row.pk == before:
            continue
        found.append((place_of(key, row.pk), row))
        if found[1:] and not above(row.pk, before):
            refuse_disorder(some, row.pk, before)
        before = row.pk
    return found


def above(value: Any, before: Any) -> bool:
    """Return whether Python has a key above another one; the database may have its own order, as of texts."""
    try:
        return bool(value > before)
    except TypeError:
        return False


def refuse_disorder(source: "QuerySet[Any]", value: Any, before: Any) -> None:
    """Raise StepError if the database itself has a key below the one that it has yielded before."""
    every = source.model._base_manager.using(source.db)
    if every.filter(pk=value, pk__lt=before).exists():
        raise StepError(f"iterate got {source.model.__name__} {value!r} after {before!r}: not by primary key.")


# -- places -----------------------------------------------------------------------------------------------------------


def place_of(key: Any, value: Any) -> Any:
    """Return how a primary key is stored; raise StepError if it could not be read again."""
    try:
        place = stored(key, value)
        if key_at(key, place) == value:
            return place
    except (TypeError, ValueError, ValidationError):
        pass
    raise StepError(
        f"iterate cannot store the primary key {value!r} of {key.model.__name__}: {type(key).__name__}.to_python does "
        "not return it for the text of value_to_string. Go through a list of values by which you find the rows again."
    )


def stored(key: Any, value: Any) -> Any:
    if isinstance(key, CompositePrimaryKey):
        return [stored(part, each) for part, each in zip(key.fields, value, strict=True)]
    if isinstance(value, int):
        return value
    text = str(own(key).value_to_string(SimpleNamespace(**{own(key).attname: value})))
    return text.replace("%", "%25").replace("\0", "%00")  # no NUL character: see legible


def key_at(key: Any, place: Any) -> Any:
    """Return the primary key that is stored as a place."""
    if isinstance(key, CompositePrimaryKey):
        return tuple(key_at(part, each) for part, each in zip(key.fields, place, strict=True))
    return place if isinstance(place, int) else own(key).to_python(unquote(place))


def own(key: Any) -> Any:
    """Return the field of which a key has its values: of a relation that of the other model."""
    return own(key.target_field) if key.remote_field else key


# -- what cannot be read by primary key -------------------------------------------------------------------------------


def refuse_unfit(source: "QuerySet[Any]") -> None:
    """Raise StepError for a queryset whose rows could be others when it is read on behind a key."""
    if found := next((what for unfit, what in unfitness(source) if unfit), None):
        raise StepError(
            f"iterate cannot take a queryset with {found}: it reads rows by primary key, {CHUNK} at a time, each once, "
            'and goes on behind a key. Leave it away, or go through a list: context.iterate(…, context.step("ids", …)).'
        )


def unfitness(source: "QuerySet[Any]") -> Iterator[tuple[object, str]]:
    query = source.query
    yield query.is_sliced, "a slice [:n]"
    yield query.combinator, f"{query.combinator}()"
    yield source._fields is not None, "values() or the like"  # type: ignore[attr-defined]
    yield query.distinct_fields, "distinct(…) by fields"
    yield query.select_for_update, "select_for_update(), whose locks would end with each read"
    yield "pk" in query.annotations or "pk" in query.extra, "an annotation that is called pk"
    windows: list[Any] = [query.where, *query.annotations.values()]
    yield any(each.contains_over_clause for each in windows), "a window function, which would see a part of the rows"
    yield has_many_values(query), "an annotation that has several values for a row"
    yield has_rounded_key(source), "a DecimalField as primary key on SQLite, which keeps it as a binary fraction"


def has_many_values(query: Query) -> bool:
    """Return whether an annotation is a column of a join that may yield a row several times."""
    columns = (
        column
        for each in query.annotation_select.values()
        if not each.contains_aggregate
        for column in each.flatten()
        if isinstance(column, Col)
    )
    return any(multiplies(query, column.alias) for column in columns) or bool(query.extra_tables and query.extra)


def multiplies(query: Query, alias: Any) -> bool:
    """Return whether a table, or one on the way to it, has several rows for one of the model."""
    join: Any = query.alias_map.get(alias)
    if join is None or not join.parent_alias:
        return False
    field = join.join_field
    single = field.one_to_one or (field.many_to_one and field.concrete)
    return not single or multiplies(query, join.parent_alias)


def has_rounded_key(source: "QuerySet[Any]") -> bool:
    key = source.model._meta.pk
    fields = [own(part) for part in (key.fields if isinstance(key, CompositePrimaryKey) else [key])]
    return connections[source.db].vendor == "sqlite" and any(isinstance(each, DecimalField) for each in fields)
