"""The transaction of a task's own writes, and its acknowledgement in it."""

import itertools
import sys
import threading
import time
from contextlib import suppress
from types import FrameType

import pytest
from django.db import connections, transaction

from django_vtqueue.exceptions import TaskTimeout
from tests.project.models import Effect

from ..waiting import PATIENCE, PROMPT, wait_until
from .bench import Bench, Ending, Held, JobLost, success


def write(bench: Bench) -> None:
    Effect.objects.using(bench.alias).create(name="x")


def effects(bench: Bench) -> int:
    return Effect.objects.using(bench.alias).count()


def held(bench: Bench) -> Held:
    bench.publish("x")
    return bench.one()


def done(job: Held) -> Ending:
    return success(job)


def test_both_or_neither(bench: Bench) -> None:
    """What the call writes and the settlement that it returns are committed together; if it raises, neither is."""
    good, bad = held(bench), held(bench)

    def succeed() -> Ending:
        write(bench)
        return done(good)

    def fail() -> Ending:
        write(bench)
        raise ConnectionError("refused")

    bench.settle_with(good, 5, succeed)
    with pytest.raises(ConnectionError):
        bench.settle_with(bad, 5, fail)
    assert (effects(bench), bench.found(good.id).state, bench.found(bad.id).state) == (1, "SUCCESSFUL", "RUNNING")


def test_what_is_lost_before_the_beginning_is_not_called(bench: Bench) -> None:
    """A holder whose job was taken meanwhile does not call its task."""
    job = held(bench)
    bench.jobs.update(claims=job.claims + 1)
    with pytest.raises(JobLost):
        bench.settle_with(job, 5, lambda: pytest.fail("it was called"))


def test_what_is_lost_before_the_end_is_rolled_back(bench: Bench) -> None:
    """A holder whose job is not its own any more at the end commits nothing."""
    job = held(bench)

    def lose() -> Ending:
        write(bench)
        bench.jobs.update(claims=job.claims + 1)
        return done(job)

    with pytest.raises(JobLost):
        bench.settle_with(job, 5, lose)
    assert (effects(bench), bench.found(job.id).claims) == (0, job.claims)


def test_it_does_not_begin_inside_a_transaction(bench: Bench) -> None:
    """Inside a transaction of the caller nothing could be promised: it is refused."""
    with transaction.atomic(using=bench.alias), pytest.raises(RuntimeError, match="durable"):
        bench.settle_with(held(bench), 5, lambda: pytest.fail("it was called"))


def test_the_others_may_write_when_the_time_is_up(bench: Bench) -> None:
    """While the block still hangs its transaction is rolled back; it ends with TaskTimeout, whatever it does then."""
    bench.publish("x")
    hanging, done = threading.Event(), threading.Event()
    raised: list[type[BaseException]] = []

    def hang() -> None:
        try:
            with bench.task_transaction(2):
                write(bench)
                bench.jobs.update(priority=1)
                hanging.set()
                wait_until(lambda: done.is_set() or None)
                try:
                    write(bench)
                except TaskTimeout as error:
                    raised.append(type(error))
        except TaskTimeout as error:
            raised.append(type(error))
        finally:
            connections[bench.alias].close()

    thread = threading.Thread(target=hang)
    thread.start()
    assert hanging.wait(PATIENCE)
    began = time.monotonic()
    bench.jobs.update(priority=2)
    assert time.monotonic() - began < PROMPT
    done.set()
    thread.join()
    assert (raised, effects(bench)) == ([TaskTimeout, TaskTimeout], 0)


class Strike:
    """Raises TaskTimeout at one of the calls of a thread, which it is told of; ``left``: until then."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code.co_filename != __file__ and event in ("call", "c_return"):
            self.left -= 1
            if self.left == 0:
                raise TaskTimeout


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it has struck in what is collected
def test_a_time_limit_that_strikes_at_any_call(bench: Bench) -> None:
    """TaskTimeout, which another thread may raise anywhere, leaves no transaction, and nothing that watches one.

    The task's write is there if, and only if, its job is done. Here it is raised where the interpreter looks for it, at
    one call after the other.
    """

    def work() -> Ending:
        write(bench)
        return done(job)

    numbers = itertools.count(1, 1 if bench.vendor == "sqlite" else 40)
    strike = Strike(0)
    while strike.left <= 0:
        strike = Strike(next(numbers))
        job, written, ended = held(bench), effects(bench), False
        with suppress(Exception):  # one of Django's, in the end, if it has struck in the rollback
            sys.setprofile(strike)
            bench.settle_with(job, 60, work)
            sys.setprofile(None)
            ended = True
        assert ended or strike.left == 0
        bench.tidy_connections()
        connection = connections[bench.alias]
        assert (connection.in_atomic_block, connection.execute_wrappers) == (False, [])
        state = "SUCCESSFUL" if effects(bench) > written else "RUNNING"
        assert bench.found(job.id).state == state
        assert state == "SUCCESSFUL" or not ended
        bench.jobs.all().delete()
    assert next(numbers) > 100


def test_a_connection_is_as_before(bench: Bench) -> None:
    """Afterwards, whether it was committed or rolled back, statements of the same connection are committed at once."""
    for seconds in (5, 0):
        try:
            with bench.task_transaction(seconds):
                time.sleep(0.05)
                write(bench)
        except TaskTimeout:
            pass
        write(bench)
        assert not bench.in_transaction()
    assert effects(bench) == 3
