"""Troubles of the database that pass: the worker tries again, and logs each kind once an outage.

Of a lock it does so every few milliseconds, of anything else after a pause that grows (``core/backoff.py``).
"""

import gc
import logging
import random
import time
from collections.abc import Callable
from math import inf
from traceback import clear_frames

from ..core.backoff import IN_DANGER, busy_pause, trouble_pause
from ..core.links import page
from ..engines import Engine, Trouble
from ..queue.schema import migrate

logger = logging.getLogger("django_vtqueue")

SAID_AFTER = 1.0  # seconds of a locked database before it is worth a line

HELP = {
    Trouble.DISK: (
        " Free some space, or make the database writable. A disk I/O error may be a deleted log: "
        f"{page('guides/backups')}"
    ),
    Trouble.UNOPENED: " Its folder must be there, and this user must be allowed to write in it.",
    Trouble.DAMAGED: " Put a good copy in its place.",
}


class Outage:
    """A run of failures of the database, from the first until something succeeds again."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.retry_at = 0.0  # monotonic; 0: no outage
        self.gone = False  # the database could not be reached, by the last try
        self._began = 0.0
        self._tries = 0
        self._logged: set[Trouble | None] = set()

    def waiting(self) -> bool:
        """Return whether the next try is still to come."""
        return time.monotonic() < self.retry_at

    def seconds(self) -> float:
        """Return for how many seconds nothing has succeeded."""
        return time.monotonic() - self._began if self._tries else 0.0

    def note_failure(self, error: BaseException, factor: float = 1.0, left: float = inf, lease: float = inf) -> None:
        """Note a failure; ``retry_at`` says when to try again.

        ``factor``: of the usual pause for a lock; ``left``: seconds of a lease to renew, see busy_pause; ``lease``: of
        the shortest lease that is held, see trouble_pause.
        """
        now = time.monotonic()
        if not self._tries:
            self._began = now
        self._tries += 1
        kind = self.engine.trouble(error)
        self.gone = kind is Trouble.GONE
        if kind is Trouble.BUSY:
            pause = busy_pause(now - self._began, random.random(), left)
            pause *= factor if left > IN_DANGER else 1
            if now - self._began >= SAID_AFTER:
                self._say(kind, "%s; waiting. Nothing is lost.", kind.value)
        else:
            pause = min(trouble_pause(self._tries, lease), getattr(error, "passes_in", inf))
            if kind is None:
                self._say(kind, "an error that this worker does not know; it goes on", exc_info=error)
            else:
                said = kind.said(error)
                self._say(kind, "%s; waiting.%s", said, self._help(kind, said))
                self.engine.disconnect()  # one that was opened for reading only, say, would stay so
        self.retry_at = now + pause
        # Django's errors of a database are part of a reference cycle, with everything that the failed turn referred to.
        clear_frames(error.__traceback__)
        if kind is not Trouble.BUSY:
            gc.collect(1)  # so is a connection of sqlite3 that Django could not set up: it keeps its files open

    def note_success(self) -> None:
        """Note a success."""
        self.retry_at, self.gone = 0.0, False
        self._tries = 0
        self._logged.clear()

    def _help(self, kind: Trouble, said: str) -> str:
        """Return what to do about it; of the tables the error of a publish says so itself.

        The database is not asked: its answer may be long in coming, and this worker has leases to renew.
        """
        if kind is Trouble.SCHEMA and "run: " not in said:
            return (
                f" If they are older than this code, run: {migrate(self.engine.alias)}; if newer, upgrade this worker."
            )
        return HELP.get(kind, "")

    def _say(self, kind: Trouble | None, text: str, *args: object, exc_info: BaseException | None = None) -> None:
        if kind not in self._logged:
            self._logged.add(kind)
            logger.warning(text, *args, exc_info=exc_info)


def retry_before(deadline: float, engine: Engine, step: Callable[[], object], outage: Outage) -> bool:
    """Do ``step`` in a transaction, again and again until ``deadline`` (monotonic); return whether it was done."""
    while True:
        try:
            with engine.transaction():
                step()
            return True
        except Exception as error:
            outage.note_failure(error)
            if time.monotonic() > deadline:
                return False
            time.sleep(max(min(outage.retry_at, deadline) - time.monotonic(), 0))
