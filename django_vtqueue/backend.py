"""The backend of Django's Tasks framework: a task's call becomes a job."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import datetime
from functools import cached_property, lru_cache, partial
from math import isfinite
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from .conf import Options, Policy, parse
from .core import clock
from .core.allowed import Invalid, texts
from .core.encoding import dumps, normalize
from .core.ids import dashed, new_ids, parse_id
from .core.job import NewJobs
from .core.unique import DONE, KEEP, REPLACE
from .engines import Engine, database_of, engine_for
from .queue import workers
from .queue.arguments import checked_queue_name
from .queue.back_pressure import await_room, not_retried_with_caller
from .queue.limits import Limits
from .queue.moments import checked_moment, due_from, start_by_of
from .queue.publishing import publish
from .tasks import settings_checks
from .tasks.calls import Call, checked_calls
from .tasks.compat import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    is_backports,
    task_enqueued,
)
from .tasks.lookup import import_task_modules, loaded_task
from .tasks.refusals import limited_copies, warn_of_script
from .tasks.results import Result, change, found_again, result_of_row, unvalidated, with_changes
from .tasks.signals import Later, received, send_enqueued
from .tasks.signatures import check_call, refused_call
from .tasks.task import KEYS, largest_burst, loaded_options, options_of, policy_of, set_options

FIELDS = {field.name for field in fields(Task)}
REMEMBERED = 1000  # validated combinations of function, queue and priority
in_microseconds = lru_cache(clock.microseconds)  # of a setting


def make_task(*, func: Callable[..., Any], **values: Any) -> Task:
    """Return a Task; this queue's options may be among its values (``django.tasks.task(max_attempts=5)``)."""
    djangos = {key: values.pop(key) for key in list(values) if key in FIELDS}
    set_options(func, values, takes_context=bool(djangos.get("takes_context")))
    return Task(func=func, **djangos)


