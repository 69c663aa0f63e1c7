"""Claimed jobs go to threads: none is left lying while a thread is free, and brief ones are left to one thread."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from random import randrange

import pytest

from django_vtqueue.core.job import HeldJob
from django_vtqueue.worker import dispatcher as module
from django_vtqueue.worker.dispatcher import MANY, Dispatcher

from ..project.tasks import add
from ..runtime.test_timeouts import PATIENCE, held_job
from ..waiting import wait_until

JOBS = [held_job(add, number, number) for number in range(20 * MANY)]
Do = Callable[[HeldJob], None]


@contextmanager
def threads(dispatcher: Dispatcher, count: int, do: Do) -> Iterator[list[threading.Thread]]:
    """Have so many threads take jobs and do something with each, until the dispatcher is closed."""

    def work() -> None:
        while job := dispatcher.take():
            do(job)

    started = [threading.Thread(target=work) for _ in range(count)]
    for thread in started:
        thread.start()
    try:
        yield started
    finally:
        dispatcher.close()
        for thread in started:
            thread.join(PATIENCE)
    assert not [thread for thread in started if thread.is_alive()]


def note_thread(took: "SimpleQueue[int]") -> None:
    """Note which thread this is, and let others that are awake have their turn."""
    took.put(threading.get_ident())
    time.sleep(0.0001)


@pytest.mark.parametrize("size", [1, 3, 17, MANY - 1, MANY, 1000])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_each_job_is_taken_once(count: int, size: int) -> None:
    """However they come in, whether threads wait or are busy; what is there when it is closed is taken, too."""
    dispatcher = Dispatcher(count)
    done: SimpleQueue[HeldJob] = SimpleQueue()
    with threads(dispatcher, count, done.put):
        for begin in range(0, len(JOBS), size):
            dispatcher.put(JOBS[begin : begin + size])
    assert len(dispatcher) == 0
    assert sorted(done.get_nowait().id for _ in JOBS) == sorted(job.id for job in JOBS)
    assert done.empty()


@pytest.mark.parametrize("count", [1, 4])
def test_jobs_are_taken_in_their_order(count: int) -> None:
    """As they were claimed: by priority, then by time."""
    dispatcher, taken, lock = Dispatcher(count), [], threading.Lock()
    dispatcher.put(JOBS)
    dispatcher.close()

    def work() -> None:
        while True:
            with lock:
                if not (job := dispatcher.take()):
                    return
                taken.append(job)

    started = [threading.Thread(target=work) for _ in range(count)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(PATIENCE)
    assert taken == JOBS


@pytest.mark.parametrize("several", [1, 4 * MANY])
def test_all_threads_go_at_jobs_that_take_long(several: int) -> None:
    """At few of them at once; at many, where one thread was to go at them alone, when it is seen to be slow."""
    dispatcher, at_it = Dispatcher(4), threading.Barrier(4)
    done: SimpleQueue[HeldJob] = SimpleQueue()

    def do(job: HeldJob) -> None:
        if done.empty():
            at_it.wait(PATIENCE)  # none passes before four have come
        done.put(job)

    with threads(dispatcher, 4, do):
        if several == 1:
            for job in JOBS[:4]:
                dispatcher.put([job])
        else:
            dispatcher.put(JOBS[:several])
        wait_until(lambda: done.qsize() == max(several, 4))


def test_brief_jobs_are_left_to_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one goes at them, and is fast, the others sleep."""
    monkeypatch.setattr(module, "JUDGED_AFTER", PATIENCE)  # it is fast enough whatever the machine does
    dispatcher = Dispatcher(4)
    took: SimpleQueue[int] = SimpleQueue()

    with threads(dispatcher, 4, lambda job: note_thread(took)):
        wait_until(lambda: dispatcher._active == 0)
        for _ in range(5):
            dispatcher.put(JOBS)
            wait_until(lambda: took.qsize() == len(JOBS))
            assert len({took.get_nowait() for _ in JOBS}) == 1


def test_a_long_job_among_brief_ones_keeps_none_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that goes at them alone may come to one that takes long: then the others go at the rest."""
    monkeypatch.setattr(module, "AGAIN", PATIENCE)
    dispatcher, over = Dispatcher(2), threading.Event()
    done: SimpleQueue[HeldJob] = SimpleQueue()

    def do(job: HeldJob) -> None:
        if job is JOBS[MANY]:
            assert over.wait(PATIENCE)
        done.put(job)

    with threads(dispatcher, 2, do):
        dispatcher.put(JOBS)
        wait_until(lambda: done.qsize() == len(JOBS) - 1)
        over.set()


def test_what_is_recalled_is_taken_by_nobody(restless: None) -> None:
    """Each job is either taken or given back, also when it is recalled in the moment in which a thread takes it."""
    dispatcher = Dispatcher(4)
    taken: SimpleQueue[HeldJob] = SimpleQueue()
    recalled: list[HeldJob] = []
    with threads(dispatcher, 4, taken.put):
        for _ in range(10):
            for begin in range(0, len(JOBS), 20):
                dispatcher.put(JOBS[begin : begin + 20])
                for _ in range(randrange(2000)):
                    pass  # the threads awake, and begin
                recalled += dispatcher.recall()
    everything = [*recalled, *(taken.get_nowait() for _ in range(taken.qsize()))]
    assert sorted(job.id for job in everything) == sorted(job.id for job in JOBS * 10)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_who_looks_on_is_not_hurried(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More jobs may come meanwhile: the one that goes at brief ones alone is judged by what it does in its time."""
    monkeypatch.setattr(module, "JUDGED_AFTER", PATIENCE)
    dispatcher, over = Dispatcher(count), threading.Event()
    took: SimpleQueue[int] = SimpleQueue()

    def do(job: HeldJob) -> None:
        assert over.wait(PATIENCE)
        note_thread(took)

    with threads(dispatcher, count, do):
        wait_until(lambda: dispatcher._active == 0)
        dispatcher.put(JOBS[:100])
        wait_until(lambda: len(dispatcher) == 99)
        for job in JOBS[100:]:
            dispatcher.put([job])
        over.set()
        wait_until(lambda: took.qsize() == len(JOBS))
    assert len({took.get_nowait() for _ in JOBS}) == 1


def test_threads_that_are_at_it_leave_brief_jobs_to_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that were busy when the many came."""
    monkeypatch.setattr(module, "JUDGED_AFTER", PATIENCE)
    dispatcher, over = Dispatcher(4), threading.Event()
    took: SimpleQueue[int] = SimpleQueue()

    def do(job: HeldJob) -> None:
        if any(job is early for early in JOBS[:4]):
            assert over.wait(PATIENCE)
        else:
            note_thread(took)

    with threads(dispatcher, 4, do):
        dispatcher.put(JOBS[:4])
        wait_until(lambda: len(dispatcher) == 0)
        dispatcher.put(JOBS[4:])
        over.set()
        wait_until(lambda: took.qsize() == len(JOBS) - 4)
    assert len({took.get_nowait() for _ in JOBS[4:]}) == 1
