"""Publishing with unique keys: the database's constraint says which jobs are new, and which have one there already."""

import logging
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from ..core.ids import dashed
from ..core.job import NewJobs
from ..core.settlement import overdue
from ..core.text import one_line
from ..core.unique import ERROR
from ..engines import Engine
from ..exceptions import DuplicateJob
from .settling import settle

logger = logging.getLogger("django_vtqueue")

Duplicates = dict[int, str]  # index of a new job -> id of the job that has its key


def insert_with_keys(engine: Engine, new: NewJobs, on_duplicate: str) -> Duplicates:
    """Store new jobs; return those that are duplicates, which were not stored.

    Raise DuplicateJob, and store nothing, for one with ``on_duplicate`` "error", or if its key is that of another task.
    """
    if on_duplicate == ERROR:
        refuse_twins(new)
    insert = partial(_insert, engine, new, on_duplicate)
    duplicates = engine.yielding(insert) if len(new.jobs) > 1 else insert()
    if duplicates and logger.isEnabledFor(logging.INFO):
        for index, job_id in duplicates.items():
            told = (new.task_path or "payload", job_id[-8:], one_line(new.queue_name), _keys(new)[index], on_duplicate)
            logger.info("same  %s …%s queue=%s has the unique key %r already; on_duplicate=%s", *told)
    return duplicates


def _insert(engine: Engine, new: NewJobs, on_duplicate: str) -> Duplicates:
    """Store new jobs, those with the keys of overdue jobs too; raise DuplicateJob for a key that is taken."""
    if not (found := engine.insert_with_keys(new)):
        return {}
    if freed := bury_overdue_holders(engine, {job_id for job_id, _ in found.values()}):
        again = [index for index, (job_id, _) in found.items() if job_id in freed]
        still = engine.insert_with_keys(_some(new, again))
        found = {index: there for index, there in found.items() if index not in again}
        found |= {again[index]: there for index, there in still.items()}
    for index, (job_id, task_path) in found.items():
        if on_duplicate == ERROR or task_path != new.task_path:
            raise _refusal(new, index, job_id, task_path)
    return {index: job_id for index, (job_id, _) in found.items()}


def bury_overdue_holders(engine: Engine, job_ids: set[str]) -> set[str]:
    """Make dead letters of those of these jobs that are overdue; return their ids.

    They will never run, so they shall not keep their keys from a new job.
    """
    ids, now = sorted(job_ids), engine.now()
    if not engine.overdue_among(ids, now):  # most duplicates need no right to write
        return set()
    with engine.transaction():
        start_by = {row.handle: row.start_by for row in engine.overdue_among(ids, now)}
        settlements = [overdue(job, start_by[handle], now) for handle, job in engine.read([*start_by]).items()]
        lost = settle(engine, settlements)
    return {settlement.job.id for settlement in settlements if settlement.job.key not in lost}


def refuse_twins(new: NewJobs) -> None:
    """Raise DuplicateJob if two new jobs have one key."""
    counts = Counter(key for key in _keys(new) if key is not None)
    for key, count in counts.items():
        if count > 1:
            raise DuplicateJob(
                f"{count} jobs of this call have the unique key {key!r}. None is stored.", unique_key=key
            )


def _keys(new: NewJobs) -> list[str | None]:
    return new.unique_keys or []


def _some(new: NewJobs, indexes: list[int]) -> NewJobs:
    lists = ("jobs", "unique_keys", "concurrency_keys", "rate_keys")
    some: dict[str, Any] = {
        name: given and [given[i] for i in indexes] for name in lists if (given := getattr(new, name))
    }
    return replace(new, **some)


def _refusal(new: NewJobs, index: int, job_id: str, task_path: str) -> DuplicateJob:
    key = _keys(new)[index] or ""
    text = f"Job {dashed(job_id)} of queue {new.queue_name!r} has the unique key {key!r}. "
    if task_path != new.task_path:
        text += (
            f"It is one of {task_path or 'a raw payload'}, not of {new.task_path or 'a raw payload'}: the tasks of a "
            'queue share its keys. Put the name of the task into the key: unique_key="send:{report_id}". '
        )
    return DuplicateJob(text + "Nothing is stored.", job_id=UUID(job_id), unique_key=key)
