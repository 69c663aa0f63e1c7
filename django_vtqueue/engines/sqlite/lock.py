"""SQLite's write lock, taken fairly; by a second connection while the first one still reads.

SQLite's own busy handler sleeps longer and longer, and makes one of two busy writers wait for a second. It is switched
off here: while another connection has the lock, this code asks for it again about every millisecond. 4 workers and 4
publishers at full speed wait 13 ms at p99.9 (measured).
"""

import random
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import OperationalError

from ...core import clock
from ...core.backoff import busy_pause

T = TypeVar("T")
Pause = Callable[[float, float], float]

HURRY = 0.00002  # seconds: the switch interval of the interpreter while a control loop holds the lock
BEGIN = "BEGIN IMMEDIATE"
READING = "PRAGMA user_version"  # makes the connection read until the cursor is closed
DJANGOS_BEGIN = "_start_transaction_under_autocommit"  # a method of Django's connections
WITHOUT_WAL = 1.0  # seconds for which a commit waits for those who read, and a read for a commit
BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


class StaleSnapshot(sqlite3.OperationalError):
    """The write lock was refused: this connection reads, and another one has written since that read began.

    SQLite refuses the lock until the cursor is closed. ``waited``: the seconds of waiting before the refusal.
    """

    sqlite_errorcode = sqlite3.SQLITE_BUSY_SNAPSHOT
    waited = 0.0


def extended_code_of(error: BaseException) -> int:
    """Return the extended SQLite result code behind an error of ``sqlite3`` or of Django; 0 if there is none."""
    for cause in (error, error.__cause__):
        if isinstance(cause, sqlite3.Error):
            return getattr(cause, "sqlite_errorcode", None) or 0
    return 0


def code_of(error: BaseException) -> int:
    """Return the primary SQLite result code behind an error; see extended_code_of."""
    return extended_code_of(error) & 0xFF


def is_stale(error: BaseException) -> bool:
    """Return whether an error of ``sqlite3`` or of Django says that the connection reads an old snapshot."""
    return extended_code_of(error) == sqlite3.SQLITE_BUSY_SNAPSHOT


def beside(connection: BaseDatabaseWrapper, stale: BaseException | None) -> BaseDatabaseWrapper:
    """Return a second connection to the same database, open, for one transaction; the caller closes it.

    The first one may go on reading. Its log and its execute wrappers see the statements of the second one, and the
    time that was waited there (``stale``) counts. To open and close a connection takes 0.3 ms.
    """
    second = connection.copy()
    second.execute_wrappers = connection.execute_wrappers
    second.queries_log = connection.queries_log
    second.force_debug_cursor = connection.force_debug_cursor
    second.ensure_connection()
    milliseconds = connection.connection.execute("PRAGMA busy_timeout").fetchone()[0]
    left = max(milliseconds - int(getattr(stale, "waited", 0.0) * 1000), 0)
    second.connection.execute(f"PRAGMA busy_timeout = {left}")
    return second


def always(waited: float) -> bool:
    """Return True: a look that finds something without looking."""
    return True


def retry_while_locked(
    raw: sqlite3.Connection, step: Callable[[], object], began: float, pause: Pause = busy_pause
) -> None:
    """Take a step (a BEGIN) again and again while the database is busy, with SQLite's busy handler switched off.

    ``began`` (monotonic): the start of the connection's busy timeout. ``pause``: see core/backoff.py. Raise
    StaleSnapshot at once if waiting is in vain. All is in one frame, because TaskTimeout may be raised in this thread
    at any call: none comes before the timeout is put back.
    """
    milliseconds = raw.execute("PRAGMA busy_timeout").fetchone()[0]
    try:
        raw.execute("PRAGMA busy_timeout = 0")
        while True:
            try:
                step()
                return
            except (sqlite3.OperationalError, OperationalError) as error:
                waited, timeout = clock.monotonic() - began, milliseconds / 1000
                if is_stale(error):
                    stale = StaleSnapshot("database is locked")
                    stale.waited = waited
                    raise stale from error
                if code_of(error) not in BUSY or waited >= timeout:
                    raise
                time.sleep(min(pause(waited, random.random()), timeout - waited))
    finally:
        raw.execute(f"PRAGMA busy_timeout = {milliseconds}")


