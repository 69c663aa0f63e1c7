"""``Queue.run``: claim, handle, settle, one job after the other, with the lease kept up by a thread of its own."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import DatabaseError, close_old_connections, connections

from . import clock
from .bells import UNPROVEN, Doorbell, folder_of
from .clock import SECOND
from .conf import DEFAULT_BACKOFF, Policy
from .engines import Trouble, engine_for, new_engine
from .exceptions import LeaseLost
from .forks import ForksEnd
from .ids import new_id, new_worker_id
from .jobs import Scope
from .limits import finished
from .repair import Repair
from .retry import backoff_delay, busy_pause, trouble_pause
from .takeover import Takeover

if TYPE_CHECKING:
    from .queue import ClaimedJob, Queue

logger = logging.getLogger("django_vtqueue")

T = TypeVar("T")
LOOK = 0.1  # seconds after which a bell that was missed is made good
LOOK_AT_CLOCKS = 1.0  # seconds after which a standstill or a step is noticed while a handler runs


def consume(queue: "Queue", handler: Callable[["ClaimedJob"], Any], stop: threading.Event) -> None:
    """See Queue.run."""
    bell = Doorbell(queue.database, folder_of(queue.options.doorbells), f"{UNPROVEN}{new_id()[-8:]}")
    engine, takeover = engine_for(queue.database), Takeover()
    repair, holder = Repair(engine), new_worker_id()  # one of its own: what it holds is kept up
    try:
        while not stop.is_set():
            insist(queue, repair.go_on)
            jobs = insist(queue, partial(queue._claim, 1, takeover, holder))
            if not jobs:
                takeover.worked(insist(queue, partial(wait_for_work, queue, bell)))
            for job in jobs:
                handle(queue, job, handler, takeover)
    finally:
        bell.close()


def wait_for_work(queue: "Queue", bell: Doorbell) -> float:
    """Block until a bell rings, the next scheduled job is due, or it is time to look again; return the seconds of that.

    What was longer than meant is not among them.
    """
    engine = engine_for(queue.database)
    earliest = engine.earliest([Scope((queue.name,), raw=True)])
    due_in = LOOK if earliest is None else (earliest - engine.now()) / SECOND
    seconds = min(due_in, LOOK) if due_in > 0 else LOOK  # else: an expired job that may not be taken yet
    began = time.monotonic()
    bell.wait_for(seconds)
    return min(time.monotonic() - began, seconds)


def handle(queue: "Queue", job: "ClaimedJob", handler: Callable[["ClaimedJob"], Any], takeover: Takeover) -> None:
    """Call the handler with one job and settle what comes of it."""
    policy: Policy = queue.options.policy(queue.name)
    with (
        kept_up(job, takeover) if policy.heartbeat else working(takeover)
    ):  # until it is settled, however long it takes
        try:
            close_old_connections()
            with ForksEnd():
                finished(handler(job))
        except KeyboardInterrupt:
            settle(queue, job.release, takeover)
            raise
        except BaseException as error:
            backoff = DEFAULT_BACKOFF if callable(policy.backoff) else policy.backoff
            delay = backoff_delay(backoff, policy.backoff_max, job.attempt, random.random())
            settle(queue, partial(job.nack, delay=delay, error=error), takeover)
        else:
            settle(queue, job.ack, takeover)


def settle(queue: "Queue", verb: Callable[[], None], takeover: Takeover) -> None:
    """Settle a job; one that is lost, or that its handler has settled itself, is let go."""
    began = time.monotonic()
    try:
        insist(queue, verb)
    except LeaseLost as error:
        logger.warning("lost  %s", error)
    takeover.waited(time.monotonic() - began)


def insist(queue: "Queue", verb: Callable[[], T]) -> T:
    """Return what ``verb`` returns; while the database is locked, full or gone, wait and try again, saying it once."""
    engine, tries = engine_for(queue.database), 0
    while True:
        try:
            return verb()
        except DatabaseError as error:
            trouble = engine.trouble(error)
            if trouble is None:
                raise
            tries += 1
            if tries == 1:
                logger.warning("%s; waiting. Nothing is lost.", trouble.value)
            if trouble is not Trouble.BUSY:
                engine.disconnect()
            time.sleep(trouble_pause(tries))


@contextmanager
def working(takeover: Takeover) -> Iterator[None]:
    """Take the time of the block for no gap: it is not known which part of it was one."""
    began = time.monotonic()
    try:
        yield
    finally:
        takeover.worked(time.monotonic() - began)


@contextmanager
def kept_up(job: "ClaimedJob", takeover: Takeover) -> Iterator[None]:
    """Renew a job's lease every third of its time, from a thread and a connection of its own, while the block runs.

    It notices the gaps meanwhile, for the claim that comes next too.
    """
    done = threading.Event()

    def run() -> None:
        try:
            keep_up(job, done, takeover)
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


def keep_up(job: "ClaimedJob", done: threading.Event, takeover: Takeover) -> None:
    """Renew a job's lease until it is done, or lost.

    Also after it has ended, as long as no other holder has the job: the handler goes on anyway. After a standstill of
    the machine or a step of the clock it is renewed at once, and in danger it is tried again about every millisecond.
    """
    held, engine = job._held, new_engine(job._queue.database, traced=False)
    lease = held.lease_us / SECOND
    ends_at = time.monotonic() + (held.visible_at - engine.now()) / SECOND
    renew_at, failing_since = ends_at - 2 * lease / 3, 0.0
    wait(renew_at, done, takeover, lease / 2)
    if done.is_set():
        return  # as most are, without another connection
    with engine.impatient():
        while not done.is_set():
            began = time.monotonic()
            try:
                with engine.transaction():
                    now = engine.now()
                    lost = engine.renew([held], now, afresh=takeover.stepped_back)
            except Exception as error:
                if not failing_since:
                    failing_since = began
                    logger.warning("the lease of %s could not be renewed: %s; trying again", job.id, error)
                renew_at = began + busy_pause(began - failing_since, random.random(), ends_at - began)
            else:
                if lost:
                    return
                takeover.locked(began - failing_since if failing_since else 0.0)
                takeover.stepped_back, failing_since = False, 0.0
                renew_at, ends_at = began + lease / 3, began + lease
                job._hidden_until(now + held.lease_us)
            wait(renew_at, done, takeover, lease / 2)


def wait(moment: float, done: threading.Event, takeover: Takeover, bearable: float) -> None:
    """Wait until a moment (monotonic), until it is done, or for the end of a gap of more than ``bearable`` seconds."""
    while not done.is_set() and (left := moment - time.monotonic()) > 0:
        planned, began = min(left, LOOK_AT_CLOCKS), time.monotonic()
        done.wait(planned)
        takeover.worked(min(time.monotonic() - began, planned))
        if takeover.look(clock.now()) > bearable:
            return
