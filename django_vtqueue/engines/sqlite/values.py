"""Statements as Django wants them, and texts that are not UTF-8."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache


@contextmanager
def replacing_bad_bytes(raw: sqlite3.Connection) -> Iterator[None]:
    """Read texts that are not UTF-8 during the block, with what cannot be read replaced."""
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
