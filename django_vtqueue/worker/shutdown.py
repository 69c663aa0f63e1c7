"""The end of a worker: what still runs is released, and nothing of it is left behind."""

import faulthandler
import logging
import os
import sys
import time
from collections.abc import Callable
from enum import Enum, auto
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


class End(Enum):
    """How the jobs of a worker have ended."""

    ALL = auto()
    RELEASED = auto()  # code of some may still run: the process must end before they are visible again
    HELD = auto()  # the database did not take their release; the doorbell, left behind, proves the end of the process


def end_jobs(turns: Turns, read_mail: Callable[[float], object], *, owns_process: bool) -> End:
    """Release what still runs and end the threads; return how that has ended.

    Code may still run where it cannot be ended and the worker has the process for itself. In the process of a caller it
    goes on, and is not released. ``read_mail``: see Worker; what has finished at the last moment is settled.
    """
    work, end = turns.work, End.ALL
    if work.in_flight and owns_process:
        end_within(turns.leases.shortest_lease(0) / 2)  # they were renewed a third of a lease ago at the most
        idle = {outcome.job.key for outcome in work.outcomes}
        for job in work.in_flight:
            if job.key not in idle:
                work.pool.begin(job)  # a thread may just have taken it
        work.recorder.flush()  # now: once they are released there is little time
        end = settle_at_last(turns, read_mail, release=True)
        if end is End.ALL:
            faulthandler.cancel_dump_traceback_later()
    elif work.outcomes:
        settle_at_last(turns, read_mail, release=False)
    if end is End.ALL:
        work.pool.stop(LAST_ANNOUNCEMENTS if owns_process or not work.in_flight else 0)
    work.log.close()
    work.recorder.flush(LAST_COUNTS if end is End.ALL else 0)
    return end


def settle_at_last(turns: Turns, read_mail: Callable[[float], object], *, release: bool) -> End:
    """Settle what has finished; ``release`` the rest, and take the row and the doorbell away: it holds nothing more.

    If code of that may still run, this process ends before it is visible. A database that is locked is waited for, but
    not for longer than the leases last: then they end by themselves.
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
        return End.HELD
    if unfinished and turns.heartbeat.sign_off(SIGNED_OFF_WITHIN):
        remove(turns.heartbeat.worker.doorbell)  # before anything is written, which may block
    if given_back := [ending for ending in unfinished if ending.job.key not in lost]:
        work.log.released(given_back)
        work.recorder.count_endings(given_back)
    work.note_settled(outcomes, lost)
    return End.RELEASED if unfinished else End.ALL


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