def keys_of_calls(options: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> dict[str, list[str | None]]:
    """Return the keys of calls of a task, a list for each option that it has."""
    found = {name: key_of for name in KEYS if (key_of := options.get(name))}
    return {
        name: [key_of(*call["args"], **call["kwargs"]) if callable(key_of) else key_of for call in calls]
        for name, key_of in found.items()
    }


def encoded(task: Task, calls: Iterable[tuple[int | None, Call]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the calls of a task as JSON has them, and as text; raise TypeError for one that does not fit it.

    Each call comes with its place among many, for the error; None for a single one.
    """
    given: list[dict[str, Any]] = []
    payloads = []
    for index, (args, kwargs) in calls:
        check_call(task, args, kwargs, index)
        try:
            given.append({"args": normalize(list(args)), "kwargs": normalize(dict(kwargs))})
            payloads.append(dumps(given[-1]))
        except TypeError:
            raise refused_call(task, args, kwargs, index) from None
    return given, payloads


class VTQueueBackend(BaseTaskBackend):
    """``TASKS = {"default": {"BACKEND": "django_vtqueue.backend.VTQueueBackend"}}``."""

    task_class = staticmethod(make_task)  # type: ignore[assignment]
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True
    vtqueue_backend = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        try:
            texts(params.get("QUEUES", []))
            super().__init__(alias, params)
        except Invalid:  # said by ``check``, and by each enqueue; the queues are not the letters of a text
            super().__init__(alias, {**params, "QUEUES": []})
        self._params = params
        self._validated: set[tuple[Any, ...]] = set()

    @cached_property
    def settings(self) -> Options:
        """The options of this backend; raise ImproperlyConfigured, when they are first needed, for what is wrong."""
        try:
            return parse(self._params, self.alias)
        except ValueError as error:
            raise ImproperlyConfigured(str(error)) from error

    @cached_property
    def limits(self) -> Limits:
        """What its settings and its tasks allow to run at once."""
        return Limits(self.settings, loaded_options, partial(largest_burst, task_modules=self.settings.task_modules))

    @property
    def database(self) -> str:
        """The alias that its workers, the admin and the commands use."""
        return database_of(self.settings)

    @cached_property
    def _engine(self) -> Engine:
        return engine_for(self.database)

    @property
    def largest_result(self) -> int | None:
        """The bytes of the largest result that its database takes; None for any."""
        return self._engine.largest_result

    def now(self) -> int:
        """Return the present instant, by the clock of its database."""
        return self._engine.now()

    def validate_task(self, task: Task) -> None:
        """See Django's. What inspects the function is done once for each; ``run_after`` may also be a timedelta."""
        moment = task.run_after
        key = (task.func, task.takes_context, task.priority, task.queue_name)
        try:
            known = key in self._validated
        except TypeError:  # a list, say, in the place of a name
            known = False
        if not known:
            self._check_queue(task.queue_name)
            if not isinstance(task.priority, int) and not (
                isinstance(task.priority, float) and isfinite(task.priority)
            ):
                raise InvalidTask(f"priority must be a whole number between -100 and 100, not {task.priority!r}.")
            super().validate_task(task if moment is None else with_changes(task, run_after=None))
            warn_of_script(task)
            if len(self._validated) >= REMEMBERED:
                self._validated.clear()
            self._validated.add(key)
        if moment is not None:
            checked_moment(moment, "run_after")
            if isinstance(moment, datetime) and settings.USE_TZ and timezone.is_naive(moment):
                raise InvalidTask("run_after must be an aware datetime.")

    def _check_queue(self, queue_name: str) -> None:
        try:
            checked_queue_name(queue_name)
        except ValueError as error:
            raise InvalidTask(str(error)) from None
        if self.queues and queue_name not in self.queues:
            allowed = ", ".join(sorted(self.settings.queues))
            raise InvalidTask(
                f"Queue {queue_name!r} is not valid for backend {self.alias!r}: its QUEUES in TASKS has "
                f"{allowed} only. Add {queue_name!r} there; [] allows any queue."
            )

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Store one call of a task, in the caller's transaction if there is one.

        Raise InvalidTask for a task that this backend does not take, TypeError for arguments that do not fit its
        signature or are not JSON, ValueError for a unique key or an expiry that is not allowed, DuplicateJob,
        PayloadTooLarge, QueueFull, UnknownTask for the task of a result that is gone.
        """
        return self._enqueue(task, [(None, (args, kwargs))])[0]

    async def aenqueue(self, task: Task, args: list[Any], kwargs: dict[str, Any]) -> TaskResult:
        """See enqueue; room is waited for without a thread."""
        return await await_room(lambda: super(VTQueueBackend, self).aenqueue(task, args, kwargs))

    def enqueue_many(self, task: Task, calls: Iterable[Call]) -> list[TaskResult]:
        """Store many calls of a task, each ``(args, kwargs)``, in one transaction, all or none; see enqueue."""
        return self._enqueue(task, enumerate(checked_calls(calls)))

    def enqueue_children(self, task: Task, calls: Iterable[Call], parent_id: str, later: Later) -> list[TaskResult]:
        """Store calls whose jobs have a parent, which their end wakes; ``later`` gets what sends their signals."""
        return self._enqueue(task, enumerate(calls), parent_id=parent_id, later=later)

    def enqueue_tick(self, task: Task, call: Call, due_at: int, unique_key: str | None, later: Later) -> TaskResult:
        """Store a call for a tick of a schedule, due at an instant that may be past; see enqueue.

        ``unique_key``: of a task that forms none of its own. ``later``: see enqueue_children.
        """
        return self._enqueue(task, [(None, call)], due_at=due_at, unique_key=unique_key, later=later)[0]

    def _enqueue(
        self,
        task: Task,
        calls: Iterable[tuple[int | None, Call]],
        *,
        due_at: int | None = None,
        unique_key: str | None = None,
        parent_id: str | None = None,
        later: Later | None = None,
    ) -> list[TaskResult]:
        task = found_again(task, self.settings.task_modules)
        self.validate_task(task)
        given, payloads = encoded(task, calls)
        options, policy = options_of(task.func), policy_of(self.settings, task.queue_name, task.func)
        new = self._new_jobs(task, options, policy, given, payloads, due_at=due_at, unique_key=unique_key)
        new.parent_id = parent_id
        results = self._results(new, task, given)
        if new.jobs:
            # Children and ticks are stored in the transaction of their parent or schedule, which is of this database.
            immediate = policy.immediate or later is not None
            when_stored, on_duplicate = partial(self._announce, new, results, later), options.get("on_duplicate", KEEP)
            publish(new, self._engine.alias, self.settings, when_stored, on_duplicate=on_duplicate, immediate=immediate)
            if settings.DEBUG:
                workers.hint_missing_worker(self.database, task.queue_name)
        return results

    def _new_jobs(
        self,
        task: Task,
        options: Mapping[str, Any],
        policy: Policy,
        given: list[dict[str, Any]],
        payloads: list[str],
        *,
        due_at: int | None,
        unique_key: str | None,
    ) -> NewJobs:
        """Return the jobs of calls, with the options of their task, and what holds for it in its queue."""
        now = begins = self._engine.now()
        if due_at is None:
            due_at = due_from(now, task.run_after)
        else:
            begins = max(now, due_at)  # for the tick is moved by its jitter
        keys = keys_of_calls(options, given) if options else {}
        if keys and policy.overflow and (wrong := limited_copies(task)):
            raise InvalidTask(wrong)
        if unique_key and keys.get("unique_key") in (None, [None]):
            keys["unique_key"] = [unique_key]
        return NewJobs(
            queue_name=task.queue_name,
            task_path=task.module_path,
            priority=int(task.priority),
            max_attempts=policy.max_attempts,
            lease_us=in_microseconds(policy.visibility_timeout),
            enqueued_at=now,
            due_at=due_at,
            jobs=list(zip(new_ids(len(payloads)), payloads, strict=True)),
            start_by=start_by_of(begins, due_at, options.get("expires")),
            unique_keys=keys.get("unique_key"),
            unique_until=options.get("unique_until", DONE),
            replace=options.get("on_duplicate") == REPLACE,
            concurrency_keys=keys.get("concurrency_key") or keys.get("order_key"),
            ordered="order_key" in keys,
            rate_keys=keys.get("rate_key"),
        )

    def _results(self, new: NewJobs, task: Task, given: list[dict[str, Any]]) -> list[TaskResult]:
        """Return the results of new jobs, as if all of them were stored."""
        if new.due_at > new.enqueued_at:
            task = with_changes(task, run_after=clock.from_instant(new.due_at))
        enqueued_at = clock.from_instant(new.enqueued_at)
        return [
            unvalidated(
                Result,
                task=task,
                id=dashed(job_id),
                status=TaskResultStatus.READY,
                enqueued_at=enqueued_at,
                args=call["args"],
                kwargs=call["kwargs"],
                backend=self.alias,
                errors=[],
                worker_ids=[],
            )
            for (job_id, _), call in zip(new.jobs, given, strict=True)
        ]

    def _announce(
        self, new: NewJobs, results: list[TaskResult], later: Later | None, duplicates: Mapping[int, str]
    ) -> None:
        """Change results to what is stored, and send the signals of what is new, or have them sent later."""
        if duplicates:
            self._show_stored(new, duplicates, results)
        if received(task_enqueued):
            new_ones = [result for index, result in enumerate(results) if index not in duplicates]
            # They are stored by now; a receiver may publish, too.
            tell = partial(not_retried_with_caller, partial(send_enqueued, type(self)), new_ones)
            later(tell) if later else tell()

    def _show_stored(self, new: NewJobs, duplicates: Mapping[int, str], results: list[TaskResult]) -> None:
        """Change the results of duplicates, and of new jobs that have duplicates, to what is stored of them."""
        stored_ids = set(duplicates.values())
        for index, (job_id, _) in enumerate(new.jobs):
            stored_id, given = duplicates.get(index, job_id), results[index]
            if stored_id in stored_ids:
                results[index] = self._stored(stored_id) or given
            if index in duplicates:
                for result in (given, results[index]):  # the caller may have it already
                    change(result, id=dashed(stored_id), duplicate=True)

    def get_result(self, result_id: str) -> TaskResult:
        """Return the result of a task by its id; raise TaskResultDoesNotExist for one that is unknown or malformed."""
        job_id = parse_id(result_id)
        if not job_id or (result := self._stored(job_id.hex)) is None:
            raise TaskResultDoesNotExist(result_id)
        return result

    def _stored(self, job_id: str) -> TaskResult | None:
        """Return the result of a job by its id; None if there is none, or it is not a task's."""
        job = self._engine.find(job_id)
        return result_of_row(job, self.alias, self.settings.task_modules) if job and job.task_path else None

    def task_options(self, task_path: str) -> Mapping[str, Any]:
        """Return the options of the task that a stored path names; none if it is not loaded, or no task.

        The control loop of a worker asks: it imports nothing, for that may take long or end the process.
        """
        return loaded_options(task_path) or {}

    def policy_of(self, queue_name: str, task_path: str) -> Policy:
        """Return what holds for the jobs of a task in a queue, so far as it is known; see task_options."""
        task = loaded_task(task_path)
        return policy_of(self.settings, queue_name, task.func if task else None)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Return what is wrong with the configuration and the tasks, whose modules are imported; reads no database.

        What cannot be imported is left out: it is said where it is needed, by a worker at its start, say. The backport
        beside Django's own framework asks a second time, and is told nothing.
        """
        if apps.is_installed("django_vtqueue") and is_backports(self):
            return []
        with suppress(Exception):
            import_task_modules(self.settings.task_modules)
        return self.problems()

    def problems(self) -> list[CheckMessage]:
        """Return what is wrong with the configuration, and with the tasks that are loaded; see check."""
        return settings_checks.problems(self.alias, self._params)
