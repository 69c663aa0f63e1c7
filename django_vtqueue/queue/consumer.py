"""``Queue.run``: claim, handle and settle one job after the other; a thread of its own renews the lease."""

import logging
import math
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar

from django.db import connections

from ..conf import Options, Policy
from ..core import clock
from ..core.clock import SECOND
from ..core.gaps import GapWatch
from ..core.grace import RENEWED_AFTER
from ..core.ids import new_id, new_worker_id
from ..core.job import Scope
from ..engines import Engine, engine_for, new_engine
from ..exceptions import LeaseLost, Snooze
from ..runtime.aside import logging_aside
from ..runtime.async_code import awaited_value
from ..runtime.forks import ForksEnd
from .back_pressure import publishes_as_a_job
from .claimed_job import ClaimedJob
from .clock_repair import ClockRepair
from .doorbell import HEARING_LOOK, LOOK, RUNG, Doorbell, folder_of
from .limits import Limits
from .unparking import Unparking
from .until_done import until_done

logger = logging.getLogger("django_vtqueue")

T = TypeVar("T")
LOOK_AT_CLOCKS = 1.0  # seconds between two looks at the clocks while a handler runs


@logging_aside()
def consume(
    claim: Callable[[GapWatch, str], Sequence[ClaimedJob]],
    handler: Callable[[ClaimedJob], Any],
    stop: threading.Event,
    queue_name: str,
    database: str,
    options: Options,
) -> None:
    """See Queue.run. ``claim`` takes the next job of the queue, or none, for a holder."""
    engine, gaps, policy = engine_for(database), GapWatch(), options.policy(queue_name)
    engine.require_safe_file()
    bell = Doorbell(database, folder_of(options.doorbells), new_id()[-8:], RUNG)
    listener = engine.listen(bell.ring)
    limits = Limits(options)
    unparking = Unparking(limits)
    clock_repair, holder = ClockRepair(engine), new_worker_id()  # not that of Queue.claim: these leases are renewed
    in_vain = False  # whether the last claim took nothing although something was due: it may not be taken yet
    try:
        while not stop.is_set():
            if engine.outdated(connections[database]):
                engine.disconnect()
            until_done(engine, clock_repair.go_on)
            until_done(engine, partial(unparking.cut_rates, engine, clock_repair))
            jobs = until_done(engine, partial(claim, gaps, holder))
            seconds = 0.0
            if not jobs:
                seconds = until_done(engine, partial(seconds_to_next, engine, queue_name, limits))
                if seconds or in_vain:
                    look = HEARING_LOOK if listener.hears and bell.path else LOOK  # what is heard rings this bell
                    gaps.note_work(wait_for_ring(bell, min(seconds, look) if seconds else LOOK))
            in_vain = not (jobs or seconds)
            for job in jobs:
                handle(engine, job, handler, policy, gaps)
    finally:
        listener.close()
        bell.close()


def seconds_to_next(engine: Engine, queue_name: str, limits: Limits) -> float:
    """Return how many seconds from now the next job of a queue is due: 0 if one is, infinity if none waits."""
    first = limits.earliest(engine, [Scope((queue_name,), raw=True)])
    return math.inf if first is None else max((first - engine.now()) / SECOND, 0.0)


def wait_for_ring(bell: Doorbell, seconds: float) -> float:
    """Wait until a doorbell rings, for so many seconds at the most; return how many of them it took.

    What it took beyond them may be a gap, in which this process stood still.
    """
    began = time.monotonic()
    bell.wait_for(seconds)
    return min(time.monotonic() - began, seconds)


@publishes_as_a_job
def handle(
    engine: Engine, job: ClaimedJob, handler: Callable[[ClaimedJob], Any], policy: Policy, gaps: GapWatch
) -> None:
    """Call the handler with one job, and settle the job."""
    with kept_up(job, gaps) if policy.renews(job._held.copies) else working(gaps):  # until it is settled
        try:
            for connection in connections.all(initialized_only=True):
                if not connection.in_atomic_block:  # of a test, say
                    connection.close_if_unusable_or_obsolete()
            with ForksEnd():
                awaited_value(handler(job))
        except Snooze as error:
            conclude(engine, partial(job.release, error.until), gaps)
        except BaseException as error:
            if ends_process(error):
                conclude(engine, job.release, gaps)
                raise
            conclude(engine, partial(job.nack, delay=policy.delay(job.attempt), error=error), gaps)
        else:
            conclude(engine, job.ack, gaps)


