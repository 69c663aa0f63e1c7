"""A child process of a worker: runs jobs in its threads and reports what came of them. It claims and settles nothing.

When the pipe to its parent closes it ends at once: its leases are not renewed any more.
"""

import gc
import os
from multiprocessing.connection import Connection
from typing import Any, cast

from ...backend import VTQueueBackend
from ...core import states
from ...core.job import HeldJob, Key
from ...execution.outcomes import Outcome
from ...tasks.compat import task_backends
from ...tasks.task import import_task_modules
from ..log import Silence, without_unread_records
from ..thread_pool import Pool
from . import protocol

LINGER = 0.002  # seconds: many outcomes in one piece cost the parent little more than one


def run(alias: str, threads: int, descriptor: int) -> None:
    """Run a child of a worker for the backend ``alias``, with its pipe at ``descriptor``."""
    backend = cast(VTQueueBackend, task_backends[alias])
    import_task_modules(backend.settings.task_modules)
    gc.freeze()  # as in its parent
    with without_unread_records():
        Child(backend, threads, Connection(descriptor)).run()


class Child:
    """Takes jobs from its parent until it is told to stop."""

    def __init__(self, backend: VTQueueBackend, threads: int, parent: Connection) -> None:
        self.parent = parent
        self.pool = Pool(threads, backend, Silence(), self.finished, self.timed)
        self.outbox = protocol.Outbox(
            parent, self.wait_for_more, lambda: os._exit(1)
        )  # the thread that notices that the parent is gone
        self._jobs: dict[Key, HeldJob] = {}  # not finished
        self._unsettled: dict[Key, Outcome] = {}  # finished; to be told when they are stored

    def run(self) -> None:
        """Work for the parent."""
        self.pool.start()
        self.outbox.say("ready")
        try:
            self.obey()
        except (EOFError, OSError):  # the parent is gone
            os._exit(1)

    def obey(self) -> None:
        """Do what the parent says until it says stop; raise EOFError or OSError when it is gone."""
        while all(self._do(*message) for message in protocol.receive(self.parent)):
            pass

    def _do(self, verb: str, *values: Any) -> bool:
        """Do one thing that the parent says; return whether to go on."""
        match verb, values:
            case "execute", [jobs]:
                unpacked = [protocol.unpacked_job(job) for job in jobs]
                self._jobs.update((job.key, job) for job in unpacked)
                self.pool.run(unpacked)
            case "recall", []:
                recalled = [job.key for job in self.pool.recall()]
                for key in recalled:
                    del self._jobs[key]
                self.outbox.say("returned", recalled)
            case "contact", [asked]:
                self._ask({protocol.key_of(key): by for key, by in asked})
                self._tell_progress()
            case "tell", [keys]:
                self.pool.announce([self._unsettled.pop(protocol.key_of(key)) for key in keys])
            case "forget", [key]:
                del self._unsettled[protocol.key_of(key)]
            case "bury", [job, settlement]:
                self.pool.announce_burial(protocol.unpacked(protocol.unpacked_job(job), *settlement))
            case "stop", [seconds]:
                self.pool.stop(seconds)
                self.outbox.close()
        return verb != "stop"

    def finished(self, outcome: Outcome) -> None:
        """In a thread: send what shall be stored; if a receiver is to be told then, keep the outcome until it is."""
        key, settlement = outcome.job.key, outcome.settlement
        kept = outcome.result is not None and settlement.state != states.READY
        if kept:
            self._unsettled[key] = outcome
        self._jobs.pop(key, None)
        values = protocol.packed(settlement), outcome.seconds, outcome.stored, outcome.job.progress
        self.outbox.say("finished", key, kept, *values)

    def timed(self, key: Key, runs: bool) -> None:
        """In a thread: say whether the time of a transactional job runs."""
        self.outbox.say("timed", key, runs)

    def _ask(self, asked: dict[Key, str]) -> None:
        """Let jobs know that they shall stop; one that has just finished is not here any more."""
        for key, by in asked.items():
            if job := self._jobs.get(key):
                job.asked_by = by

    def _tell_progress(self) -> None:
        """Say how far jobs are, as far as that is news."""
        said = [(job, job.progress) for job in list(self._jobs.values()) if job.progress != job.stored]
        for job, progress in said:
            job.stored = progress
        self.outbox.say("progress", [(job.key, progress) for job, progress in said])

    def wait_for_more(self) -> float:
        """Return the seconds to wait for more outcomes before they are sent: some, while the threads have work."""
        return LINGER if self.pool.waiting() > self.pool.slots else 0.0
