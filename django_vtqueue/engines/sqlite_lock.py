"""SQLite's write lock, taken fairly.

SQLite's own busy handler sleeps longer and longer and lets one of two busy writers wait for a second. Here it is not
called: where somebody else has the lock we ask for it ourselves, about every millisecond. 4 workers and 4 publishers at
full speed wait 13 ms at p99.9 (measured).
"""

import random
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import OperationalError

from ..retry import busy_pause

Found = TypeVar("Found")

HURRY = 0.00002  # seconds for which a thread keeps the interpreter while a loop that holds the lock waits for it
BEGIN = "BEGIN IMMEDIATE"
READING = "PRAGMA user_version"  # has the connection read until the cursor is closed
BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def code_of(error: BaseException) -> int:
    """Return the primary SQLite result code behind an error of ``sqlite3`` or of Django; 0 if there is none."""
    for cause in (error, error.__cause__):
        if isinstance(cause, sqlite3.Error):
            return (getattr(cause, "sqlite_errorcode", None) or 0) & 0xFF
    return 0


def anyway(waited: float) -> bool:
    """Look at nothing: for who wants the lock whatever there is."""
    return True


def insist(raw: sqlite3.Connection, step: Callable[[], object], began: float) -> None:
    """Take a step (a BEGIN) again and again while the database is busy, with SQLite's busy handler switched off.

    ``began``: when it was first asked for (monotonic); since then the connection's busy timeout counts. All in one
    frame: TaskTimeout, which is raised in a thread wherever it is, finds no call before the timeout is put back.
    """
    milliseconds = raw.execute("PRAGMA busy_timeout").fetchone()[0]
    try:
        raw.execute("PRAGMA busy_timeout = 0")
        while True:
            try:
                step()
                return
            except (sqlite3.OperationalError, OperationalError) as error:
                waited, patience = time.monotonic() - began, milliseconds / 1000
                if code_of(error) not in BUSY or waited >= patience:
                    raise
                time.sleep(min(busy_pause(waited, random.random()), patience - waited))
    finally:
        raw.execute(f"PRAGMA busy_timeout = {milliseconds}")


def begin(raw: sqlite3.Connection, look: Callable[[float], Found]) -> Found:
    """Take the write lock if ``look`` finds something, and return what it found, true at the moment of the lock.

    It is waited for, fairly, for as long as the connection's busy timeout says. To a connection that reads SQLite
    refuses the lock at once, whatever its timeout, and also if anybody has written since: only then is looked again.
    (Without WAL it may have to wait before it can read, in SQLite's own way.) The timeout is touched only where the
    lock was refused: to ask for it and to put it back takes three statements.
    """
    began = time.monotonic()
    try:
        reading = raw.execute(READING)
        try:
            if found := look(time.monotonic() - began):
                raw.execute(BEGIN)
        finally:
            reading.close()
        return found
    except sqlite3.OperationalError as error:
        if code_of(error) not in BUSY:
            raise
        insist(raw, lambda: raw.execute(BEGIN), began)
    return look(time.monotonic() - began)


def alone(connection: BaseDatabaseWrapper, step: Callable[[], Found]) -> Found:
    """Take a step in a transaction of its own: what WriteTransaction does for who publishes, in half the calls.

    And in one frame: TaskTimeout, which is raised in a thread wherever it is, finds no call before the ROLLBACK.
    """
    raw: sqlite3.Connection = connection.connection
    theirs = True
    try:
        theirs = raw.in_transaction
        begin(raw, anyway)
        done = step()
        raw.execute("COMMIT")
        return done
    except BaseException:
        if not theirs and raw.in_transaction:
            raw.execute("ROLLBACK")
        with connection.wrap_database_errors:
            raise


class WriteTransaction(Generic[Found]):
    """The write lock, held for a block; everything in it is committed, or rolled back.

    ``look``: what it finds is given to the block; where that is nothing there is no transaction (see ``begin``).
    ``held``: for a control loop, which is told for how many seconds it held the lock; the busy handler is off already,
    nothing is waited for, and threads that compute are made to hand the interpreter over soon: after each statement it
    is waited for with the lock held.
    """

    def __init__(
        self, connection: BaseDatabaseWrapper, held: Callable[[float], None] | None, look: Callable[[float], Found]
    ) -> None:
        self._raw: sqlite3.Connection = connection.connection
        self._look = look
        self._errors = connection.wrap_database_errors
        self._held = held
        self._began = 0.0  # monotonic
        self._switch_interval = 0.0
        self._theirs = False  # whether the user has begun a transaction, which is not ours to end
        self._ours = False  # whether we have begun one

    def __enter__(self) -> Found:
        if self._held:
            self._began, self._switch_interval = time.monotonic(), sys.getswitchinterval()
            sys.setswitchinterval(min(HURRY, self._switch_interval))
        try:
            self._theirs = self._raw.in_transaction
            if self._held:
                self._raw.execute(BEGIN)
                found = self._look(0.0)
            else:
                found = begin(self._raw, self._look)
            self._ours = self._raw.in_transaction and not self._theirs
            return found
        except BaseException:  # TaskTimeout is raised in a thread wherever it is: after BEGIN, too
            self._end()
            with self._errors:
                raise

    def __exit__(self, kind: type[BaseException] | None, *ignored: object) -> None:
        try:
            if kind is None and self._ours:
                self._raw.execute("COMMIT")  # without WAL it waits for who reads, and lets in nobody else
        except sqlite3.Error:
            with self._errors:
                raise
        finally:
            try:
                self._end()
            finally:
                if self._held:
                    self._held(time.monotonic() - self._began)

    def _end(self) -> None:
        """Leave nothing open, and the switch interval as it was."""
        try:
            if self._raw.in_transaction and not self._theirs:
                self._raw.execute("ROLLBACK")
        except sqlite3.Error:
            with self._errors:
                raise
        finally:
            if self._held:
                sys.setswitchinterval(self._switch_interval)
