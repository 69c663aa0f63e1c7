"""Children: jobs that a durable task has enqueued, and whose end it waits for."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ..backend import VTQueueBackend
from ..core import history, states
from ..core.clock import microseconds_or_none
from ..core.encoding import dumps, normalize
from ..core.failures import class_path
from ..core.ids import slices
from ..core.job import StoredJob
from ..engines import engine_for, options_for
from ..exceptions import StepError
from ..models import DeadLetter, Job
from ..queue import dead_letters
from ..runtime.aside import Call
from .calls import TaskCall
from .compat import Task, TaskResult, TaskResultDoesNotExist
from .results import result_of_row
from .task import options_of

NUMBERS = ("attempts", "enqueued_at", "started_at", "finished_at")


class Children:
    """The children of the jobs of one backend: what a ledger asks of its ChildStore."""

    def __init__(self, backend: VTQueueBackend) -> None:
        self.backend = backend
        self._untold: list[Call] = []  # what sends the signals of the new ones

    def enqueue(self, calls: Sequence[TaskCall], parent_id: str, again: Sequence[str] = ()) -> list[str]:
        """Enqueue children by the backends of their tasks, in the caller's transaction; return their ids, in order.

        ``again``: the jobs that these calls have had so far; one that is still there stays that of its call.
        """
        engine = engine_for(self.backend.database)
        ids = [job_id if engine.find(job_id) else "" for job_id in again] or [""] * len(calls)
        of_task: dict[Task, list[int]] = {}
        for index, call in enumerate(calls):
            if not ids[index]:
                of_task.setdefault(call.task, []).append(index)
        for task, indexes in of_task.items():
            given = [(calls[index].args, calls[index].kwargs) for index in indexes]
            results = self.backend_of(task).enqueue_children(task, given, parent_id, self._untold.append)
            if "order_key" in options_of(task.func):
                self._refuse_order_of_ancestor(task, UUID(parent_id))
            for index, result in zip(indexes, results, strict=True):
                ids[index] = UUID(result.id).hex
        return ids

    def announce(self) -> None:
        """Send the signals of the children that were enqueued, after the commit: receivers keep no lock."""
        while self._untold:
            self._untold.pop(0)()

    def _refuse_order_of_ancestor(self, task: Task, parent_id: UUID) -> None:
        """Raise StepError if a child that was just stored would wait behind its parent, or an ancestor of that.

        Each of these waits for the child's end.
        """
        jobs = Job.objects.using(self.backend.database)
        ancestor: UUID | None = parent_id
        children = jobs.filter(parent_id=parent_id, task_path=task.module_path)
        while ancestor and (row := jobs.filter(pk=ancestor).values_list("concurrency_key", "parent_id").first()):
            key, ancestor = row
            if key and children.filter(concurrency_key=key).exists():
                raise StepError(
                    f"{task.module_path} cannot be a child here: it has the order_key {key!r} of its parent, or of an "
                    "ancestor, so each would wait for the other. Enqueue it in a step, or give it another order_key."
                )

    def backend_of(self, task: Task) -> VTQueueBackend:
        """Return the backend of a child's task; raise StepError if it cannot be a child."""
        backend = task.get_backend()
        if not isinstance(backend, VTQueueBackend) or backend.database != self.backend.database:
            raise StepError(
                f"{task.module_path} cannot be a child: its jobs are not in database {self.backend.database!r}."
            )
        if "unique_key" in options_of(task.func):
            raise StepError(
                f"{task.module_path} has a unique_key, so it cannot be a child: another job may have the key. Enqueue "
                "it in a step, and have it send an event when it is done."
            )
        return backend

    def requeue(self, ids: Sequence[str], before: int, by: str) -> None:
        """Requeue those children, in the caller's transaction, that have died before an instant; ``by``: see there."""
        letters = DeadLetter.objects.using(self.backend.database).filter(died_at__lt=before)
        for some in slices(list(map(UUID, ids))):
            dead_letters.requeue(letters.filter(pk__in=some).only("pk"), using=self.backend.database, by=by)

    def ended(self, ids: Sequence[str], known: Sequence[dict[str, Any]] | None = None) -> list[dict[str, Any]] | None:
        """Return what became of children, to be kept with the parent; None as long as one is unfinished.

        ``known``: what was kept of them before; a success stays one, and so does a failure whose job is gone.
        """
        ended = list(known or map(kept, [None] * len(ids)))
        unread = [index for index, was in enumerate(ended) if was["state"] != states.SUCCESSFUL]
        jobs = Job.objects.using(self.backend.database).filter(finished_at=None)
        if any(jobs.filter(pk__in=some).exists() for some in slices([UUID(ids[index]) for index in unread])):
            return None
        engine = engine_for(self.backend.database)
        for index in unread:
            job = engine.find(ids[index])  # one by one: one may be requeued, and is in the other table
            if job and job.state in (*states.QUEUED, states.RUNNING):
                return None
            ended[index] = kept(job) if job else ended[index]
        return ended

    def was_read(self, ids: Sequence[str]) -> None:
        """Keep children for no longer than other jobs and dead letters of their queues, from now on."""
        database = self.backend.database
        now = engine_for(database).now()
        jobs, letters = Job.objects.using(database).filter(state=states.SUCCESSFUL), DeadLetter.objects.using(database)
        for some in slices(list(map(UUID, ids))):
            for rows in (jobs.filter(pk__in=some), letters.filter(pk__in=some)):
                for name in set(rows.values_list("queue_name", flat=True)):
                    options = options_for(name, database)
                    of_jobs = microseconds_or_none(options.policy(name).result_ttl)
                    ttl = of_jobs if rows.model is Job else options.letter_ttl(name)
                    if ttl is not None:
                        rows.filter(queue_name=name, kept_until__gt=now + ttl).update(kept_until=now + ttl)

    def results(
        self, ids: Sequence[str], ended: Sequence[dict[str, Any]], calls: Sequence[TaskCall]
    ) -> list[TaskResult]:
        """Return the results of children from what was kept of them; their arguments are those of the calls."""
        backend = self.backend
        jobs = [restored(job_id, found, call) for job_id, found, call in zip(ids, ended, calls, strict=True)]
        return [result_of_row(job, backend.alias, backend.settings.task_modules) for job in jobs]


