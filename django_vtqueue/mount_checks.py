"""System checks of where a SQLite file is: a local disk, or one that several hosts share (``shared_disk``)."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionDoesNotExist

from .database_checks import NORMAL, SHORTEST_TIMEOUT, TAG, Pragmas, databases_of_queues, effective, ours
from .engines import shares_disk
from .engines.sqlite.file import path_of
from .engines.sqlite.mounts import MOST_SKEW, clock_offset, has_passed, mount_of, wrong_mount

LOCAL_HINT = (
    "Put the file on a local disk of the one host that runs the site and its workers, or keep the jobs in PostgreSQL. "
    "Hosts that must share a file on NFS or a cluster file system need OPTIONS['shared_disk']: see docs/shared-disk.md."
)
SHARED_HINT = "Keep the jobs in PostgreSQL, or share the file in another way: see docs/shared-disk.md."
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


def errors_of_mount(alias: str) -> Iterator[CheckMessage]:
    """Yield an error if the file of a database is on the wrong kind of file system."""
    if path := file_of(alias):
        shared = shares_disk(alias)
        if text := wrong_mount(mount_of(path), shared=shared):
            yield error("E030", alias, f"{text}.", SHARED_HINT if shared else LOCAL_HINT)


def errors_of_sharing(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    """Yield what keeps several hosts from sharing a database; nothing if that is not asked for."""
    alias = connection.alias
    if not shares_disk(alias) or not (path := file_of(alias)):
        return
    folder = os.path.dirname(os.path.realpath(path))
    if has_passed(folder):
        for text in wrong_settings(connection):
            yield error("E031", alias, f"with shared_disk {text}.", f"In DATABASES[{alias!r}]:\n{BLOCK}")
    else:  # nothing is opened
        text = f"it was not tested whether hosts can share files in {folder}, as it is mounted here."
        hint = f"On two hosts at once: manage.py vtqueue locktest {alias} --hosts 2"
        yield error("E032", alias, text, hint)
    try:
        offset = clock_offset(folder)
    except OSError:
        return  # this process may not write there: the command that needs to says so
    if abs(offset) > MOST_SKEW:
        where = "ahead of" if offset > 0 else "behind"
        text = f"the clock of this host is {abs(offset):.0f} s {where} that of the disk; {MOST_SKEW:.0f} s are allowed."
        yield error("E033", alias, text, "Set the clock by NTP (timedatectl set-ntp true), here or on the file server.")


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


def file_of(alias: str) -> str:
    """Return the path of the file of a database; "" if it is none, or there is no such database."""
    try:
        connection = connections[alias]
    except ConnectionDoesNotExist:  # an error of the settings: E003
        return ""
    name = str(connection.settings_dict["NAME"])
    if connection.vendor != "sqlite" or not name or ":memory:" in name or "mode=memory" in name:
        return ""
    return path_of(name)


def error(number: str, alias: str, text: str, hint: str) -> CheckMessage:
    """Return an error about one database."""
    return Error(f"DATABASES[{alias!r}]: {text}", hint=hint, id=f"vtqueue.{number}")
