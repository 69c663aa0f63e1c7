"""The end of a worker: what still runs is released, and nothing of it is left behind."""

import faulthandler
import logging
import os
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import NoReturn

from ..core.clock import SECOND
from ..core.job import ClaimKey
from ..core.settlement import Settlement
from ..execution.outcomes import Outcome
from ..queue.doorbell import remove
from ..queue.settling import settle
from .leases import HIDDEN_FOR
from .outage import retry_before
from .turn import Turns

LAST_ANNOUNCEMENTS = 5.0  # seconds for the receivers of signals when everything has ended
GONE_WITHIN = 0.7 * HIDDEN_FOR / SECOND  # seconds after the release of jobs whose code still runs
SIGNED_OFF_WITHIN = GONE_WITHIN / 2  # seconds for which the worker's row may be locked
LAST_COUNTS = 1.0  # seconds for the statistics, should the database be locked


def end_jobs(turns: Turns, read_mail: Callable[[float], object], *, owns_process: bool) -> bool:
    """Release what still runs and end the threads; return whether code of such jobs may still run.

    Code may still run where it cannot be ended and the worker has the process for itself: the process must end before
    those jobs are visible again. In the process of a caller they go on, and are not released. ``read_mail``: see
    Worker; what has finished at the last moment is settled.
    """
    work, running = turns.work, False
    if work.in_flight and owns_process:
        end_within(turns.leases.shortest_lease(0) / 2)  # they were renewed a third of a lease ago at the most
        idle = {outcome.job.key for outcome in work.outcomes}
        for job in work.in_flight:
            if job.key not in idle:
                work.pool.begin(job)  # a thread may just have taken it
        work.recorder.flush()  # now: once they are released there is little time
        running = settle_at_last(turns, read_mail, release=True)
        if not running:
            faulthandler.cancel_dump_traceback_later()
    elif work.outcomes:
        settle_at_last(turns, read_mail, release=False)
    if not running:
        work.pool.stop(LAST_ANNOUNCEMENTS if owns_process or not work.in_flight else 0)
    work.log.close()
    work.recorder.flush(0 if running else LAST_COUNTS)
    return running


def settle_at_last(turns: Turns, read_mail: Callable[[float], object], *, release: bool) -> bool:
    """Settle what has finished; ``release`` the rest, and return whether code of that may still run.

    Then this process ends before it is visible, and the worker's row and doorbell are gone. A database that is locked
    is waited for, but not for longer than the leases last: then they end by themselves.
    """
    work = turns.work
    outcomes: list[Outcome] = []
    unfinished: list[Settlement] = []
    lost: set[ClaimKey] = set()
    deadline = time.monotonic() + turns.leases.shortest_lease(0) / 3

    def step() -> None:
        # As of now: it may have taken long to get the lock.
        read_mail(0)
        outcomes[:] = work.outcomes
        unfinished[:] = turns.leases.endings([outcome.job for outcome in outcomes]) if release else []
        lost.clear()
        lost.update(settle(turns.engine, [*(outcome.settlement for outcome in outcomes), *unfinished]))
        if unfinished:
            end_within(GONE_WITHIN)  # before the commit: nothing may keep this process after it

    if not retry_before(deadline, turns.engine, step, turns.outage):
        return True  # the doorbell, left behind, proves that the process has ended
    if unfinished and turns.heartbeat.sign_off(SIGNED_OFF_WITHIN):
        remove(turns.heartbeat.worker.doorbell)  # before anything is written, which may block
    if given_back := [ending for ending in unfinished if ending.job.key not in lost]:
        work.log.released(given_back)
        work.recorder.count_endings(given_back)
    work.note_settled(outcomes, lost)
    return bool(unfinished)


def end_within(seconds: float) -> None:
    """End this process after so many seconds, with code 1, whatever hangs then: its output, a lock, or a task's code.

    A thread of ``faulthandler`` does it, which needs no interpreter (a task may keep that to itself), and which a
    process 1 cannot ignore, as it does a signal. What it writes first must not block.
    """
    faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere())


@cache
def nowhere() -> int:
    """Return a descriptor to which anything may be written; asked for early: later there may be no free one."""
    return os.open(os.devnull, os.O_WRONLY)


def exit_at_once() -> NoReturn:
    """End this process, in which code of released jobs still runs, once what was logged is written."""
    try:
        logging.shutdown()
        sys.stdout.flush()
    finally:
        os._exit(0)
