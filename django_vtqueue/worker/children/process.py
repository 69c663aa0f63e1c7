"""A child process that runs jobs, as its parent sees it."""

import logging
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from ...backend import VTQueueBackend
from ...core import clock
from ...core.job import HeldJob, Key, Settlement, released
from ...execution.outcomes import Outcome, given_back
from ..leases import after_death, timed_out
from ..memory import resident
from . import protocol, spawn

logger = logging.getLogger("django_vtqueue")

Finished = Callable[[Outcome], None]

SLOW_START = 10.0  # seconds
SLOW = "process %d is not ready after %d s and runs no job: it still imports the project (kill -USR1 %d shows where)"


class Process:
    """One child, as its parent sees it.

    ``tellers``: the process enters itself for each job that is to be announced: it keeps the outcome until then, or
    has died and cannot tell it.
    """

    def __init__(
        self,
        backend: VTQueueBackend,
        threads: int,
        bell: int | None,
        finished: Finished,
        timed: Callable[[Key, bool], None],
        wake: Callable[[], None],
        tellers: "dict[Key, Process]",
    ) -> None:
        self.backend, self.threads = backend, threads
        self.slots = 0  # none until it is ready
        self.jobs: dict[Key, HeldJob] = {}  # what it runs
        self.began = time.monotonic()
        self.given = 0  # jobs, in all
        self.retired = False
        self.ended = False
        self._overdue: set[Key] = set()  # for them it is killed
        self._finished, self._timed, self._wake, self._tellers = finished, timed, wake, tellers
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair()
        with theirs:
            self.connection = Connection(os.dup(ours.fileno()))
            self._socket = ours
            descriptor = theirs.fileno()
            # The bell stays open until the last child has ended: only then does it prove that none of its jobs runs.
            inherited = [descriptor] if bell is None else [descriptor, bell]
            self.process = subprocess.Popen(spawn.command(backend.alias, threads, inherited), pass_fds=inherited)
        self.outbox = protocol.Outbox(self.connection, lambda: 0.0, lambda: None)  # who listens notices that it is gone
        self._recalled: set[Key] = set()  # what it had when it was asked, until it answers
        self.returned_at = float("-inf")  # monotonic: when it had to give back jobs that waited in vain
        self._answers = True  # it has said how far its jobs are when it was asked last
        self._told_to_stop = False
        self.ready = False
        self._said_slow = False
        threading.Thread(target=self._listen, name=f"child {self.process.pid}", daemon=True).start()

    @property
    def silent(self) -> bool:
        """Whether it has not answered yet when its jobs were recalled: for a moment, or because it stands still."""
        return bool(self._recalled) and not self.ended

    @property
    def capacity(self) -> int:
        """How many jobs it can run; while it is silent those that it has, and no others."""
        return min(len(self.jobs), len(self._recalled)) if self.silent else self.slots

    def run(self, jobs: Sequence[HeldJob]) -> None:
        """Have jobs run; if the child has just died, they are given back."""
        with self._lock:
            if not self.ended:
                self.given += len(jobs)
                self.jobs.update((job.key, job) for job in jobs)
                self.outbox.say("execute", [protocol.packed_job(job) for job in jobs])
                return
        for job in jobs:
            self._finished(given_back(job))

    def recall(self) -> None:
        """Ask for the jobs that no thread of the child has taken; they are given back when it answers."""
        with self._lock:
            had = list(self.jobs.values())  # some may finish meanwhile
            if not self._recalled and any(not job.begun for job in had):
                self._recalled = {job.key for job in had}
                self.outbox.say("recall")

    def contact(self, asked: Sequence[HeldJob]) -> None:
        """Tell it which of its jobs are asked to stop, and ask how far its jobs are."""
        if asked or (self.jobs and self._answers):
            self._answers = False
            self.outbox.say("contact", [(job.key, job.asked_by) for job in asked])

    def stop(self, seconds: float) -> None:
        """Ask the child, once, to end when its announcements are made, for which it has some ``seconds``."""
        if not self._told_to_stop:
            self._told_to_stop = True
            self.outbox.say("stop", seconds)

    def retire(self) -> None:
        """Give it no more jobs; it ends when those that it has are done and announced."""
        self.retired, self.slots = True, 0

    def memory(self) -> int:
        """Return the resident memory in bytes; 0 where the system does not tell."""
        return resident(self.process.pid)

    def look(self) -> None:
        """Notice a start that takes long, and its end also where what a task has forked keeps the pipe open."""
        if not self.ended and self.process.poll() is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        if not (self.ready or self.ended or self._said_slow) and time.monotonic() - self.began > SLOW_START:
            self._said_slow = True
            logger.warning(SLOW, self.process.pid, SLOW_START, self.process.pid)

    def end(self, job: HeldJob) -> None:
        """Kill the child because a job of its does not end."""
        self._overdue.add(job.key)
        self.process.kill()

    def kill(self) -> None:
        """End the child at once; when this returns none of its code runs."""
        self.process.kill()
        self.process.wait()

    def _listen(self) -> None:
        try:
            self._hear()
        except (EOFError, OSError):  # it has ended
            pass
        except Exception:
            logger.exception("process %d said what cannot be understood; it is ended", self.process.pid)
            self.process.kill()
        self.process.wait()  # only now is it certain that none of its code runs
        self._socket.close()
        self.outbox.end()
        with self._lock:
            self.ended, self.slots = True, 0
        for job in self.jobs.values():
            self._tellers[job.key] = self
            ran = (clock.now() - (job.started_at or clock.now())) / clock.SECOND
            self._finished(Outcome(job, self._left_behind(job), None, None, ran))
        self._wake()

    def _hear(self) -> None:
        while True:
            for message in protocol.receive(self.connection):
                self._note(*message)
            del message  # it may be large, and the next one may be long in coming

    def _note(self, verb: str, *values: Any) -> None:
        match verb, values:
            case "ready", []:
                self.slots, self.ready = self.threads, True
                self._wake()
            case "timed", [key, runs]:
                self._timed(protocol.key_of(key), runs)
            case "finished", [key, kept, *outcome]:
                if kept:
                    self._tellers[protocol.key_of(key)] = self
                self._finish(protocol.key_of(key), *outcome)
            case "progress", [said]:
                self._answers = True
                for key, progress in said:
                    if job := self.jobs.get(protocol.key_of(key)):
                        job.progress = protocol.progress_of(progress)
            case "returned", [keys]:
                self._take_back({protocol.key_of(key) for key in keys})

    def _left_behind(self, job: HeldJob) -> Settlement:
        """Return how a job goes on that the child did not finish; its neighbours are not charged for one that hung."""
        now = clock.now()
        if job.key in self._overdue:
            return timed_out(self.backend, job, now)
        if self._overdue and job.max_attempts != 1:
            return released(job)
        return after_death(self.backend, job, f"Process {self.process.pid} of its worker", now)

    def _finish(
        self, key: Key, settlement: list[Any], seconds: float, stored: bool | None, progress: list[Any] | None
    ) -> None:
        job = begun(self.jobs.pop(key), seconds)
        job.progress = protocol.progress_of(progress)
        self._finished(Outcome(job, protocol.unpacked(job, *settlement), None, None, seconds, stored))

    def _take_back(self, keys: set[Key]) -> None:
        """Give back the jobs that were recalled; those that were not among them have begun."""
        if keys:
            self.returned_at = time.monotonic()
        recalled, self._recalled = self._recalled, set()
        for key in recalled & self.jobs.keys():
            if key in keys:
                self._finished(given_back(self.jobs.pop(key)))
            else:
                begun(self.jobs[key])
        self._wake()


def begun(job: HeldJob, ago: float = 0.0) -> HeldJob:
    """Note that a thread of a child has taken a job that was claimed ahead, some seconds ``ago``."""
    if not job.begun:
        job.attempts, job.started_at = 1, clock.now() - clock.microseconds(ago)
    return job