def ends_process(error: BaseException) -> bool:
    """Return whether a signal is to end this process: Ctrl-C, or a SystemExit that a handler of a signal has raised.

    Else a job that calls ``sys.exit`` would be given back without an attempt each time, and end each process that runs
    it. Python runs handlers of signals in the main thread, between two steps of the code there: so its function is in
    the traceback.
    """
    if isinstance(error, KeyboardInterrupt):
        return True
    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {code_of(each) for each in handlers if callable(each)}
    frames = traceback.walk_tb(error.__traceback__) if isinstance(error, SystemExit) else ()
    return any(frame.f_code in codes for frame, _ in frames)


def code_of(function: Any) -> Any:
    """Return the code that runs when a function, a method, a partial or an object with ``__call__`` is called."""
    while not hasattr(function, "__code__"):
        inner = function.func if isinstance(function, partial) else getattr(function, "__func__", None)
        if inner is None and not hasattr(inner := type(function).__call__, "__code__"):
            return None
        function = inner
    return function.__code__


def conclude(engine: Engine, verb: Callable[[], None], gaps: GapWatch) -> None:
    """Settle a job; do nothing if it is lost, or its handler has settled it."""
    began = time.monotonic()
    try:
        until_done(engine, verb)
    except LeaseLost as error:
        logger.warning("lost  %s", error)
    gaps.note_wait(time.monotonic() - began)


@contextmanager
def working(gaps: GapWatch) -> Iterator[None]:
    """Count the time of the block as work, for it is not known which part of it was a gap."""
    began = time.monotonic()
    try:
        yield
    finally:
        gaps.note_work(time.monotonic() - began)


@contextmanager
def kept_up(job: ClaimedJob, gaps: GapWatch) -> Iterator[None]:
    """Renew a job's lease every third of its time during the block, in a thread with a connection of its own.

    The thread also notes gaps, for the next claim.
    """
    done = threading.Event()

    @logging_aside()
    def run() -> None:
        engine = new_engine(job.database, traced=False)
        try:
            # What the handler does may use Django's pool up.
            with engine.without_lock_waits(pooled=False) if engine.locks_rows else nullcontext():
                keep_up(engine, job, done, gaps)
        finally:
            connections.close_all()

    job._kept_up = True
    thread = threading.Thread(target=run, name=f"lease of {job.id}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def keep_up(engine: Engine, job: ClaimedJob, done: threading.Event, gaps: GapWatch) -> None:
    """Renew a job's lease until the job is done, or lost.

    An ended lease is renewed too, as long as no other holder has the job: the handler goes on anyway. After a gap the
    lease is renewed at once.
    """
    held = job._held
    lease = held.lease_us / SECOND

    def renew() -> tuple[float, bool]:
        before = time.monotonic()
        with engine.transaction():
            began, now = time.monotonic(), engine.now()
            lost = engine.renew([held], now, afresh=gaps.stepped_back)
        gaps.note_lock(began - before)
        if not lost:
            gaps.stepped_back = False
            job._hidden_until(now + held.lease_us)
        return began, bool(lost)

    given_at = time.monotonic() + (held.visible_at - engine.now()) / SECOND - lease
    while True:
        wait(given_at + lease * RENEWED_AFTER, done, gaps, lease / 2, engine.now)
        if done.is_set():
            return
        given_at, lost = until_done(engine, renew, lease)
        if lost:
            return


def wait(
    moment: float, done: threading.Event, gaps: GapWatch, bearable: float, now: Callable[[], int] = clock.now
) -> None:
    """Wait until a moment (monotonic), the end of the job, or the end of a gap longer than ``bearable`` seconds.

    ``now``: the clock by which leases are given.
    """
    while not done.is_set() and (left := moment - time.monotonic()) > 0:
        planned, began = min(left, LOOK_AT_CLOCKS), time.monotonic()
        done.wait(planned)
        gaps.note_work(min(time.monotonic() - began, planned))
        if gaps.notice_gap(now()) > bearable:
            return
