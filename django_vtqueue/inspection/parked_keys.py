"""What limits hold up: the concurrency keys with the most parked jobs. Numbers are counted up to a limit."""

from typing import NamedTuple

from django.db.models import OuterRef

from ..core import states
from ..engines import engine_for
from ..engines.distinct import RowCount, first_of_each
from ..fields.constraints import in_state
from ..models import Job

KEYS = 200  # that are looked at


class ParkedKey(NamedTuple):
    """A concurrency key that has parked jobs, and holds ``held``. Queue and task are those of the first parked one."""

    key: str
    queue_name: str
    task_path: str
    parked: int
    held: int


def parked_keys(database: str, limit: int, most: int) -> tuple[list[ParkedKey], int]:
    """Return the ``limit`` keys with the most parked jobs, counted up to ``most``, and how many other keys there are.

    Of all keys the first KEYS are looked at.
    """
    rows = Job.objects.using(database).filter(in_state(states.BLOCKED))
    first = first_of_each(rows.order_by("ordered", "queue_name", "-priority", "due_at"), "concurrency_key", limit=KEYS)
    number = RowCount(rows.filter(concurrency_key=OuterRef("concurrency_key"))[:most])
    found = list(first.values_list("concurrency_key", "queue_name", "task_path", number))
    found.sort(key=lambda row: (-row[3], row[0]))
    held = engine_for(database).held_of_keys([row[0] for row in found[:limit]])
    shown = [ParkedKey(key, queue, path, parked, held[key]) for key, queue, path, parked in found[:limit]]
    return shown, max(len(found) - limit, 0)
