"""The place where a queue is worked: a copied database brings its jobs along, and must not run them by mistake."""

import os
import socket
from hashlib import blake2b
from pathlib import Path

from django.db import DatabaseError

from ..core.clock import from_instant
from ..engines import Engine, Trouble
from ..models import Home

LONGEST_NAME = 200  # characters of a host's name that are kept


def left_behind(engine: Engine) -> Home | None:
    """Return where the queue was worked last if that was elsewhere; None if it was here, or nowhere yet.

    Here is this file, whatever the machine is called now (a container has a new name at each start, and the file in its
    volume is the same), or another file in the same place (a backup that was restored).
    """
    here = present(engine)
    try:
        last = Home.objects.using(engine.alias).first()
    except DatabaseError as error:
        if engine.trouble(error) is Trouble.SCHEMA:
            return None  # no tables yet, so no jobs either
        raise
    if here is None or last is None or last.file == here.file:
        return None
    return None if (last.machine, last.path) == (here.machine, here.path) else last


def move_in(engine: Engine, now: int) -> Home | None:
    """Write down that the queue is worked here, inside the caller's transaction; return what ``left_behind`` did."""
    left = left_behind(engine)
    if here := present(engine):
        here.worked_at = from_instant(now)
        values = {"machine": here.machine, "path": here.path, "file": here.file, "worked_at": here.worked_at}
        if not Home.objects.using(engine.alias).update(**values):
            here.save(using=engine.alias, force_insert=True)
    return left


def present(engine: Engine) -> Home | None:
    """Return the place of this process and its database; None for a database that is no file."""
    path = engine.path()
    try:
        file = (
            f"{os.statvfs(path).f_fsid:x}:{os.stat(path).st_ino}"  # neither opens it, which would drop SQLite's locks
        )
    except OSError:
        return None
    return Home(machine=machine(), path=path, file=file)


def machine() -> str:
    """Return what this machine is told from others by: its name, and what it was given when it was installed.

    Either alone is not enough: names repeat ("localhost"), and containers share the machine-id of their image. That one
    is not for others to see (machine-id(5)), so it is hashed.
    """
    try:
        installed = Path("/etc/machine-id").read_bytes().strip()
    except OSError:
        installed = b""
    return f"{socket.gethostname()[:LONGEST_NAME]}:{blake2b(installed, digest_size=8, person=b'vtqueue').hexdigest()}"
