"""The end of a worker: what still runs is given back, and nothing of it is left behind."""

import time
from typing import TYPE_CHECKING

from .. import clock
from .settling import settle_before

if TYPE_CHECKING:
    from .loop import Worker

LAST_ANNOUNCEMENTS = 5.0  # seconds for the receivers of signals when everything has ended
LAST_COUNTS = 1.0  # seconds for the statistics, should the database be locked


def leave(worker: "Worker") -> None:
    """Give back what still runs, end the threads or children, and take the bell and the worker's row away.

    Where code of jobs that are given back cannot be ended, the rest is left to the others: this process must end before
    those jobs are visible again, and its bell, left behind, proves that it has.
    """
    recalled = {job.key for job in worker.pool.recall()}
    worker.read_mail(0)  # what has finished meanwhile
    held = worker.turns.held
    if not held:
        worker.pool.stop(LAST_ANNOUNCEMENTS)
    elif worker.pool.kill():
        give_back(worker)
    elif worker.plan.owns_process:
        worker.left_running = True
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
    unfinished = turns.held.given_back([outcome.job for outcome in turns.outcomes])
    deadline = time.monotonic() + turns.held.shortest_lease(0) / 3
    letter_ttl = turns.backend.settings.letter_ttl
    if settle_before(deadline, worker.engine, settlements + unfinished, letter_ttl, turns.episode):
        worker.report.given_back(unfinished)
        turns.tally.count(turns.outcomes)
        turns.tally.count_endings(unfinished)
