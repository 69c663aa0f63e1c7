"""Which errors say that something is wrong with the database, and what: told by SQLite's code, or by the text."""

import re
import sqlite3

from django.db.utils import InterfaceError, ProgrammingError

from ..trouble import Trouble
from .file import FileExchanged
from .lock import BUSY, code_of

DISK = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY}
DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def trouble(error: BaseException) -> Trouble | None:
    """Return what is wrong with the database if that is the cause of this error, else None."""
    code = code_of(error)
    if code in BUSY:
        return Trouble.BUSY
    if code in DISK:
        return Trouble.DISK
    if code == sqlite3.SQLITE_CANTOPEN:
        return Trouble.UNOPENED
    if code in DAMAGED:
        return Trouble.DAMAGED
    if code == sqlite3.SQLITE_ERROR and re.search("no such (table|column|index)|has no column", str(error)):
        return Trouble.SCHEMA
    if isinstance(error, MemoryError):
        return Trouble.MEMORY
    if isinstance(error, FileExchanged):
        return Trouble.GONE
    if isinstance(error, InterfaceError | ProgrammingError | sqlite3.ProgrammingError) and "closed" in str(error):
        return Trouble.GONE
    return None
