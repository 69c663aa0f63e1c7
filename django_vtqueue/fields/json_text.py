"""The field of a JSON value: plain text, which no constraint parses, because each insert would pay for it.

So what was damaged by hand can be stored, moved and shown.
"""

import json
import re
from typing import Any

from django.db import models
from django.db.models.expressions import Value
from django.db.models.fields.json import KeyTransform

from ..core.encoding import ILLEGIBLE, NULL, decode, encode
from .moments import without_texts


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
    """A column of JSON, NULL where it would fail the whole query.

    On SQLite that is a text that is no JSON; on PostgreSQL, where each is parsed, JSON that ``jsonb`` cannot hold.
    """

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        column, params = compiler.compile(self.get_source_expressions()[0])
        return f"CASE WHEN json_valid({column}) THEN {column} END", [*params, *params]

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        column, params = compiler.compile(self.get_source_expressions()[0])
        pattern = ILLEGIBLE.pattern.replace("\\", r"\\")
        sound = rf"strpos({column}, E'\\u') = 0 OR {column} !~* E'{pattern}'"  # the first takes less time
        return f"CASE WHEN {sound} THEN ({column})::jsonb END", (*params, *params, *params)


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
