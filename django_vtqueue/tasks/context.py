"""The context of a task (``takes_context=True``): Django's, with progress and cancellation, steps and waits.

What is kept of steps is in ledger.py.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from inspect import iscoroutinefunction, signature
from typing import Any, TypeVar, cast, overload

from django.db.models import Model, QuerySet

from ..core.job import SHORT, HeldJob
from ..core.masks import replaced
from ..core.steps import EVENT, GATHER, ITERATE, SLEEP, STEP
from ..core.text import storable
from ..exceptions import StepError
from ..runtime.async_code import awaited_value
from ..runtime.event_loops import in_thread
from . import waits
from .calls import TaskCall
from .compat import TaskContext, TaskResult
from .iteration import iterate
from .ledger import Ledger

T = TypeVar("T")
M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext(TaskContext):  # type: ignore[misc]  # not frozen in its stubs
    """Django's context, and how a task learns that it shall stop, says how far it is, and proceeds in steps.

    Each method of a step has an async twin, its name after an a; that of ``wait_for`` is ``async_wait_for``.
    """

    _job: HeldJob = field(repr=False, compare=False)
    _ledger: Ledger = field(default_factory=Ledger, repr=False, compare=False)
    _secrets: Callable[[], Sequence[str]] = field(default=tuple, repr=False, compare=False)

    @property
    def cancelled(self) -> bool:
        """Whether this job was asked to stop; known about a second later. Never asks the database."""
        return self._job.cancelled_by is not None

    def progress(self, fraction: float, text: str = "") -> None:
        """Say how far this job is: 0 to 1, and in words; stored within two seconds, with the end at the latest.

        Cheap enough to be called in every step. Raises ValueError if ``fraction`` is not a number from 0 to 1.
        """
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise ValueError(f"progress takes a number from 0 to 1 (0.4 for 40 %), not {fraction!r}.")
        said = replaced(str(text), self._secrets()) if text else ""
        self._job.progress = float(fraction), storable(said)[:SHORT]

    # Steps

    def step(
        self, name: str, function: Callable[..., T], /, *args: Any, transactional: bool = False, **kwargs: Any
    ) -> T:
        """Call a function once: its JSON result is kept with the job, and handed back in later attempts.

        If the worker dies before the result is stored, the function is called again. With ``transactional=True`` what
        it writes to the database of the queue, and the record, are committed together: exactly once.

        What the function raises ends the attempt. Raises DurableMismatch if another step is stored at this place,
        LeaseLost if the job was lost, StepsTooLarge, StepError for what is no name or function.
        """
        ledger = self._ledger
        check_function(name, function, transactional)
        with ledger.alone(STEP, name):
            if record := ledger.next(STEP, name):
                return cast(T, record.get("value"))
            with ledger.making(), ledger.one_transaction() if transactional else nullcontext():
                began = ledger.now()
                return cast(T, ledger.finish(name, began, awaited_value(function(*args, **kwargs))))

    def sleep(self, name: str, duration: float | timedelta) -> None:
        """Go on after ``duration`` (seconds or a timedelta); the job gives its slot back meanwhile."""
        with self._ledger.alone(SLEEP, name):
            waits.sleep(self._ledger, name, duration)

    def wait_for(self, name: str, timeout: float | timedelta | None = None, default: Any = None) -> Any:
        """Return the value of the event ``name`` when it has come; see send_event.

        ``timeout``: seconds or a timedelta, after which ``default`` is returned; None: for ever. An event without a
        value is None. The job gives its slot back meanwhile. Events of one name are taken in the order in which they
        were sent.
        """
        with self._ledger.alone(EVENT, name):
            return waits.wait_for(self._ledger, name, timeout, default)

    def gather(self, name: str, calls: Sequence[TaskCall]) -> list[TaskResult]:
        """Enqueue tasks as children of this job, once; return their results, in order, when all of them have ended.

        ``calls``: of ``call(task, …)``. Those that failed are among them: look at ``status``. The job gives its slot
        back meanwhile. Children are jobs of their own, with the options, queues and retries of their tasks.
        """
        calls = list(calls) if isinstance(calls, Iterable) else calls  # they may be made of steps
        with self._ledger.alone(GATHER, name):
            return waits.gather(self._ledger, name, calls)

    @overload
    def iterate(self, name: str, source: Sequence[T]) -> Iterator[T]: ...

    @overload
    def iterate(self, name: str, source: "QuerySet[M]") -> Iterator[M]: ...

    def iterate(self, name: str, source: "QuerySet[M] | Sequence[T]") -> Iterator[Any]:
        """Yield the items of a queryset (by primary key), a range or another sequence; go on behind the last done one.

        An item is done when the next one is asked for; of one that was under way when the worker died, the steps that
        were made are not made again. What the loop has collected in variables is lost then, and after a wait. When its
        worker is asked to stop, or the queue is paused, the job gives its slot back between two items.
        """
        walk, end = iterate(self._ledger, name, source), object()
        while True:
            with self._ledger.alone(ITERATE, name):
                item = next(walk, end)
            if item is end:
                return
            yield item

    async def astep(
        self, name: str, function: Callable[..., Any], /, *args: Any, transactional: bool = False, **kwargs: Any
    ) -> Any:
        """See step; ``function`` may be async, but not with ``transactional``."""
        ledger = self._ledger
        if not iscoroutinefunction(function):
            return await ledger.in_thread(self.step, name, function, *args, transactional=transactional, **kwargs)
        if transactional:
            raise StepError(f"Step {name!r} is transactional, so its function cannot be async.")
        with ledger.alone(STEP, name), ledger.making():
            if record := await in_thread(ledger.next, STEP, name):
                return record.get("value")
            began = ledger.now()
            value = await function(*args, **kwargs)
            return await in_thread(ledger.finish, name, began, value)

    async def asleep(self, name: str, duration: float | timedelta) -> None:
        """See sleep."""
        await self._ledger.in_thread(self.sleep, name, duration)

    async def agather(self, name: str, calls: Sequence[TaskCall]) -> list[TaskResult]:
        """See gather."""
        return cast(list[TaskResult], await self._ledger.in_thread(self.gather, name, calls))

    @overload
    def aiterate(self, name: str, source: Sequence[T]) -> AsyncIterator[T]: ...

    @overload
    def aiterate(self, name: str, source: "QuerySet[M]") -> AsyncIterator[M]: ...

    async def aiterate(self, name: str, source: "QuerySet[M] | Sequence[T]") -> AsyncIterator[Any]:
        """See iterate."""
        walk, end = self.iterate(name, source), object()
        while (item := await self._ledger.in_thread(next, walk, end)) is not end:
            yield item

    async def async_wait_for(self, name: str, timeout: float | timedelta | None = None, default: Any = None) -> Any:
        """See wait_for."""
        return await self._ledger.in_thread(self.wait_for, name, timeout, default)


def check_function(name: str, function: Callable[..., Any], given: bool) -> None:
    """Raise StepError for what is no function, TypeError if ``transactional`` may be meant for the function itself."""
    if not callable(function):
        raise StepError(f"Step {name!r} takes a function, and its arguments, not {function!r:.60}.")
    try:
        own = given and "transactional" in signature(function).parameters
    except (TypeError, ValueError):  # it has no signature
        return
    if own:
        raise TypeError(
            f"{function!r} has a parameter of its own that is called transactional, so it is not clear for whom the "
            "keyword is. Give the function inside functools.partial or a lambda."
        )