def kept(job: StoredJob | None) -> dict[str, Any]:
    """Return what a parent keeps of a child that has ended, small; a child that is gone has failed, so far as is known.

    Of its errors it is the last one, without the traceback; all are with the child.
    """
    if job is None:
        gone = {"exception_class": class_path(TaskResultDoesNotExist), "message": "The job is gone: it was deleted."}
        return {"state": states.FAILED, "history": [gone]}
    entries = [entry for entry in history.read(job.history) if entry.get("exception_class")]
    few: list[Any] = [{name: entries[-1].get(name, "") for name in ("exception_class", "message")}] if entries else []
    return {"state": job.state, "result": job.result, "history": few, **{name: getattr(job, name) for name in NUMBERS}}


def restored(job_id: str, found: dict[str, Any], call: TaskCall) -> StoredJob:
    """Return a child as its row was, so far as it was kept."""
    entries = [{**entry, "traceback": f"{entry['exception_class']}: {entry['message']}"} for entry in found["history"]]
    payload = {"args": normalize(list(call.args)), "kwargs": normalize(dict(call.kwargs))}
    return StoredJob(
        id=job_id,
        queue_name=call.task.queue_name,
        task_path=call.task.module_path,
        priority=call.task.priority,
        visible_at=0,
        claims=1,
        attempts=found.get("attempts", 0),
        max_attempts=0,
        worker_id="",
        lease_us=0,
        enqueued_at=found.get("enqueued_at", 0),
        started_at=found.get("started_at"),
        payload=dumps(payload),
        history=dumps(entries),
        due_at=0,
        state=found["state"],
        finished_at=found.get("finished_at"),
        result=found.get("result"),
    )
