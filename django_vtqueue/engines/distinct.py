"""The distinct values of columns that an index begins with, one seek each, however many rows there are between them.

PostgreSQL calls it a loose index scan, and neither it nor SQLite plans one for ``DISTINCT`` or ``GROUP BY``: both read
every row. So the first row of each value is found from that of the value before it, by a recursive query.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Any, TypeVar

from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.models import BooleanField, Func, IntegerField, Model, OuterRef, QuerySet, Subquery, Value
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce
from django.db.models.sql.datastructures import BaseTable

from . import engine_for

M = TypeVar("M", bound=Model)

FIRST_OF_EACH = """
WITH RECURSIVE first(id) AS (
    SELECT ({first}) UNION ALL SELECT ({following}) FROM first WHERE first.id IS NOT NULL
)
SELECT id FROM first WHERE id IS NOT NULL LIMIT {limit}"""


def first_of_each(rows: QuerySet[M], *columns: str, limit: int) -> QuerySet[M]:
    """Return, of rows, the first of each combination of values, for the first ``limit`` combinations, in no order.

    ``columns``: fields or annotations as ``order_by`` takes them, with which an index of these rows begins. The order
    of ``rows`` says which of those with the same values is the first.
    """
    every, order = rows.model._base_manager.using(rows.db), rows.query.order_by
    names = [column.removeprefix("-") for column in columns]
    following = []
    # Column by column, the last one first: SQLite seeks a row value by its first column alone.
    for place in reversed(range(len(columns))):
        comparison = "lt" if columns[place].startswith("-") else "gt"
        same = {name: OuterRef(name) for name in names[:place]}
        found = rows.filter(**same, **{f"{names[place]}__{comparison}": OuterRef(names[place])})
        following.append(Subquery(found.order_by(*columns[place:], *order).values("pk")[:1]))
    this = every.annotate(**rows.query.annotations).filter(pk=RawSQL("first.id", ()))
    # The index of queues wants its first column to be compared, in the first statement too (see LineIndex).
    compared = {"queue_name__gte": ""} if columns[0] == "queue_name" else {}
    sql, params = compile_sql(rows.filter(**compared).order_by(*columns, *order).values("pk")[:1])
    next_sql, next_params = compile_sql(this.values(next=Coalesce(*following, None)))
    keys = FIRST_OF_EACH.format(first=sql, following=next_sql, limit=limit)
    return by_key(every).filter(pk__in=RawSQL(keys, params + next_params))


class IndexedTable(BaseTable):
    """A table that is read by one of its indexes, whatever ANALYZE has found in it, and when; "": that of its key."""

    def __init__(self, table_name: str, alias: str | None, index: str = "") -> None:
        super().__init__(table_name, alias)
        self.index = index

    def relabeled_clone(self, change_map: dict[str | None, str]) -> "IndexedTable":
        return type(self)(self.table_name, change_map.get(self.table_alias, self.table_alias), self.index)

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        sql, params = super().as_sql(compiler, connection)
        return sql + engine_for(connection.alias).by_index(self.table_name, self.index), params


def by_key(rows: QuerySet[M], index: str = "") -> QuerySet[M]:
    """Return all of ``rows``, read by the primary key or, where that is a number, by the columns that are unique.

    ``index``: another one that has all of these rows.
    """
    alias = rows.query.get_initial_alias()
    rows.query.alias_map[alias] = IndexedTable(rows.model._meta.db_table, alias, index)
    return rows


def compile_sql(rows: QuerySet[Any], select: str = "{}") -> tuple[str, tuple[Any, ...]]:
    """Return a query, or what is selected of it, as the text and the values that its database is given."""
    sql, params = rows.query.get_compiler(connection=connections[rows.db]).as_sql()
    return select.format(sql), params


def union(queries: Iterable[tuple[str, tuple[Any, ...]]]) -> RawSQL:
    """Return the keys that any of these compiled queries has: by ``OR`` PostgreSQL would try each row of the table."""
    texts, params = zip(*queries, strict=True)
    return RawSQL(" UNION ALL ".join(texts), tuple(chain(*params)))


def fetch(rows: QuerySet[Any], select: str = "{}") -> list[tuple[Any, ...]]:
    """Return the rows of a ``values_list()``, or what is selected of them, as the database has it: moments are
    integers.
    """
    try:
        sql, params = compile_sql(rows)
    except EmptyResultSet:
        return []
    with connections[rows.db].cursor() as cursor:
        cursor.execute(select.format(sql), params)
        return list(cursor.fetchall())


def count_by(rows: QuerySet[Any], *columns: str) -> Counter[tuple[Any, ...]]:
    """Return how many rows of a ``values()``, which may be a slice, have the same values in columns."""
    names = ", ".join(columns)
    counts = fetch(rows, f"SELECT {names}, count(*) FROM ({{}}) AS counted GROUP BY {names}")
    return Counter({tuple(values): number for *values, number in counts})


class RowCount(Subquery):
    """How many rows a query has; sliced, it counts no further than that. ``where``: only those of which this holds."""

    template = "(SELECT count(*) FROM (%(subquery)s) AS counted %(where)s)"
    output_field = IntegerField()

    def __init__(self, rows: QuerySet[Any], where: str = "") -> None:
        super().__init__(rows if where else rows.values(one=Value(1)), where=where and f"WHERE {where}")


class IsRaw(Func):
    """Whether a job is a raw payload, word for word as the claim indexes have it: SQLite would not know a parameter."""

    template = "(%(expressions)s = '')"
    output_field = BooleanField()


RAW_AS_INDEXED = IsRaw("task_path")
