"""System checks that look into the database. Those of the settings are each backend's own: see ``configuration``.

They read what holds on a live connection, not what the settings say: a setting in the wrong place is believed for
years. They are warnings at the most, so that none of them ever stands in the way of ``migrate``.
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from django.core.checks import CheckMessage, Tags, Warning, register
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from .compat import FRAMEWORK_APP  # nothing else imports the framework after setup(), and it asks the backends
from .conf import configured
from .engines import database_of

if FRAMEWORK_APP:  # the backport registers its check in its app's ready(), which may be what is missing
    import_module(f"{FRAMEWORK_APP}.checks")

SHORTEST_TIMEOUT = 10_000  # milliseconds: a backup, a migration or a checkpoint may hold the write lock for seconds

BLOCK = """
    "OPTIONS": {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    },
"""

ATOMIC_REQUESTS = (
    "ATOMIC_REQUESTS is on: with IMMEDIATE every request takes the write lock at its start, also one that only reads, "
    "so such requests run one after the other. Turn it off, or put @transaction.non_atomic_requests on those views."
)


@register(Tags.database)
def check_databases(*, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Return warnings about those of ``databases`` that hold queues."""
    ours = databases_of_queues() if databases else set()
    return [message for alias in databases or () if alias in ours for message in look_at(connections[alias])]


def databases_of_queues() -> set[str]:
    """Return the aliases that our backends use; none while TASKS is wrong, which other checks say."""
    try:
        return {database_of(options) for options in configured().values()}
    except (ValueError, ImportError, LookupError):
        return set()


def look_at(connection: BaseDatabaseWrapper) -> list[CheckMessage]:
    """Return warnings about one database; none about one in memory (tests), or one that cannot be opened."""
    if connection.vendor != "sqlite":
        return []
    try:
        with connection.cursor() as cursor:
            file = cursor.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()[0]
            journal = cursor.execute("PRAGMA journal_mode").fetchone()[0]
            patience = cursor.execute("PRAGMA busy_timeout").fetchone()[0]
    except Exception:  # whoever needs the database says so, with what is wrong
        return []
    if not file:
        return []
    mode = connection.transaction_mode  # type: ignore[attr-defined]  # set anew by each connect
    name = f"DATABASES[{connection.alias!r}]"
    hint = f"In {name}, beside what else its OPTIONS have:\n{BLOCK}"
    if connection.settings_dict["ATOMIC_REQUESTS"]:
        hint += f"\n{ATOMIC_REQUESTS}"
    return [
        Warning(f"{name}: {text}", hint=hint, id=f"vtqueue.{number}")
        for number, text in faults(journal, mode, patience)
    ]


def faults(journal: str, mode: str | None, patience: int) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a journal mode, a transaction mode and a busy timeout (in milliseconds)."""
    if journal != "wal":
        yield "W001", f"its journal mode is {journal!r}, not WAL: whoever reads keeps the workers from writing."
    if mode not in ("IMMEDIATE", "EXCLUSIVE"):
        yield "W002", "its transactions do not begin IMMEDIATE: one that reads first fails when another has written."
    if patience < SHORTEST_TIMEOUT:
        yield "W003", f"a writer gives up with 'database is locked' after {patience / 1000:g} s; 10 s is the least."
