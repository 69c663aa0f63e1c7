"""The tasks and handlers of a mix; each execution writes a journal."""

import gc
import multiprocessing
import os
import random
import sys
import time
from contextlib import AbstractContextManager, suppress

from asgiref.sync import sync_to_async
from django.db import transaction

from django_vtqueue import ClaimedJob, GiveUp, JobContext, Retry, call, recurring, task
from tests.project.models import Effect

from ..inside import task_enqueued, task_finished, task_started, worker_of
from .journal import STEP, Run, journaled, write
from .kinds import BACKOFF, COUNTER, HURRY, LIMIT, LISTED, LONGER, OTHER, PARTS, SHORT_LEASE, SHORTER, SLOW, TRANSACTION
from .neighbours import go_hungry, move_in, stray

move_in(task_enqueued, task_started, task_finished)
go_hungry()

SOON = 0.1  # seconds of backoff


def begun(context: JobContext, kind: str, delay: float | None = None) -> AbstractContextManager[Run]:
    """Return the execution of a task."""
    result = context.task_result
    return journaled(kind, result.id.replace("-", ""), result.worker_ids[-1], context.attempt, delay)


@task(takes_context=True, max_attempts=0, backoff=SOON)
def brief(context: JobContext) -> None:
    with begun(context, "brief"):
        time.sleep(0.02)


@task(takes_context=True, max_attempts=0, backoff=SOON)
def later(context: JobContext, delay: float) -> None:
    """Be done in the third attempt."""
    with begun(context, "later", delay):
        if context.attempt <= 2:
            raise Retry("the service is down", delay=delay)


@task(takes_context=True, max_attempts=0, backoff=[BACKOFF])
def backs_off(context: JobContext) -> None:
    """Be done in the second attempt."""
    with begun(context, "backs_off", 0.8 * BACKOFF):
        if context.attempt == 1:
            raise ConnectionError("refused")


@task(takes_context=True, max_attempts=5, backoff=SOON)
def gives_up(context: JobContext) -> None:
    with begun(context, "gives_up"):
        raise GiveUp("no such order")


@task(takes_context=True, max_attempts=1, visibility_timeout=SHORT_LEASE)
def once(context: JobContext, seconds: float) -> None:
    with begun(context, "once") as run:
        run.work(seconds)


@task(takes_context=True, max_attempts=0, backoff=SOON, visibility_timeout=SHORT_LEASE)
def long(context: JobContext, seconds: float) -> None:
    with begun(context, "long") as run:
        run.work(seconds)


@task(takes_context=True, max_attempts=0, backoff=SOON)
def medium(context: JobContext, seconds: float) -> None:
    with begun(context, "medium") as run:
        run.work(seconds)


@task(takes_context=True, max_attempts=0, backoff=SOON, visibility_timeout=SHORT_LEASE)
def shared(context: JobContext, seconds: float) -> None:
    """Take a while, or a third of it and fail; end soon if another copy was first."""
    with begun(context, "shared") as run:
        fails = random.random() < 0.3
        end = time.monotonic() + seconds * (0.3 if fails else 1)
        while time.monotonic() < end and not context.cancelled:
            run.work(STEP)
        if fails:
            raise ConnectionError("refused")


@task(takes_context=True, max_attempts=0, backoff=SOON, visibility_timeout=SHORT_LEASE)
async def waits(context: JobContext, seconds: float) -> None:
    with begun(context, "waits") as run:
        await run.wait(seconds)
        await sync_to_async(Effect.objects.count)()


def effect(context: JobContext) -> None:
    Effect.objects.create(name=context.task_result.id.replace("-", ""))


@task(takes_context=True, transactional=True, max_attempts=0, backoff=SOON)
def writes(context: JobContext) -> None:
    """Write, and count one more by reading and writing, with the lock that a server needs for that."""
    with begun(context, "writes"):
        effect(context)
        counter = Effect.objects.select_for_update().get(name=COUNTER)
        counter.value += 1
        counter.save()


@task(takes_context=True, transactional=True, max_attempts=0, backoff=SOON, hard_timeout=LIMIT)
def slow(context: JobContext) -> None:
    """Take two thirds of its time."""
    with begun(context, "slow") as run:
        effect(context)
        run.work(SLOW)


