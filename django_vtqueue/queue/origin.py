"""Where the jobs of a database were run last: a copy of its file brings them along, and must not run them."""

import os
import socket
from hashlib import blake2b
from pathlib import Path

from django.db import DatabaseError

from ..core.clock import from_instant
from ..engines import Engine, Trouble
from ..models import Origin

ORIGIN_CHANGED = "the jobs of this database ran on %s before; from now on they run here"


def foreign_origin(engine: Engine) -> Origin | None:
    """Return where the jobs were run last if that was elsewhere; None if it was here, or nowhere yet.

    "Here" is the same file, under any name of the machine (a container has a new one at each start), or another file at
    the same path of the same machine (a backup that was restored).
    """
    if not (here := origin_here(engine)):
        return None
    try:
        last = Origin.objects.using(engine.alias).first()
    except DatabaseError as error:
        if engine.trouble(error) is Trouble.SCHEMA:
            return None  # no tables yet, so no jobs either
        raise
    if not last or last.file == here.file or (last.machine, last.path) == (here.machine, here.path):
        return None
    return last


def record_origin(engine: Engine, now: int) -> Origin | None:
    """Store that the jobs are run here, inside the caller's transaction; return what ``foreign_origin`` did before."""
    foreign = foreign_origin(engine)
    if here := origin_here(engine):
        here.worked_at = from_instant(now)
        here.save(using=engine.alias)
    return foreign


def origin_here(engine: Engine) -> Origin | None:
    """Return this machine and the database's file; None for a database that is no file."""
    path = engine.path()
    try:  # neither call opens the file, which would drop SQLite's locks
        file = f"{os.statvfs(path).f_fsid:x}:{os.stat(path).st_ino}"
    except OSError:
        return None
    # The name alone repeats ("localhost"), and so does the machine-id alone (containers have that of their image). The
    # machine-id is confidential, so its hash is stored: see machine-id(5).
    known = Path("/etc/machine-id")
    digest = blake2b(known.read_bytes().strip() if known.is_file() else b"", digest_size=8, person=b"vtqueue")
    return Origin(id=1, machine=f"{socket.gethostname()[:200]}:{digest.hexdigest()}", path=path, file=file)
