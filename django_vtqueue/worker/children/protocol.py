"""The messages between a worker and its child processes: JSON over a socket pair, several in one piece.

To a child: ``execute`` jobs; ``recall`` the jobs that no thread has taken; ``contact``, with those that are asked to
stop; ``tell`` the world outcomes, which are stored; ``forget`` an outcome, which was lost; ``bury`` a job that died
elsewhere; ``stop``. From a child: ``ready``; ``timed``, whether the time of a transactional job runs; ``finished``,
with what shall be stored or, for a transactional task, is, and whether the child keeps the outcome to tell or to forget
it; ``returned``, the jobs that were recalled; ``progress``, how far jobs are, the answer to ``contact``.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import fields
from multiprocessing.connection import Connection
from operator import attrgetter
from queue import Empty, SimpleQueue
from typing import Any

from ...core.failures import Failure
from ...core.job import HeldJob, Key, Progress, Settlement

Message = list[Any]  # the verb, then its values

_job = attrgetter(*(field.name for field in fields(HeldJob) if not field.kw_only))
_settlement = attrgetter(
    *(field.name for field in fields(Settlement) if field.name not in ("job", "failure") and not field.kw_only)
)
_failure = attrgetter(*(field.name for field in fields(Failure)))


class Outbox:
    """Messages to the other side, sent by a thread of their own: it may wait for the reader, who says them must not.

    ``wait_for_more``: asked for the seconds to wait when there is a first message. ``lost``: called when the other side
    is gone; what is said then is dropped.
    """

    def __init__(self, connection: Connection, wait_for_more: Callable[[], float], lost: Callable[[], None]) -> None:
        self._connection, self._linger, self._lost = connection, wait_for_more, lost
        self._messages: SimpleQueue[Message | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._send, name="outbox", daemon=True)
        self._thread.start()

    def say(self, verb: str, *values: Any) -> None:
        """Send a message, soon."""
        self._messages.put([verb, *values])

    def close(self) -> None:
        """Send what has been said, and end the thread."""
        self._messages.put(None)
        self._thread.join()

    def end(self) -> None:
        """End the thread, whenever it gets to it."""
        self._messages.put(None)

    def _send(self) -> None:
        try:
            while message := self._messages.get():
                if (seconds := self._linger()) > 0:
                    time.sleep(seconds)
                messages, ended = self._all_after(message)
                self._connection.send_bytes(json.dumps(messages).encode())
                if ended:
                    return
                del message, messages  # they may be large, and the next one may be long in coming
        except OSError:
            self._lost()

    def _all_after(self, first: Message) -> tuple[list[Message], bool]:
        """Return the messages that are there, and whether they are the last ones."""
        messages = [first]
        try:
            while message := self._messages.get_nowait():
                messages.append(message)
            return messages, True
        except Empty:
            return messages, False


def receive(connection: Connection) -> list[Message]:
    """Return the next messages; raise EOFError or OSError if the other side is gone."""
    messages: list[Message] = json.loads(connection.recv_bytes())
    return messages


def packed_job(job: HeldJob) -> tuple[Any, ...]:
    """Return a job as JSON's own types."""
    values: tuple[Any, ...] = _job(job)
    return values


def unpacked_job(values: list[Any]) -> HeldJob:
    """Return what ``packed_job`` was given."""
    return HeldJob(*values)


def packed(settlement: Settlement) -> tuple[Any, ...]:
    """Return a settlement as JSON's own types, but for its job."""
    return settlement.failure and _failure(settlement.failure), *_settlement(settlement)


def unpacked(job: HeldJob, failure: list[Any] | None, *values: Any) -> Settlement:
    """Return the settlement of ``job`` that ``packed`` was given."""
    settlement = Settlement(job, *values)
    settlement.failure = Failure(*failure) if failure else None
    return settlement


def progress_of(values: list[Any] | None) -> Progress | None:
    """Return the progress of a job that came as a list, if there is one."""
    return (values[0], values[1]) if values else None


def key_of(values: list[Any]) -> Key:
    """Return a key that came as a list."""
    job_id, claims = values
    return job_id, claims
