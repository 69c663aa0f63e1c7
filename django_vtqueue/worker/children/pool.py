"""Child processes that run jobs: more than one core, and code that may be killed without ending the worker."""

import logging
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue

from ...backend import VTQueueBackend
from ...core import states
from ...core.backoff import trouble_pause
from ...core.job import HeldJob, Key, Settlement
from ...execution.outcomes import Outcome, given_back
from ..log import WorkerLog
from ..memory import resident
from ..options import WorkerOptions
from ..thread_pool import AGAIN, MANY, Pool
from . import protocol
from .process import Finished, Process

logger = logging.getLogger("django_vtqueue")

LAST_ANNOUNCEMENTS = 5.0  # seconds for the receivers of signals in a child that ends
SOON = 0.01  # seconds of work that one child is given alone
LIVED = 5.0  # seconds: a child that ends sooner has probably not been able to start


class Processes:
    """``processes`` children of ``threads`` threads each; to the control loop the same as a Pool of threads."""

    horizon = 0.04  # as in Pool; as much again is on its way to the children, or back
    reserve = 1.0  # as in Pool: children run beside a turn, which need not wait for them

    def __init__(
        self,
        options: WorkerOptions,
        backend: VTQueueBackend,
        log: WorkerLog,
        bell: int | None,
        finished: Finished,
        timed: Callable[[Key, bool], None],
        wake: Callable[[], None],
    ) -> None:
        self.options, self.backend, self.log, self.bell = options, backend, log, bell
        self._finished, self._timed, self._wake = finished, timed, wake
        self._children: list[Process] = []
        self._tellers: dict[Key, Process] = {}  # who has what is to be told of finished jobs
        self._burials: list[Settlement] = []  # to be told when there is a child again
        self._start_at = 0.0  # monotonic
        self._failures = 0
        self._seconds = float("inf")  # that each of the last jobs took
        self._lines: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    @property
    def may_wait(self) -> bool:
        """Whether jobs may be given to it ahead of a free slot; not if their number in a process is limited."""
        return not self.options.max_jobs_per_process and not all(process.silent for process in self._children)

    @property
    def slots(self) -> int:
        """How many jobs the children that are ready can run."""
        return sum(process.capacity for process in self._children)

    def start(self) -> None:
        """Start the children, and a thread that writes the log."""
        threading.Thread(target=self._write_log, name="log", daemon=True).start()
        self.maintain()

    def maintain(self) -> None:
        """Retire children that are worn out, and replace those that have ended or are about to.

        After a growing pause, if they end as soon as they are started.
        """
        burials, self._burials = self._burials, []
        for settlement in burials:
            self._bury(settlement)
        for process in list(self._children):
            process.look()
            if process.ended:
                self._bury_child(process)
            elif process.slots and self._worn_out(process):
                process.retire()
            elif process.retired and not process.jobs and process not in list(self._tellers.values()):
                process.stop(LAST_ANNOUNCEMENTS)
        active = sum(not process.retired for process in self._children)
        while active < self.options.processes and time.monotonic() >= self._start_at:
            try:
                self._children.append(
                    Process(
                        self.backend,
                        self.options.threads,
                        self.bell,
                        self._finished,
                        self._timed,
                        self._wake,
                        self._tellers,
                    )
                )
            except (OSError, RuntimeError) as error:  # no memory for another process or thread, just now
                logger.warning("a process could not be started: %s", error)
                self._failed()
                return
            active += 1

    def run(self, jobs: Sequence[HeldJob]) -> None:
        """Have jobs run, each by the child that has most room; many brief ones by one child, as in WaitingJobs.

        They are done before the next ones come, and more children would only keep the control loop from its core.
        """
        if not self._children:
            for job in jobs:
                self._finished(given_back(job))
            return
        able = [process for process in self._children if process.slots and not process.silent] or self._children
        if alone := self._enough_for(jobs, able):
            alone.run(jobs)
            return
        room = {process: process.slots - len(process.jobs) for process in able}
        shares: dict[Process, list[HeldJob]] = {process: [] for process in able}
        for job in jobs:
            process = max(room, key=room.__getitem__)
            room[process] -= 1
            shares[process].append(job)
        for process, share in shares.items():
            if share:
                process.run(share)

    def _enough_for(self, jobs: Sequence[HeldJob], able: Sequence[Process]) -> Process | None:
        """Return a child that has so many done in a moment, if most of them are ahead of the free slots; else None."""
        if len(jobs) - self.slots < MANY or len(jobs) * self._seconds > SOON:
            return None
        before = time.monotonic() - AGAIN
        return next((process for process in able if len(process.jobs) < MANY and process.returned_at < before), None)

    def memory(self) -> int:
        """Return the resident bytes of this process and its children; 0 where the system does not tell."""
        return resident("self") + sum(process.memory() for process in self._children)

    def waiting(self) -> int:
        """Return how many jobs wait for a free slot."""
        return sum(max(len(process.jobs) - process.capacity, 0) for process in self._children)

    def recall(self) -> list[HeldJob]:
        """Ask the children for the jobs that have not begun; they come back as outcomes."""
        for process in self._children:
            process.recall()
        return []

    def contact(self, asked: Sequence[HeldJob]) -> None:
        """Tell the children which of their jobs are asked to stop, and ask how far their jobs are."""
        for process in self._children:
            process.contact([job for job in asked if job.key in process.jobs])

    def end(self, job: HeldJob) -> None:
        """End a job whose time is up, by killing its child."""
        for process in self._children:
            if job.key in process.jobs:
                process.end(job)

    def announce(self, outcomes: Sequence[Outcome]) -> None:
        """Have outcomes told that are stored: the log line here, the signal in the child that keeps the rest."""
        told: dict[Process, list[Key]] = {}
        if outcomes:
            self._seconds = sum(outcome.seconds for outcome in outcomes) / len(outcomes)
        for outcome in outcomes:
            teller = self._tellers.pop(outcome.job.key, None)
            if teller and not teller.ended:
                told.setdefault(teller, []).append(outcome.job.key)
            elif teller and outcome.settlement.state == states.FAILED:
                self._bury(outcome.settlement)
        for teller, keys in told.items():
            teller.outbox.say("tell", keys)
        self._lines.put(partial(self._report, outcomes))

    def forget(self, outcome: Outcome) -> None:
        """Drop an outcome that is not announced: it was lost, gave the job back, or could not be stored."""
        if teller := self._tellers.pop(outcome.job.key, None):
            teller.outbox.say("forget", outcome.job.key)

    def announce_burial(self, settlement: Settlement) -> None:
        """Have it told that a job died with its worker."""
        self._lines.put(lambda: self.log.dead(settlement))
        self._bury(settlement)

    def stop(self, seconds: float) -> None:
        """End the children, once their last announcements are made."""
        for process in self._children:
            process.stop(seconds)
        deadline = time.monotonic() + seconds
        for process in self._children:
            with suppress(subprocess.TimeoutExpired):
                process.process.wait(max(deadline - time.monotonic(), 0.01))
        self.kill()
        self._lines.put(None)

    def kill(self) -> bool:
        """End the children at once; return whether none of their code runs any more, which is certain."""
        for process in self._children:
            process.kill()
        return True

    def _worn_out(self, process: Process) -> bool:
        if self.options.max_jobs_per_process and process.given >= self.options.max_jobs_per_process:
            return True
        return bool(self.options.max_memory) and process.memory() >= (self.options.max_memory or 0) * 2**20

    def _bury_child(self, process: Process) -> None:
        self._children.remove(process)
        if process.retired:
            return
        logger.warning("process %d ended with code %s", process.process.pid, process.process.returncode)
        if time.monotonic() - process.began > LIVED:
            self._failures = 0
        else:
            self._failed()

    def _failed(self) -> None:
        """Put the next start off."""
        self._failures += 1
        self._start_at = time.monotonic() + trouble_pause(self._failures)

    def _bury(self, settlement: Settlement) -> None:
        alive = [process for process in self._children if not (process.ended or process.retired)]
        if alive:  # one that is ready, else one that will read it when it is
            max(alive, key=lambda process: process.slots).outbox.say(
                "bury", protocol.packed_job(settlement.job), protocol.packed(settlement)
            )
        else:
            self._burials.append(settlement)

    def _report(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            self.log.outcome(outcome)

    def _write_log(self) -> None:
        while write := self._lines.get():
            try:
                write()
            except Exception:
                logger.exception("a line of the log could not be written")
            del write  # with its outcomes, which may be large


def executors(
    options: WorkerOptions,
    backend: VTQueueBackend,
    log: WorkerLog,
    bell: int | None,
    finished: Finished,
    timed: Callable[[Key, bool], None],
    wake: Callable[[], None],
) -> Pool | Processes:
    """Return what runs the jobs: threads of this process, or child processes.

    ``bell``: the file descriptor of the worker's doorbell. ``finished`` is called with each outcome, ``timed`` with the
    key of a transactional job and whether its time runs, ``wake`` when there is new room for jobs; all from other
    threads.
    """
    if options.processes == 1:
        return Pool(options.threads, backend, log, finished, timed)
    return Processes(options, backend, log, bell, finished, timed, wake)
