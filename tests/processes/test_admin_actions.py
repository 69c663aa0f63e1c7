"""What people do with jobs while a worker takes them: nothing is lost, nothing runs twice."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest

from django_vtqueue import control

from ..conftest import ALIAS
from ..project.tasks import note
from ..waiting import PATIENCE, wait_until
from .database import Database
from .running import Start

JOBS = 100
TURNS = 300  # after so many a worker on a busy machine is left in peace, so that the test ends

ACTIONS: dict[str, Callable[[list[str], int], list[UUID]]] = {
    "change priority": lambda ids, turn: control.change_priority(ids, turn % 100, using=ALIAS) and [],
    "move": lambda ids, turn: control.move(ids, f"queue{turn % 2}", using=ALIAS) and [],
    "run now": lambda ids, turn: control.run_now(ids, using=ALIAS) and [],
    "delete": lambda ids, turn: control.discard(ids[-1:], using=ALIAS),
}


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
def test_while_a_worker_takes_them(
    database: Database, start_worker: Start, tmp_path: Path, action: Callable[[list[str], int], list[UUID]]
) -> None:
    """However often jobs are changed meanwhile, each runs once; one that was deleted has run, or never does."""
    notes = tmp_path / "notes"
    ids = database.enqueue_many(note, [(str(notes), str(number)) for number in range(JOBS)])
    start_worker("--threads", "2")
    deleted: list[UUID] = []
    turns = count()

    def changed_until_none_is_left() -> bool:
        left = [row["id"] for row in database.rows("SELECT id FROM vtqueue_job WHERE finished_at IS NULL")]
        if (turn := next(turns)) < TURNS:
            deleted.extend(action(left, turn))
        return not left

    wait_until(changed_until_none_is_left, 2 * PATIENCE)
    ran = notes.read_text().split()
    assert len(ran) == len(set(ran))
    assert {str(number) for number, job_id in enumerate(ids) if UUID(job_id) not in deleted} <= set(ran)
