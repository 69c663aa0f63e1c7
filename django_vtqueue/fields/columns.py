"""Columns and indexes that are the same to the models on every database, and not to the database."""

from typing import Any

from django.db import models


class ComputedField(models.GeneratedField):
    """A column that the database computes when it is read; a database that cannot do that stores it."""

    def generated_sql(self, connection: Any) -> Any:
        self.db_persist = not connection.features.supports_virtual_generated_columns
        return super().generated_sql(connection)

    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        return name, path, args, {**kwargs, "db_persist": False}

    def _check_persistence(self, databases: Any) -> Any:
        return []


class LineIndex(models.Index):
    """An index that ends with the handle of its rows, which orders equal ones: SQLite's do so in any case.

    ``ties``: the columns with which it ends elsewhere. ``always_true``: what is true of each row, and must stand in a
    query that shall use it elsewhere: no other query does, whatever the planner believes.
    """

    def __init__(
        self, *expressions: Any, ties: tuple[str, ...] = ("id",), always_true: models.Q | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*expressions, **kwargs)
        self.ties, self.always_true = ties, always_true or models.Q()

    def deconstruct(self) -> Any:
        path, expressions, kwargs = super().deconstruct()
        return path, expressions, {**kwargs, "ties": self.ties, "always_true": self.always_true}

    def create_sql(self, model: Any, schema_editor: Any, using: str = "", **kwargs: Any) -> Any:
        if schema_editor.connection.vendor == "sqlite":
            return super().create_sql(model, schema_editor, using, **kwargs)
        columns = self.expressions or tuple(models.F(name) for name in self.fields)
        condition = (self.condition or models.Q()) & self.always_true
        index = models.Index(*columns, *map(models.F, self.ties), name=self.name, condition=condition)
        return index.create_sql(model, schema_editor, using, **kwargs)
