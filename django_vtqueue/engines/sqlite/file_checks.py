"""What keeps a worker, and Queue.run, from a file: it lies where SQLite's locks may not hold. Nothing opens it here."""

import os
from collections.abc import Iterable, Iterator

from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.connection import ConnectionDoesNotExist

from ...core.links import page
from ..routing import shares_disk
from .file import path_of
from .mounts import MOST_SKEW, clock_offset, has_passed, mount_of, wrong_mount

LOCAL_HINT = (
    "Put the file on a local disk of the one host that runs the site and its workers, or keep the jobs in PostgreSQL. "
    "Hosts that must share a file on NFS or a cluster file system need OPTIONS['shared_disk']: see "
    f"{page('guides/shared-disk')}"
)
SHARED_HINT = f"Keep the jobs in PostgreSQL, or share the file in another way: see {page('guides/shared-disk')}"


def errors_of_mount(alias: str) -> Iterator[CheckMessage]:
    """Yield an error if the file of a database is on the wrong kind of file system."""
    if path := file_of(alias):
        shared = shares_disk(alias)
        if text := wrong_mount(mount_of(path), shared=shared):
            yield error("E030", alias, f"{text}.", SHARED_HINT if shared else LOCAL_HINT)


def errors_of_folder(alias: str) -> Iterator[CheckMessage]:
    """Yield what is wrong with the folder of a file that several hosts share; nothing if that is not asked for."""
    if not shares_disk(alias) or not (path := file_of(alias)):
        return
    folder = os.path.dirname(os.path.realpath(path))
    if not has_passed(folder):
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


def require_safe_file(alias: str) -> None:
    """Raise ImproperlyConfigured if the file of a database is where it may be destroyed."""
    if text := serious([*errors_of_mount(alias), *errors_of_folder(alias)]):
        raise ImproperlyConfigured(text)


def serious(messages: Iterable[CheckMessage]) -> str:
    """Return the errors among the messages of checks, each with its hint; "" if there are none."""
    errors = [each for each in messages if each.is_serious() and not each.is_silenced()]
    return "\n".join(f"{each.msg} ({each.id})\n{each.hint or ''}".rstrip() for each in errors)


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
