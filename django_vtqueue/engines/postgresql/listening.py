"""LISTEN and NOTIFY: a commit on one host wakes the workers on the others.

A NOTIFY holds a lock of the whole server until its transaction has been committed, so it never is a part of what a
publisher commits, and a process sends at most one in some milliseconds. Who is woken is woken twice: at once, and when
the publisher may send the next one. What is lost costs at most the time until the worker's next look.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from selectors import EVENT_READ, DefaultSelector
from typing import Any

from django.db import Error, connections

from ...core.backoff import trouble_pause
from ...runtime.aside import logging_aside
from ..base import Listener
from .connection import WHEN_CUT_OFF, PostgreSQLConnection

logger = logging.getLogger("django_vtqueue")

BETWEEN_NOTIFIES = 0.005  # seconds for which a process sends no other NOTIFY
# One for each set of tables, whatever the search path is.
CHANNEL = "'vtqueue_' || 'vtqueue_job'::regclass::oid::text"
WORKERS = "workers"  # the rows of the workers have something for one of them
# Nothing is bound and nothing is read back, for an enqueue waits for it: a fifth less time (measured).
NOTIFY, NOTIFY_WORKERS = (f"SELECT pg_notify({CHANNEL}, '{what}')" for what in ("", WORKERS))
LISTEN = f"SELECT {CHANNEL}, pg_backend_pid()"
LEAVES = 1.0  # seconds for which a listener that is closed is waited for: it may be connecting

_sent: dict[str, float] = {}  # by alias, when this process has sent its last NOTIFY (monotonic)


class PooledConnection(Exception):
    """A pooler stands between: what LISTEN asks for belongs to a connection of the server, which others get too."""


class PostgreSQLListening(PostgreSQLConnection):
    """The part of an Engine that wakes other hosts, and is woken by them."""

    def ring(self, *, workers: bool = False) -> None:
        now = time.monotonic()
        if (not workers and now < _sent.get(self.alias, 0.0) + BETWEEN_NOTIFIES) or self._in_transaction:
            return
        if not workers:
            _sent[self.alias] = now
        with suppress(Error):
            self._run(NOTIFY_WORKERS if workers else NOTIFY)

    def listen(self, rung: Callable[[bool], None]) -> Listener:
        return PostgreSQLListener(self.alias, rung)


class PostgreSQLListener(Listener):
    """A thread that waits at a connection of its own, outside of Django's pool."""

    def __init__(self, alias: str, rung: Callable[[bool], None]) -> None:
        self._alias, self._rung = alias, rung
        self._logged = False  # that it is not connected
        self._end, self._ending = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._end.close()
        self._thread.join(LEAVES)

    @logging_aside()
    def _run(self) -> None:
        """Listen; after an error, connect again, later each time."""
        tries = 0
        with closing(self._ending):
            while not self._ended(trouble_pause(tries) if tries else 0.0):
                try:
                    with self._connected() as raw:
                        tries = 0
                        self._hear(raw)
                        return
                except PooledConnection:
                    logger.warning(POOLED)
                    return
                except Exception as error:
                    tries += 1
                    self._say_once(error)

    def _ended(self, seconds: float) -> bool:
        """Wait for so many seconds; return at once, True, if it is closed."""
        with DefaultSelector() as selector:
            selector.register(self._ending, EVENT_READ)
            return bool(selector.select(seconds))

    def _say_once(self, error: Exception) -> None:
        if not self._logged:
            self._logged = True
            why = " ".join(str(error).split())  # libpq writes several lines
            logger.warning("LISTEN has ended (%s); until it is back, this process looks for jobs itself", why)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Connect as Django does, but without its pool, and LISTEN; yield the connection of psycopg."""
        connection = connections[self._alias].copy()
        settings = connection.settings_dict
        settings["OPTIONS"] = {**WHEN_CUT_OFF, **settings["OPTIONS"], "pool": None}
        settings["AUTOCOMMIT"] = True
        with closing(connection):
            with connection.cursor() as cursor:
                cursor.execute(LISTEN)
                channel, pid = cursor.fetchone()
                if pid != connection.connection.info.backend_pid:
                    raise PooledConnection
                cursor.execute("SET idle_session_timeout = 0")  # it says nothing for as long as it hears
                cursor.execute(f"LISTEN {channel}")
            self.hears = True
            if self._logged:
                logger.info("LISTEN is back")
                self._logged = False
            try:
                yield connection.connection
            finally:
                self.hears = False

    def _hear(self, raw: Any) -> None:
        """Have it rung for what comes, until it is closed; what has come while it was not connected is looked for."""
        self._rung(False)
        with DefaultSelector() as selector:
            selector.register(raw.fileno(), EVENT_READ)
            selector.register(self._ending, EVENT_READ, self)
            while not any(key.data for key, _ in selector.select()):
                if heard := _notifications(raw):
                    self._rung(WORKERS in heard)
                while heard:
                    time.sleep(BETWEEN_NOTIFIES)
                    heard = _notifications(raw)
                    self._rung(WORKERS in heard)


POOLED = (
    "a connection pooler (PgBouncer, say) stands between this process and PostgreSQL, so it cannot LISTEN: it looks "
    "for jobs itself. Where the workers' alias goes to the server itself, they are woken at once"
)


def _notifications(raw: Any) -> set[str]:
    """Return what was told meanwhile; raise an error of psycopg if the connection is gone."""
    raw.pgconn.consume_input()
    told = set()
    while notification := raw.pgconn.notifies():
        told.add(notification.extra.decode())
    return told
