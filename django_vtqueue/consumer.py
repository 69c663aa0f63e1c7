"""``Queue.run``: claim, handle, settle, one job after the other, with the lease kept up by a thread of its own."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import DatabaseError, close_old_connections, connections

from .bells import UNPROVEN, Doorbell, folder_of
from .clock import SECOND, from_instant
from .conf import DEFAULT_BACKOFF, Policy
from .engines import Trouble, engine_for
from .exceptions import LeaseLost
from .forks import ForksEnd
from .ids import new_id
from .jobs import Scope
from .repair import Repair
from .retry import backoff_delay, trouble_pause
from .standstills import Standstills

if TYPE_CHECKING:
    from .queue import ClaimedJob, Queue

logger = logging.getLogger("django_vtqueue")

T = TypeVar("T")
LOOK = 0.1  # seconds after which a bell that was missed is made good
LOOK_AT_CLOCKS = 1.0  # seconds after which a standstill or a step is noticed while a handler runs


def consume(queue: "Queue", handler: Callable[["ClaimedJob"], Any], stop: threading.Event) -> None:
    """See Queue.run."""
    bell = Doorbell(queue.database, folder_of(queue.options.doorbells), f"{UNPROVEN}{new_id()[-8:]}")
    engine, lease = engine_for(queue.database), queue._lease / SECOND
    standstills, repair = Standstills(), Repair(engine, lease)

    def resumed_at(now: int) -> int:
        standstills.look(now, lease / 2)
        return standstills.resumed_at

    try:
        while not stop.is_set():
            insist(queue, lambda: resumed_at(engine.now()))
            insist(queue, repair.go_on)
            jobs = insist(queue, partial(queue._claim, 1, resumed_at))
            if not jobs:
                insist(queue, partial(wait_for_work, queue, bell))
            for job in jobs:
                began = time.monotonic()
                handle(queue, job, handler)
                standstills.worked(time.monotonic() - began)
    finally:
        bell.close()


def wait_for_work(queue: "Queue", bell: Doorbell) -> None:
    """Block until a bell rings, the next scheduled job is due, or it is time to look again."""
    engine = engine_for(queue.database)
    earliest = engine.earliest([Scope((queue.name,), raw=True)])
    due_in = LOOK if earliest is None else (earliest - engine.now()) / SECOND
    bell.wait_for(min(due_in, LOOK) if due_in > 0 else LOOK)  # else: an expired job that may not be taken yet


def handle(queue: "Queue", job: "ClaimedJob", handler: Callable[["ClaimedJob"], Any]) -> None:
    """Call the handler with one job and settle what comes of it."""
    policy: Policy = queue.options.policy(queue.name)
    try:
        with kept_up(job) if policy.heartbeat else nullcontext():
            close_old_connections()
            with ForksEnd():
                handler(job)
    except KeyboardInterrupt:
        settle(queue, job.release)
        raise
    except BaseException as error:
        backoff = DEFAULT_BACKOFF if callable(policy.backoff) else policy.backoff
        delay = backoff_delay(backoff, policy.backoff_max, job.attempt, random.random())
        settle(queue, partial(job.nack, delay=delay, error=error))
    else:
        settle(queue, job.ack)


def settle(queue: "Queue", verb: Callable[[], None]) -> None:
    """Settle a job; one that is lost, or that its handler has settled itself, is let go."""
    try:
        insist(queue, verb)
    except LeaseLost as error:
        logger.info("lost  %s", error)


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


def renew(job: "ClaimedJob") -> None:
    """Hide a job for one lease more, from now; raise LeaseLost if it is not held any more.

    Unlike ``extend`` also after its lease has ended, as long as nobody else has taken it: the handler goes on anyway.
    """
    engine = engine_for(job._queue.database)
    with engine.transaction():
        now = engine.now()
        lost = engine.renew([job._held], now)
    if lost:
        raise LeaseLost(f"Job {job.id} is not held under claim {job.claim_number} any more.")
    job.visible_at = from_instant(now + job._held.lease_us)


@contextmanager
def kept_up(job: "ClaimedJob") -> Iterator[None]:
    """Renew a job's lease every third of its time, from a thread and a connection of its own, while the block runs.

    After a standstill of the machine or a step of the clock it is renewed at once: others wait for that.
    """
    done = threading.Event()

    def keep_up() -> None:
        engine, held = engine_for(job._queue.database), job._held
        third = held.lease_us / 3 / SECOND
        standstills = Standstills()
        standstills.look(engine.now(), 0)
        left = (held.visible_at - engine.now()) / SECOND
        renew_at = time.monotonic() + min(left - 2 * third, third)
        while not done.wait(min(max(renew_at - time.monotonic(), 0), LOOK_AT_CLOCKS)):
            stood_still = standstills.look(engine.now(), 0) > 1.5 * third
            if time.monotonic() < renew_at and not stood_still:
                continue
            renew_at = time.monotonic() + third
            try:
                renew(job)
            except LeaseLost:
                return
            except Exception as error:  # a locked database passes: the next third may find it open
                logger.warning("the lease of %s could not be renewed: %s", job.id, error)

    def run() -> None:
        try:
            keep_up()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run, name=f"lease of {job.id}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
