"""Waiting for a result: the worker that ends the job rings a bell of the waiting process, which then looks."""

from contextlib import closing
from datetime import timedelta
from typing import TypeVar, cast

from asgiref.sync import sync_to_async
from django.db import connections

from ..backend import VTQueueBackend
from ..core import clock
from ..core.allowed import Invalid, duration
from ..queue.doorbell import RARE_LOOK, Doorbell
from ..queue.result_bells import result_bell
from .compat import TaskResult, TaskResultStatus, task_backends

R = TypeVar("R", bound=TaskResult)

ENDED = (TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED)


def wait_for_result(result: R, timeout: float | timedelta | None = None) -> R:
    """Wait until a task has ended, and return its result as it is then, successful or failed.

    ``timeout``: seconds or a timedelta; None: for ever. Raises TimeoutError if the task has not ended by then (it goes
    on), TaskResultDoesNotExist if its row is there no more (see ``result_ttl``), and RuntimeError inside a transaction:
    what was enqueued in it runs after its commit. A task that waits for another one keeps its slot meanwhile.
    """
    wait = Wait(result, timeout)
    if ended := wait.look():
        return cast(R, ended)
    with closing(wait.bell()) as bell:
        while not (ended := wait.look()):
            bell.wait_for(wait.seconds())
    return cast(R, ended)


async def async_wait_for_result(result: R, timeout: float | timedelta | None = None) -> R:
    """See wait_for_result; no thread waits meanwhile."""
    wait = Wait(result, timeout, "async_wait_for_result", "await arun_pending()")
    if ended := await sync_to_async(wait.look)():
        return cast(R, ended)
    with closing(await sync_to_async(wait.bell)()) as bell:
        while not (ended := await sync_to_async(wait.look)()):
            await bell.await_ring(wait.seconds())
    return cast(R, ended)


class Wait:
    """One wait for the end of a task."""

    def __init__(
        self,
        result: TaskResult,
        timeout: float | timedelta | None,
        called: str = "wait_for_result",
        in_tests: str = "run_pending()",
    ) -> None:
        self._called, self._in_tests = called, in_tests
        if not isinstance(result, TaskResult):
            raise TypeError(f"{called} takes a result of enqueue(), not {result!r:.100}.")
        try:
            self._timeout = None if timeout is None else duration(timeout)
        except Invalid as error:
            raise ValueError(f"{called}: timeout is {timeout!r:.100}, but must be {error}, or None.") from None
        self._id, backend = result.id, task_backends[result.backend]
        if not isinstance(backend, VTQueueBackend):
            raise TypeError(f"{called} waits for tasks of this queue; backend {result.backend!r} is another one.")
        self._backend = backend
        self._began = clock.monotonic()

    def bell(self) -> Doorbell:
        """Return the bell that is rung when the task ends; raise RuntimeError inside a transaction."""
        database = self._backend.database
        if connections[database].in_atomic_block:
            raise RuntimeError(
                f"{self._called} is called inside a transaction of database {database!r}, and the task has not ended: "
                "a job that was enqueued in it runs after its commit, so wait then. In a TestCase, call "
                f"{self._in_tests} first."
            )
        return result_bell(database, self._backend.settings.doorbells, self._id.replace("-", ""))

    def look(self) -> TaskResult | None:
        """Return the result if the task has ended, None if not; raise TimeoutError when the time is up."""
        found: TaskResult = self._backend.get_result(self._id)
        if found.status in ENDED:
            return found
        if self._timeout is not None and clock.monotonic() - self._began >= self._timeout:
            raise TimeoutError(f"Task {self._id} has not ended within {self._timeout:g} s. It goes on.")
        return None

    def seconds(self) -> float:
        """Return the time until the next look, if no bell rings before."""
        left = RARE_LOOK if self._timeout is None else self._timeout - (clock.monotonic() - self._began)
        return min(max(left, 0.0), RARE_LOOK)
