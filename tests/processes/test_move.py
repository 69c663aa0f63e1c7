"""``vtqueue move`` between databases at work: workers on both sides, what they hold, and a move that is interrupted."""

import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.utils import timezone

from django_vtqueue import Lease
from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.models import Job

from ..conftest import ALIAS
from ..project.tasks import enqueue_note_amid, note
from ..waiting import wait_until
from . import inside
from .database import Database
from .instance import terms
from .moves import OTHER, Sides, for_tomorrow, told, waiting


def test_two_moves_at_once(sides: Sides, database: Database, other: dict[str, Any]) -> None:
    """Several moves of the same databases share the work: each job arrives once, and nothing of their way is left."""
    scheduled = for_tomorrow(database)
    moves = [sides.move("default", OTHER) for _ in range(3)]
    ends = [move.wait() for move in moves]
    assert 0 in ends, [move.log for move in moves]
    assert all(
        end == 0 or "Another run of this move has ended" in move.log for end, move in zip(ends, moves, strict=True)
    )
    last = sides.move("default", OTHER)
    assert last.wait() == 0, last.log
    assert sorted(waiting(OTHER)) == sorted(scheduled)
    assert not Job.objects.using(ALIAS).exists()


def test_wait(sides: Sides, database: Database, other: dict[str, Any], tmp_path: Path) -> None:
    """With ``--wait`` a move ends when nothing is left: it waits for what runs, and for leases of dead holders to end.

    So what a killed worker has held runs on the other side.
    """
    path = tmp_path / "told"
    held = database.enqueue(note, str(path), "held")
    inside.held(database, "gone:1:ab", inside.now() + 2 * inside.SECOND, held, lease=3)
    move = sides.move("default", OTHER, "--wait")
    assert move.wait() == 0, move.log
    assert not Job.objects.using(ALIAS).exists()
    sides.worker(OTHER)
    wait_until(lambda: told(path) == {"held": 1})


def test_a_leader_that_was_killed(sides: Sides, database: Database, other: dict[str, Any], tmp_path: Path) -> None:
    """Its row goes at once, for its death is proven; in the target the tokens go on."""
    leader = sides.start("-m", "tests.processes.instance", "import", "30", str(tmp_path / "terms"))
    wait_until(lambda: bool(terms(tmp_path / "terms")))
    leader.kill()
    move = sides.move("default", OTHER)
    assert move.wait() == 0, move.log
    assert "left" not in move.log
    with Lease("import", using=OTHER) as lease:
        assert lease.token == 2


def test_interrupted(sides: Sides, database: Database, other: dict[str, Any]) -> None:
    """Ctrl-C ends a move with one sentence, and no traceback; the same command goes on."""
    database.enqueue(note, "-", "held")
    inside.held(database, "a", 10**18)
    waits = database.enqueue(note.using(run_after=timezone.now() + timedelta(days=1)), "-", "waits")
    move = sides.move("default", OTHER, "--wait")
    wait_until(lambda: waiting(OTHER) == [waits])
    move.signal(signal.SIGINT)
    assert move.wait() == 130
    assert move.log == ("CommandError: Interrupted. Moved rows stay moved; run the same command again to go on.\n")


def test_a_database_of_its_own(sides: Sides, database: Database, other: dict[str, Any], tmp_path: Path) -> None:
    """A worker serves a queue beside the default database; its task enqueues in a block there, after the commit."""
    path = tmp_path / "told"
    backend = VTQueueBackend("default", {"QUEUES": [], "OPTIONS": {**database.options, "database": OTHER}})
    backend.enqueue(enqueue_note_amid, (str(path), "then"), {})
    sides.worker(OTHER)
    wait_until(lambda: told(path) == {"not yet": 1, "then": 1})
    assert path.read_text().splitlines() == ["not yet", "then"]
    assert not Job.objects.using(ALIAS).exists()
