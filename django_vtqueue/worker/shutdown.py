"""The end of a worker, once loop.py was told to stop: what still runs is released, and nothing of it is left behind."""

import faulthandler
import logging
import os
import sys
import time
from collections.abc import Collection
from typing import NoReturn

from ..core.job import ClaimKey
from ..core.settlement import Settlement
from ..queue.settling import settle
from .outage import retry_before
from .turn import Turns

LAST_ANNOUNCEMENTS = 5.0  # seconds for the receivers of signals when everything has ended
GONE_WITHIN = 0.7  # seconds after the release of jobs whose code still runs: others may take them after one second
LAST_COUNTS = 1.0  # seconds for the statistics, should the database be locked


def end_jobs(turns: Turns, recalled: Collection[ClaimKey], *, owns_process: bool) -> bool:
    """Release what still runs and end the threads; return whether code of such jobs may still run.

    ``recalled``: what had not begun. Code may still run where it cannot be ended and the worker has the process for
    itself: the process must end before those jobs are visible again; its doorbell, left behind, proves that it has.
    """
    work, running = turns.work, False
    if not work.in_flight:
        work.pool.stop(LAST_ANNOUNCEMENTS)
    elif owns_process:
        end_within(turns.leases.shortest_lease(0) / 2)  # they were renewed a third of a lease ago at the most
        idle = {*recalled, *(outcome.job.key for outcome in work.outcomes)}
        for job in work.in_flight:
            if job.key not in idle:
                work.pool.begin(job)  # a thread may just have taken it
        work.recorder.flush()  # now: once they are released there is little time
        running = release_unfinished(turns)
        if not running:
            faulthandler.cancel_dump_traceback_later()
            work.pool.stop(LAST_ANNOUNCEMENTS)
    work.log.close()
    work.recorder.flush(0 if running else LAST_COUNTS)
    return running


def release_unfinished(turns: Turns) -> bool:
    """Settle what has finished and release the rest; return whether code of that may still run.

    Then this process ends before it is visible. A database that is locked is waited for, but not for longer than the
    leases last: then they end by themselves.
    """
    work, outcomes = turns.work, list(turns.work.outcomes)
    finished = [outcome.job for outcome in outcomes]
    unfinished: list[Settlement] = []
    lost: set[ClaimKey] = set()
    deadline = time.monotonic() + turns.leases.shortest_lease(0) / 3

    def step() -> None:
        # As of now: it may have taken long to get the lock.
        unfinished[:] = turns.leases.endings(finished)
        lost.clear()
        lost.update(settle(turns.engine, [*(outcome.settlement for outcome in outcomes), *unfinished]))
        if any(ending.job.begun for ending in unfinished):
            end_within(GONE_WITHIN)  # before the commit: nothing may keep this process after it

    if not retry_before(deadline, turns.engine, step, turns.outage):
        return True
    if unfinished:
        work.log.released(unfinished)
        work.recorder.count_endings(unfinished)
    work.note_settled(outcomes, lost)
    return any(ending.job.begun for ending in unfinished)


def end_within(seconds: float) -> None:
    """End this process after so many seconds, with code 1, whatever hangs then: its output, a lock, or a task's code.

    A thread of ``faulthandler`` does it, which needs no interpreter (a task may keep that to itself), and which a
    process 1 cannot ignore, as it does a signal. What it writes first must not block.
    """
    faulthandler.dump_traceback_later(seconds, exit=True, file=os.open(os.devnull, os.O_WRONLY))


def exit_at_once() -> NoReturn:
    """End this process, in which code of released jobs still runs, once what was logged is written."""
    try:
        logging.shutdown()
        sys.stdout.flush()
    finally:
        os._exit(0)
