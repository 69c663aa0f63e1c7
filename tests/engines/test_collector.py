"""The collector of garbage, which frees in any thread what the connections of others have left behind."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections, transaction

from django_vtqueue.engines import new_engine
from django_vtqueue.execution.connections import beginning_fairly
from django_vtqueue.models import Job

from ..waiting import PATIENCE, wait_until
from .test_lock import locked, uncollected


@pytest.mark.parametrize("whose", ["of a transactional task", "of a task's own"])
def test_the_collector_does_not_wait_for_who_waits_for_the_lock(alias: str, whose: str) -> None:
    """In the thread that has the lock it may come upon what an earlier wait of another thread has left behind.

    A cursor of a refused BEGIN is freed with the mutex of its connection. That is taken as long as a statement of the
    user's waits for the lock inside of SQLite.
    """
    said: list[str] = []
    waits, unlocked = threading.Event(), threading.Event()
    of_ours = whose == "of a transactional task"

    def write() -> int:
        raw = connections[alias].cursor().connection
        try:
            raw.set_trace_callback(said.append)
            with new_engine(alias).task_transaction(PATIENCE) if of_ours else transaction.atomic(using=alias):
                pass
            assert unlocked.wait(PATIENCE)
            raw.set_trace_callback(lambda statement: waits.set())  # in the midst of it, the mutex is taken
            return Job.objects.using(alias).update(priority=1)
        finally:
            connections[alias].close()

    with uncollected(), beginning_fairly(), ThreadPoolExecutor(1) as pool:
        with locked(alias):
            writing = pool.submit(write)
            wait_until(lambda: said.count("BEGIN IMMEDIATE") > 5)
        wait_until(lambda: said[-1] == "COMMIT")
        with locked(alias):
            unlocked.set()
            assert waits.wait(PATIENCE)
            gc.collect()
            assert not writing.done()
        assert writing.result(PATIENCE) == 0
