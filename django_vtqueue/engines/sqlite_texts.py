"""Texts on their way to SQLite and back: statements as Django wants them, and what somebody damaged."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache


@contextmanager
def replacing_bad_bytes(raw: sqlite3.Connection) -> Iterator[None]:
    """Read texts that are no UTF-8 (somebody damaged them) during the block, with what cannot be read replaced."""
    usual = raw.text_factory
    raw.text_factory = lambda text: text.decode(errors="replace")
    try:
        yield
    finally:
        raw.text_factory = usual


@lru_cache(maxsize=100)
def for_django(sql: str) -> str:
    """Return a statement with its parameters as Django's cursor wants them."""
    return re.sub(r":(\w+)", r"%(\1)s", sql)