def patiently(step: Callable[[], T]) -> T:
    """Take a step that waits for other connections where there is no WAL: a commit for who reads, a read for a commit.

    They are waited for a second if the connection itself does not wait (in a worker). A commit that waits lets in no
    new reader, and those that are there have as long as a look at the database takes.
    """
    until = clock.monotonic() + WITHOUT_WAL
    while True:
        try:
            return step()
        except (sqlite3.OperationalError, OperationalError) as error:
            if code_of(error) not in BUSY or clock.monotonic() >= until:
                raise
        time.sleep(busy_pause(0.0, random.random()))


def begin(raw: sqlite3.Connection, look: Callable[[float], T]) -> T:
    """Take the write lock if ``look`` finds something; return what it found, true at the moment of the lock.

    The lock is waited for, fairly, for as long as the connection's busy timeout says. The look and the BEGIN come after
    the start of a read: then SQLite refuses a taken lock at once, whatever the timeout, and refuses it also if another
    connection has written since. Only after a refusal is the timeout changed, which takes three statements, and the
    look repeated. (Without WAL the start of the read may wait, in SQLite's own way.)
    """
    began = clock.monotonic()
    try:
        reading = raw.execute(READING)
        try:
            if found := look(0.0):
                raw.execute(BEGIN)
        finally:
            reading.close()
        return found
    except sqlite3.OperationalError as error:
        if code_of(error) not in BUSY:
            raise
        retry_while_locked(raw, lambda: raw.execute(BEGIN), began)
    return look(clock.monotonic() - began)


def alone(connection: BaseDatabaseWrapper, step: Callable[[], T]) -> T:
    """Take a step in a transaction of its own, as WriteTransaction does, in half the calls: for a publish.

    All is in one frame, because TaskTimeout may be raised in this thread at any call: none comes before the ROLLBACK.
    """
    raw: sqlite3.Connection = connection.connection
    theirs = True
    try:
        theirs = raw.in_transaction
        begin(raw, always)
        done = step()
        raw.execute("COMMIT")
        return done
    except BaseException:
        if not theirs and raw.in_transaction:
            raw.execute("ROLLBACK")
        with connection.wrap_database_errors:
            raise


def begin_fairly(connection: Any, pause: Pause = busy_pause) -> None:
    """Begin a transaction as Django does, but wait for the lock fairly; in the place of Django's own method.

    Not by a cursor of Django's: that of a refused BEGIN is part of a reference cycle, and still refers to its
    statement. To free it takes the mutex of its connection, which a thread that waits in SQLite for the lock has. If
    the collector did so in the thread that has the lock, the two would wait for each other; in that of a control loop,
    it would stand still. (So in Python 3.11; later ones free the statement when it is refused.)
    """
    raw, mode = connection.connection, connection.transaction_mode or "DEFERRED"
    with connection.wrap_database_errors:
        retry_while_locked(raw, lambda: raw.execute(f"BEGIN {mode}"), clock.monotonic(), pause)


def replace_begin(connection: BaseDatabaseWrapper, pause: Pause = busy_pause) -> None:
    """Have transactions that Django begins on a connection begin fairly."""
    vars(connection)[DJANGOS_BEGIN] = lambda: begin_fairly(connection, pause)


@contextmanager
def begun_fairly(connection: Any, pause: Pause = busy_pause) -> Iterator[None]:
    """Have a transaction that Django begins in the block take the write lock, fairly, whatever the settings say.

    ``pause``: see core/backoff.py.
    """
    mode, begin = connection.transaction_mode, vars(connection).get(DJANGOS_BEGIN)
    try:
        connection.transaction_mode = "IMMEDIATE"
        replace_begin(connection, pause)
        yield
    finally:
        connection.transaction_mode = mode
        vars(connection).pop(DJANGOS_BEGIN, None)
        if begin:
            vars(connection)[DJANGOS_BEGIN] = begin


