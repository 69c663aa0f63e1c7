"""System checks of where a SQLite file is: a local disk, or one that several hosts share (``shared_disk``)."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.core.checks import CheckMessage, Tags, register
from django.db.backends.base.base import BaseDatabaseWrapper

from .database_checks import NORMAL, SHORTEST_TIMEOUT, TAG, Pragmas, databases_of_queues, effective, ours
from .engines import shares_disk
from .queue.mount_errors import error, errors_of_folder, errors_of_mount, file_of

BLOCK = """
    "OPTIONS": {
        "transaction_mode": "IMMEDIATE",
        "timeout": 60,
        "init_command": "PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL;",
    },
"""


@register(TAG)
def check_mounts(**kwargs: Any) -> list[CheckMessage]:
    """Return an error about each SQLite file that is where it may be destroyed; opens none of them."""
    return [message for alias in sorted(databases_of_queues()) for message in errors_of_mount(alias)]


@register(Tags.database)
def check_shared_disks(*, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Return errors about those of ``databases`` that several hosts share, and are not fit for that."""
    return [message for connection in ours(databases) for message in errors_of_sharing(connection)]


def errors_of_sharing(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    """Yield what keeps several hosts from sharing a database; nothing if that is not asked for."""
    alias, found = connection.alias, list(errors_of_folder(connection.alias))
    yield from found
    tested = "vtqueue.E032" not in {message.id for message in found}
    if shares_disk(alias) and file_of(alias) and tested:  # else nothing is opened
        for text in wrong_settings(connection):
            yield error("E031", alias, f"with shared_disk {text}.", f"In DATABASES[{alias!r}]:\n{BLOCK}")


def wrong_settings(connection: BaseDatabaseWrapper) -> Iterator[str]:
    """Yield what holds on a live connection and does not fit to a file that several hosts share."""
    if not isinstance(pragmas := effective(connection), Pragmas):
        return
    if pragmas.journal != "delete":
        yield f"journal_mode must be DELETE, not {pragmas.journal.upper()}"
    if pragmas.synchronous <= NORMAL:
        yield f"synchronous must be FULL, not {('OFF', 'NORMAL')[pragmas.synchronous]}"
    if pragmas.busy_timeout < SHORTEST_TIMEOUT:
        yield f"timeout must be {SHORTEST_TIMEOUT / 1000:g} seconds or more, not {pragmas.busy_timeout / 1000:g}"
    if connection.transaction_mode not in ("IMMEDIATE", "EXCLUSIVE"):  # type: ignore[attr-defined]
        yield f"transaction_mode must be 'IMMEDIATE', not {connection.transaction_mode!r}"  # type: ignore[attr-defined]
    with connection.cursor() as cursor:
        row = cursor.execute("PRAGMA mmap_size").fetchone()
    if row and row[0]:
        yield f"mmap_size must be 0, not {row[0]}: memory that is mapped may be older than the file"
