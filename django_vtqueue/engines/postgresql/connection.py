"""A connection to PostgreSQL: its transactions, its clock, and the execution of statements."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from select import POLLIN, poll
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.utils import DatabaseError, InterfaceError, OperationalError

from ...core import clock
from ...core.clock import SECOND
from ...core.job import ClaimKey
from ...runtime.tracing import untraced
from .task_transaction import task_transaction

T = TypeVar("T")

# A worker looks at the server's clock each second, so that it knows of a step of it; other code uses what this process
# has measured last, for a crystal is off by no more than a few milliseconds in a minute.
LOOK_OF_WORKER, LOOK_OF_OTHERS = 1.0, 60.0  # seconds
# A server that gives no answer keeps each caller waiting for seconds: it is left alone for a while.
NO_ANSWER, ASK_AGAIN = 1.0, 10.0  # seconds

# Milliseconds for which a session may be silent in the middle of a transaction of the queue, whose statements follow
# each other at once; see END_IF_SILENT. A SET is not planned and has no result: a third less time than a SELECT with a
# parameter (measured), which each claim, settlement and bulk would wait for.
SILENT = 10_000

# A worker that is cut off would wait for an answer for 15 minutes, as the kernel does. The alias may say otherwise.
WHEN_CUT_OFF = {
    "connect_timeout": 5,  # seconds
    "tcp_user_timeout": 5000,  # milliseconds for which what was sent is not acknowledged
    "keepalives_idle": 5,  # seconds, for while an answer is waited for
    "keepalives_interval": 2,
    "keepalives_count": 2,
}

# For a statement for which the planner expects far more rows than there are: to compile it takes longer than all else.
# It returns what was set before, which OFFSET has be read first.
UNCOMPILED = """
SELECT before.jit, set_config('jit', 'off', true) FROM (SELECT current_setting('jit') AS jit OFFSET 0) AS before"""

# Of the transaction; a shorter one that the project has set stays.
LOCK_TIMEOUT = """
SELECT set_config('lock_timeout', least(%(milliseconds)s, nullif(usual, 0))::int::text, true)
FROM (SELECT extract(epoch FROM current_setting('lock_timeout')::interval) * 1000 AS usual) AS setting"""
LONGEST_WAIT = 86_400.0  # seconds

# Cancellations, moves, and bulks with unique keys change many rows beside control loops, which lock the same rows in
# the order of their plans: to lock them by id first would cost each settlement a statement. Each may wait for the other
# then: a deadlock, of which the server ends one after a second. Who changes many rows lets go of all of them sooner,
# and begins again.
YIELDS, PATIENCE = 20, "100ms"
YIELDS_AT = ("55P03", "40P01")  # lock_timeout, a deadlock

# Of several readings the quickest is the surest: one in which this process was stopped, or the answer came late, is
# wrong by about half of its time.
FIRST_READINGS = 3
DRIFT = 100  # microseconds a second by which two clocks may come apart: ten times what crystals do


class Measured(NamedTuple):
    """What must be added to this machine's time since boot to get the server's clock, in microseconds.

    ``doubt``: by how much that may be wrong.
    """

    offset: int
    at: float  # seconds since boot
    doubt: int


_measured: dict[str, Measured] = {}  # by alias: all threads of a process share it


# The driver's cursor of each of Django's connections: to make and close one takes a fifth of what an enqueue takes in
# Python (measured). What it has read it keeps until its next statement.
_cursors: "WeakKeyDictionary[BaseDatabaseWrapper, Any]" = WeakKeyDictionary()

# Until when (boot clock) a transaction of a connection may wait for a lock, in a block of ``lock_timeout``.
_lock_until: "WeakKeyDictionary[BaseDatabaseWrapper, float | None]" = WeakKeyDictionary()


class PostgreSQLConnection:
    """The connection of an engine; what it promises is said by Engine."""

    alias: str
    traced = True

    _snapshot = ""
    _ask_at = 0.0  # seconds since boot: not before this is the server's clock read

    @property
    def connection(self) -> BaseDatabaseWrapper:
        return connections[self.alias]

    def now(self) -> int:
        """Return the present instant of the server's clock, on which all leases of this database are.

        It is asked for dozens of times a turn, so the difference to this machine's time since boot is measured, which
        no step of the wall clock here changes. To read it with each statement would leave no instant to what decides
        before a statement, and none to tests.
        """
        known, asked_at = _measured.get(self.alias), clock.since_boot()
        look = LOOK_OF_OTHERS if self.traced else LOOK_OF_WORKER
        if known is None or (asked_at - known.at > look and asked_at >= self._ask_at):
            try:
                known = self._measure(known)
            except (DatabaseError, InterfaceError):
                if known is None:
                    raise
                # What was measured holds on, so that a job that ends while the server is gone has an end.
                if (failed_at := clock.since_boot()) - asked_at > NO_ANSWER:
                    self._ask_at = failed_at + ASK_AGAIN
        return known.offset + round(clock.since_boot() * SECOND) + clock.offset()

    def _measure(self, known: Measured | None) -> Measured:
        """Read the server's clock; what was known is kept while it is the surer one, and the reading no step of it."""
        if known is None:
            self.connection.ensure_connection()  # before the readings: it takes milliseconds
            measured = min((self._reading() for _ in range(FIRST_READINGS)), key=lambda reading: reading.doubt)
        elif self.connection.needs_rollback:
            return known
        else:
            measured = self._reading()
            doubt = known.doubt + round(DRIFT * (measured.at - known.at))
            if doubt <= measured.doubt and abs(measured.offset - known.offset) <= doubt + measured.doubt:
                measured = Measured(known.offset, measured.at, doubt)
        _measured[self.alias] = measured
        return measured

    def _reading(self) -> Measured:
        before = clock.since_boot()
        server = int(self._value("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint", {}))
        after = clock.since_boot()
        middle, half = (before + after) / 2, (after - before) / 2
        return Measured(server - round(middle * SECOND), after, round(half * SECOND))

    def describe(self) -> str:
        version, durable = self._rows(
            "SELECT current_setting('server_version'), current_setting('synchronous_commit')"
        )[0]
        return (
            f"{self.connection.settings_dict['NAME']} (PostgreSQL {version.split()[0]}, synchronous_commit {durable})"
        )

    def transaction(self) -> AbstractContextManager[object]:
        return nullcontext() if self._in_transaction else self._transaction()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self.atomic():
            self._run(f"SET LOCAL idle_in_transaction_session_timeout = {SILENT}")
            yield

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """Return Django's atomic block, at READ COMMITTED whatever the project sets, unless it is the caller's.

        What is counted when a lock has been taken must be what is committed by then, not what was at the beginning; and
        of two that change one row the second one goes on.
        """
        if self._in_transaction:
            with transaction.atomic(using=self.alias):
                yield
            return
        with self._begun("READ_COMMITTED"):
            if until := _lock_until.get(self.connection):
                self.set_lock_timeout(until - clock.since_boot())
            yield

    @contextmanager
    def snapshot(self) -> Iterator[int]:
        """See Engine. What the first statement sees all others see, too; in a transaction of the caller they see what
        is committed by then, if that is at READ COMMITTED.
        """
        if self._in_transaction:
            with self.uncompiled():
                yield self.now()
            return
        with self._begun("REPEATABLE_READ", read_only=True):
            self._value(UNCOMPILED, {})
            yield self.now()

    @contextmanager
    def _begun(self, level: str, *, read_only: bool | None = None) -> Iterator[None]:
        """Return an outermost atomic block of this level."""
        self.connection.close_if_health_check_failed()  # else the block itself would make another one
        self.connection.ensure_connection()
        raw, levels = self.connection.connection, self.connection.Database.IsolationLevel  # type: ignore[attr-defined]
        with self.connection.wrap_database_errors:  # it may be lost
            usual, raw.isolation_level = (raw.isolation_level, raw.read_only), levels[level]
            raw.read_only = usual[1] if read_only is None else read_only
        try:
            with transaction.atomic(using=self.alias):
                yield
        finally:
            if not raw.info.transaction_status:  # else it is closed, or broken
                raw.isolation_level, raw.read_only = usual

    @contextmanager
    def uncompiled(self) -> Iterator[None]:
        """Return a block in which the server executes statements without compiling them to machine code first.

        In a transaction of the caller what was set before holds again after it, also after an error.
        """
        within = self._in_transaction
        with self.atomic():  # there a savepoint, back to which an error leads
            usual = self._value(UNCOMPILED, {})
            yield
            if within:
                self._run(f"SET LOCAL jit = {usual}")

    def yielding(self, write: Callable[[], T]) -> T:
        """See Engine. The last try waits as long as any statement does, for a row that is locked for long."""
        usual = self._value("SELECT current_setting('lock_timeout')", {}) if self._in_transaction else None
        for _ in range(YIELDS):
            try:
                with self.atomic():
                    self._run(f"SET LOCAL lock_timeout = '{PATIENCE}'")
                    written = write()
                    if usual is not None:
                        self._run(f"SET LOCAL lock_timeout = '{usual}'")
                    return written
            except OperationalError as error:
                if getattr(error.__cause__, "sqlstate", None) not in YIELDS_AT:
                    raise
        with self.atomic():
            return write()

    @contextmanager
    def without_lock_waits(self, *, pooled: bool = True) -> Iterator[None]:
        """See Engine; here it is a connection that is cut off for which nothing waits for long. It makes no spans."""
        connection = self.connection
        usual = connection.settings_dict
        connection.close()
        outside = {} if pooled else {"pool": None}
        connection.settings_dict = {**usual, "OPTIONS": {**WHEN_CUT_OFF, **usual["OPTIONS"], **outside}}
        try:
            with untraced():
                yield
        finally:
            with suppress(Exception):  # it is broken
                connection.close()
            connection.settings_dict = usual

    @contextmanager
    def lock_timeout(self, seconds: float) -> Iterator[None]:
        """See Engine. It is said for each transaction, for nothing is kept in the session; a look alone has none."""
        connection = self.connection
        usual, _lock_until[connection] = _lock_until.get(connection), clock.since_boot() + seconds
        try:
            yield
        finally:
            _lock_until[connection] = usual

    def set_lock_timeout(self, seconds: float) -> None:
        """Have each statement until the end of the transaction wait so long for a lock, at the most."""
        self._rows(LOCK_TIMEOUT, {"milliseconds": max(round(min(seconds, LONGEST_WAIT) * 1000), 1)})

    @contextmanager
    def transaction_if(self, look: Callable[[float], T]) -> Iterator[T]:
        """See Engine; the look locks the rows that it finds, so it is made in the transaction, and once."""
        with self.transaction():
            if found := look(0.0):
                yield found
        if not found:
            yield found

    def task_transaction(
        self, seconds: float, first: Callable[[], None] = lambda: None
    ) -> AbstractContextManager[None]:
        self.connection.ensure_connection()
        return task_transaction(self.connection, seconds, first)

    @staticmethod
    def outdated(connection: BaseDatabaseWrapper) -> bool:
        """See Engine; here a server that has ended the session has sent something, though nothing was asked.

        It was restarted, say. Else that would be noticed, and cost an attempt, by the next job whose task uses it.
        """
        raw = connection.connection
        if raw is None or raw.closed:
            return raw is not None
        waiting = poll()
        waiting.register(raw.fileno(), POLLIN)
        with suppress(connection.Database.OperationalError):  # type: ignore[attr-defined]
            while waiting.poll(0):  # a notification, which libpq keeps, or the end
                raw.pgconn.consume_input() if hasattr(raw, "pgconn") else raw.poll()  # of psycopg2
            return False
        return True

    def server(self) -> str:
        return str(self._value("SELECT pg_postmaster_start_time()::text", {}))

    def changed(self) -> bool:
        """See Engine; all that has been committed makes another snapshot, also in another database of the server."""
        snapshot = self._value("SELECT pg_current_snapshot()::text", {})
        before, self._snapshot = self._snapshot, snapshot
        return bool(snapshot != before)

    @property
    def _in_transaction(self) -> bool:
        """Whether a statement is a part of one; what is read is locked there, while a look alone locks nothing."""
        return self.connection.in_atomic_block or not self.connection.get_autocommit()

    def _execute(self, sql: str, values: Mapping[str, Any] | None) -> CursorWrapper:
        """Execute a statement by the cursor of this connection that the queue keeps; return that in Django's wrapper.

        A method that a profiler or a test has put in the place of ``cursor`` is asked for one each time.
        """
        connection = self.connection
        if "cursor" in vars(connection):
            cursor = connection.cursor()
        else:
            connection.validate_thread_sharing()
            connection.close_if_health_check_failed()
            connection.ensure_connection()
            kept = _cursors.get(connection)
            if kept is None or kept.connection is not connection.connection:
                with connection.wrap_database_errors:
                    kept = _cursors[connection] = connection.create_cursor()
            cursor = (connection.make_debug_cursor if connection.queries_logged else connection.make_cursor)(kept)
        cursor.execute(sql, values)
        return cursor

    def _run(self, sql: str, values: Mapping[str, Any] | None = None) -> int:
        """Execute a statement that writes; return how many rows it changed."""
        return int(self._execute(sql, values).rowcount)

    def _rows(self, sql: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._execute(sql, values).fetchall()
        return rows

    def _value(self, sql: str, values: Mapping[str, Any]) -> Any:
        return self._rows(sql, values)[0][0]

    def _keys(self, sql: str, values: Mapping[str, Any]) -> set[ClaimKey]:
        return {(job_id, claims) for job_id, claims in self._rows(sql, values)}
