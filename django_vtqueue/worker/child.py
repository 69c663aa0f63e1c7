"""A child process of a worker: runs jobs in its threads and reports what came of them. It claims and settles nothing.

When the pipe to its parent closes it ends at once: nobody renews its leases any more.
"""

import os
import threading
from multiprocessing.connection import Connection
from typing import cast

from ..backend import VTQueueBackend
from ..compat import task_backends
from ..execution import Outcome
from ..jobs import HeldJob, Key
from ..tasks import import_task_modules
from . import wire
from .pool import Pool
from .report import Silence


def run(alias: str, threads: int, descriptor: int) -> None:
    """Run a child of a worker for the backend ``alias``, with its pipe at ``descriptor``."""
    backend = cast(VTQueueBackend, task_backends[alias])
    import_task_modules(backend.settings.task_modules)
    Child(backend, threads, Connection(descriptor)).run()


class Child:
    """Takes jobs from its parent until it is told to stop."""

    def __init__(self, backend: VTQueueBackend, threads: int, parent: Connection) -> None:
        self.parent = parent
        self.pool = Pool(threads, backend, Silence(), self.finished)
        self._unsettled: dict[Key, Outcome] = {}  # finished, and not yet known to be stored
        self._lock = threading.Lock()  # a message is sent whole

    def run(self) -> None:
        """Work for the parent."""
        self.pool.start()
        self.say("ready")
        try:
            self.obey()
        except (EOFError, OSError):  # the parent is gone
            os._exit(1)

    def obey(self) -> None:
        """Do what the parent says until it says stop; raise EOFError or OSError when it is gone."""
        while True:
            verb, values = wire.receive(self.parent)
            match verb, values:
                case "execute", [job]:
                    self.pool.run(HeldJob(**job))
                case "tell", [job_id, claims]:
                    self.pool.announce(self._unsettled.pop((job_id, claims)))
                case "forget", [job_id, claims]:
                    del self._unsettled[job_id, claims]
                case "bury", [settlement]:
                    self.pool.announce_burial(wire.unpacked(settlement))
                case "stop", [seconds]:
                    self.pool.stop(seconds)
                    return

    def finished(self, outcome: Outcome) -> None:
        """In a thread: send what shall be stored, and keep the rest until it is."""
        self._unsettled[outcome.job.key] = outcome
        self.say("finished", wire.packed(outcome.settlement), outcome.seconds, outcome.stands)

    def say(self, verb: str, *values: object) -> None:
        """Send a message to the parent; if it is gone, end here and now, from whichever thread."""
        with self._lock:
            try:
                wire.send(self.parent, verb, *values)
            except OSError:
                os._exit(1)
