"""The engine of a database, and which settings hold for a queue or a database (``routing.py``).

The contract of an engine is in ``base.py``, the SQL of each kind of database in a folder.
"""

from functools import lru_cache

from django.db import connections

from .base import Engine, Listener
from .postgresql.engine import PostgreSQLEngine
from .routing import (
    backend_options,
    database_for,
    database_of,
    mask_words,
    named_queues,
    options_for,
    options_of_database,
    require_app,
    shares_disk,
)
from .sqlite.engine import SQLiteEngine
from .trouble import Trouble, when_log_is_deleted

__all__ = [
    "ENGINES",
    "Engine",
    "Listener",
    "Trouble",
    "backend_options",
    "database_for",
    "database_now",
    "database_of",
    "engine_for",
    "mask_words",
    "named_queues",
    "new_engine",
    "options_for",
    "options_of_database",
    "shares_disk",
    "when_log_is_deleted",
]

ENGINES: dict[str, type[Engine]] = {"sqlite": SQLiteEngine, "postgresql": PostgreSQLEngine}


@lru_cache(maxsize=32)
def engine_for(alias: str) -> Engine:
    """Return the engine of a database alias; raise ValueError if there is none for its kind of database."""
    return new_engine(alias)


def database_now() -> int:
    """Return the present instant by the clock of the queue's database; see ``database_for``."""
    return engine_for(database_for()).now()


def new_engine(alias: str, *, traced: bool = True) -> Engine:
    """Return a new engine, for a caller that shares it with no other; see ``engine_for``."""
    require_app()
    vendor = connections[alias].vendor
    if vendor not in ENGINES:
        raise ValueError(
            f"django_vtqueue does not support {vendor!r} (database {alias!r}); supported: {', '.join(ENGINES)}. "
            "Set OPTIONS['database'] to the alias of a supported one."
        )
    return ENGINES[vendor](alias, traced=traced)
