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
from .conf import DEFAULT_BACKOFF, Policy
from .engines import Trouble, engine_for
from .exceptions import LeaseLost
from .ids import new_id
from .jobs import Scope
from .retry import backoff_delay, trouble_pause

if TYPE_CHECKING:
    from .queue import ClaimedJob, Queue

logger = logging.getLogger("django_vtqueue")

T = TypeVar("T")
LOOK = 0.1  # seconds after which a bell that was missed is made good


def consume(queue: "Queue", handler: Callable[["ClaimedJob"], Any], stop: threading.Event) -> None:
    """See Queue.run."""
    bell = Doorbell(queue.database, folder_of(queue.options.doorbells), f"{UNPROVEN}{new_id()[-8:]}")
    try:
        while not stop.is_set():
            job = insist(queue, queue.claim)
            if job is None:
                insist(queue, partial(wait_for_work, queue, bell))
            else:
                handle(queue, job, handler)
    finally:
        bell.close()


def wait_for_work(queue: "Queue", bell: Doorbell) -> None:
    """Block until a bell rings, the next scheduled job is due, or it is time to look again."""
    engine = engine_for(queue.database)
    earliest = engine.earliest([Scope((queue.name,), raw=True)])
    due_in = LOOK if earliest is None else (earliest - engine.now()) / 1_000_000
    bell.wait_for(min(max(due_in, 0.001), LOOK))


def handle(queue: "Queue", job: "ClaimedJob", handler: Callable[["ClaimedJob"], Any]) -> None:
    """Call the handler with one job and settle what comes of it."""
    policy: Policy = queue.options.policy(queue.name)
    try:
        with kept_up(job) if policy.heartbeat else nullcontext():
            close_old_connections()
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


@contextmanager
def kept_up(job: "ClaimedJob") -> Iterator[None]:
    """Extend a job's lease every third of its time, from a thread and a connection of its own, while the block runs."""
    done = threading.Event()

    def keep_up() -> None:
        while not done.wait(job._held.lease_us / 3_000_000):
            try:
                job.extend()
            except LeaseLost:
                return
            except Exception as error:  # a locked database passes: the next third may find it open
                logger.warning("the lease of %s could not be extended: %s", job.id, error)

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