@task(takes_context=True, transactional=True, max_attempts=0, backoff=SOON)
def hangs(context: JobContext) -> None:
    """Write, and in the first attempt hang for longer than its transaction lasts."""
    with begun(context, "hangs"):
        effect(context)
        if context.attempt == 1:
            time.sleep(1.3 * TRANSACTION)


@task(takes_context=True, max_attempts=0, backoff=SOON, unique_key="keyed:{key}")
def keyed(context: JobContext, key: int) -> None:
    """Be the only one of its key."""
    with begun(context, "keyed") as run:
        run.work(0.2)


@task(takes_context=True, max_attempts=0, backoff=SOON, expires=HURRY)
def hurried(context: JobContext) -> None:
    """Start soon, or never; fail once, for the next attempt may be later."""
    with begun(context, "hurried", HURRY):
        if context.attempt == 1:
            raise Retry("again", delay=HURRY)


@task(takes_context=True, max_attempts=0, backoff=SOON)
def forks(context: JobContext) -> None:
    """Fork a child that leaves as a script would."""
    with begun(context, "forks"):
        child = os.fork()
        if child == 0:
            write("forked", "")
            sys.exit()
        end = time.monotonic() + SHORT_LEASE
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                os.kill(child, 9)
            time.sleep(0.01)


@task(takes_context=True, max_attempts=0, backoff=SOON)
def pools(context: JobContext) -> None:
    """Wait in vain for a child that is then terminated."""
    fork, late = multiprocessing.get_context("fork"), suppress(multiprocessing.TimeoutError)
    with begun(context, "pools"), late, fork.Pool(1) as pool:
        pool.apply_async(time.sleep, (60,)).get(timeout=0.3)
    del pool
    gc.collect()  # a pool that has ended is a cycle with eight open files, which are counted (see vitals.py)


@task(takes_context=True, max_attempts=0, backoff=SOON)
def shells(context: JobContext) -> None:
    """Leave a program behind."""
    with begun(context, "shells"):
        os.system("sleep 2 &")


@task(takes_context=True, max_attempts=0, backoff=SOON)
def strays(context: JobContext) -> None:
    """Leave a thread behind."""
    with begun(context, "strays"):
        stray()


@task(takes_context=True, max_attempts=0, backoff=SOON)
def part(context: JobContext, number: int) -> int:
    with begun(context, "part"):
        return number


@task(takes_context=True, max_attempts=0, backoff=SOON)
def gathers(context: JobContext) -> None:
    """Have children work, and count what they return."""
    with begun(context, "gathers"):
        results = context.gather("parts", [call(part, number) for number in range(PARTS)])
        if [result.return_value for result in results] != list(range(PARTS)):
            raise GiveUp("children are missing")


@task(takes_context=True, max_attempts=0, backoff=SOON)
def iterates(context: JobContext, order: str) -> None:
    """Go through all rows of a queryset, in whatever order it has."""
    rows = Effect.objects.filter(name=LISTED)
    orders = {
        "none": rows,
        "key": rows.order_by("pk"),
        "value": rows.order_by("-value"),
        "reversed": rows.reverse(),
        "reversed key": rows.order_by("-pk").reverse(),
        "random": rows.order_by("?"),
    }
    with begun(context, "iterates") as run:
        for row in context.iterate("rows", orders[order]):
            run.come_to(row.pk)


@task(takes_context=True, max_attempts=0, backoff=SOON)
def unsafe(context: JobContext, autocommit: bool) -> None:
    """Ask for a step that a rollback in another database would take back, but for its record."""
    with begun(context, "unsafe"):
        if autocommit:
            with transaction.atomic(using=OTHER):
                context.step("write", int, 1)
            return
        transaction.set_autocommit(False, using=OTHER)
        try:
            context.step("write", int, 1)
        finally:
            transaction.set_autocommit(True, using=OTHER)


@recurring(every=1.0)
@task(takes_context=True, max_attempts=0, backoff=SOON)
def tick(context: JobContext) -> None:
    with begun(context, "tick"):
        pass


def handle(job: ClaimedJob) -> None:
    """Work on a payload, for so many seconds; one that extends for longer fails in its first attempt."""
    kind, seconds = job.payload["kind"], job.payload["seconds"]
    with journaled(kind, job.id.hex, worker_of(job), job.attempt) as run:
        if kind == "extends_shorter":
            job.extend(SHORTER)
        if kind == "extends_longer":
            job.extend(LONGER)
        run.work(seconds)
        if kind == "extends_longer" and job.attempt == 1:
            raise ConnectionError("refused")
