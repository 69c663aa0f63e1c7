"""Many jobs or dead letters are changed a few at a time."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from ..core.ids import slices
from ..engines import engine_for
from .doorbell import wake_workers
from .named_jobs import Named, ids_of

if TYPE_CHECKING:
    from ..models import AbstractJob


def change_in_batches(
    given: Named,
    model: "type[AbstractJob]",
    database: str,
    change_some: Callable[[Sequence[UUID]], Iterable[UUID]],
) -> list[UUID]:
    """Change jobs or dead letters a few at a time, each few in a transaction if there is none around all; wake workers.

    Return the ids that ``change_some`` returned, in the order in which they were given. Raise UnclearId.
    """
    ids = ids_of(given, database, model)
    engine, changed = engine_for(database), set[UUID]()

    def changed_of(some: Sequence[UUID]) -> set[UUID]:
        return set(change_some(some))  # read inside of the transaction

    for some in slices(ids):
        changed |= engine.yielding(partial(changed_of, some))
    wake_workers(database)
    return [job_id for job_id in ids if job_id in changed]