@contextmanager
def writable(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Make sure that this thread's connection may write, for a block with a transaction of Django's own.

    To find out, the lock is taken and given back; Django takes it anew. If it is refused to the connection because of
    an open cursor, a second connection takes its place during the block.
    """
    raw: sqlite3.Connection = connection.connection
    theirs, second = True, None
    try:
        try:
            theirs = raw.in_transaction
            if not theirs:
                begin(raw, always)
                raw.execute("ROLLBACK")
        except StaleSnapshot as stale:
            second = beside(connection, stale)
            connections[connection.alias] = second
        except sqlite3.Error:
            with connection.wrap_database_errors:
                raise
        yield
    finally:
        if second:
            connections[connection.alias] = connection
            second.close()
        # After Ctrl-C this may run last of all, when the connection is closed.
        elif not theirs and connection.connection is raw and raw.in_transaction and not connection.in_atomic_block:
            raw.execute("ROLLBACK")


class WriteTransaction(Generic[T]):
    """The write lock, held for a block; everything in it is committed, or rolled back.

    ``look``: the block is given what it finds; if that is nothing, there is no transaction (see ``begin``).
    ``held``: given by a control loop, and called with the seconds for which the lock was held. Then the lock is not
    waited for. After each statement the thread waits for the interpreter while it has the lock, so the switch interval
    is made short for the block. ``committed``: called after the commit, last of all.
    """

    def __init__(
        self,
        connection: BaseDatabaseWrapper,
        held: Callable[[float], None] | None,
        look: Callable[[float], T],
        committed: Callable[[], None] = lambda: None,
    ) -> None:
        self._connection = connection
        self._second: BaseDatabaseWrapper | None = None  # in the place of the first, which reads an old snapshot
        self._raw: sqlite3.Connection = connection.connection
        self._look = look
        self._committed = committed
        self._errors = connection.wrap_database_errors
        self._held = held
        self._began = 0.0  # monotonic
        self._switch_interval = 0.0
        self._theirs = False  # whether the user has begun a transaction, which is not ours to end
        self._ours = False  # whether we have begun one

    def __enter__(self) -> T:
        if self._held:
            self._began, self._switch_interval = clock.monotonic(), sys.getswitchinterval()
            if self._switch_interval > HURRY:  # else it is not ours to put back: another loop is in such a block
                sys.setswitchinterval(HURRY)
        try:
            self._theirs = self._raw.in_transaction
            if self._held:
                self._raw.execute(BEGIN)
                found = self._look(0.0)
            else:
                try:
                    found = begin(self._raw, self._look)
                except StaleSnapshot as stale:
                    if self._look is not always:
                        raise  # what is read after the look must be read on the same connection: beside_cursors
                    self._step_beside(stale)
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
                patiently(lambda: self._raw.execute("COMMIT"))
        except sqlite3.Error:
            with self._errors:
                raise
        finally:
            try:
                self._end()
            finally:
                if self._held:
                    self._held(clock.monotonic() - self._began)
        if kind is None and self._ours:
            self._committed()

    def _step_beside(self, stale: StaleSnapshot) -> None:
        """Go on with a second connection, which is this thread's until the end."""
        self._second = beside(self._connection, stale)
        self._raw = self._second.connection
        connections[self._connection.alias] = self._second

    def _end(self) -> None:
        """Leave nothing open, and the connection and the switch interval as they were."""
        try:
            if self._raw.in_transaction and not self._theirs:
                self._raw.execute("ROLLBACK")
        except sqlite3.Error:
            with self._errors:
                raise
        finally:
            if self._second:
                connections[self._connection.alias] = self._connection
                self._second.close()
            if self._switch_interval > HURRY:
                sys.setswitchinterval(self._switch_interval)
