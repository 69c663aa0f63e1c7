"""The end of a worker: what still runs is given back, and nothing of it is left behind."""

import faulthandler
import os
import time
from typing import TYPE_CHECKING

from .. import clock
from ..jobs import Settlement
from ..settlements import settle
from .settling import settle_before

if TYPE_CHECKING:
    from .loop import Worker

LAST_ANNOUNCEMENTS = 5.0  # seconds for the receivers of signals when everything has ended
GONE_WITHIN = 0.7  # seconds after jobs are given back whose code still runs: others may take them after one second
LAST_COUNTS = 1.0  # seconds for the statistics, should the database be locked


def leave(worker: "Worker") -> None:
    """Give back what still runs, end the threads or children, and take the bell and the worker's row away.

    Where code of jobs that are given back cannot be ended, the rest is left to the others: this process must end before
    those jobs are visible again, and its bell, left behind, proves that it has.
    """
    recalled = {job.key for job in worker.turns.recall()}
    worker.read_mail(0)  # what has finished meanwhile
    held = worker.turns.held
    if not held:
        worker.pool.stop(LAST_ANNOUNCEMENTS)
    elif worker.pool.kill():
        give_back(worker)
    elif worker.plan.owns_process:
        worker.left_running = True
        end_within(held.shortest_lease(0) / 2)  # they were renewed a third of a lease ago at the most
        for job in held:
            if not job.begun and job.key not in recalled:
                job.attempts, job.started_at = 1, clock.now()  # a thread has just taken it
        worker.turns.tally.flush()  # not later: once they are given back nothing may keep this process
        give_back(worker)
        worker.report.close()
        return
    worker.report.close()
    worker.turns.tally.flush(LAST_COUNTS)
    worker.bell.close()
    worker.crew.sign_off()


def give_back(worker: "Worker") -> None:
    """Settle what has finished and release the rest.

    A database that is locked is waited for, but not for longer than the leases last: then they end by themselves.
    """
    turns = worker.turns
    settlements = [outcome.settlement for outcome in turns.outcomes]
    finished = [outcome.job for outcome in turns.outcomes]
    unfinished: list[Settlement] = []
    deadline = time.monotonic() + turns.held.shortest_lease(0) / 3

    def step() -> None:
        # As of now: it may have taken long to get the lock.
        unfinished[:] = turns.held.given_back(finished, running=worker.left_running)
        settle(worker.engine, settlements + unfinished, turns.backend.settings.letter_ttl)
        if worker.left_running:
            end_within(GONE_WITHIN)  # before the commit: nothing may keep this process after it

    if settle_before(deadline, worker.engine, step, turns.episode):
        worker.report.given_back(unfinished)
        turns.tally.count(turns.outcomes)
        turns.tally.count_endings(unfinished)


def end_within(seconds: float) -> None:
    """End this process after so many seconds, with code 1, whatever hangs then: its output, a lock, or a task's code.

    A thread of ``faulthandler`` does it, which needs no interpreter (a task may keep that to itself), and which a
    process 1 cannot ignore, as it does a signal. What it writes first must not block.
    """
    faulthandler.dump_traceback_later(seconds, exit=True, file=os.open(os.devnull, os.O_WRONLY))
