"""Moves that are killed, while workers of both sides run, and jobs are published."""

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from django_vtqueue.models import DeadLetter

from ..conftest import ALIAS
from ..processes.database import Database
from ..processes.moves import ALIASES, OTHER, Sides, for_tomorrow, publishing, told, unfinished, waiting
from ..processes.running import Running
from ..waiting import wait_until
from .scale import scaled

ROUNDS = scaled(1, 50)  # there and back
KILLED = 3  # moves, each way: there are jobs left to move when the last of them is killed


def cut_off_amid(move: Running, source: str, target: str, chance: random.Random) -> None:
    """Kill a move at some moment after its first batch has arrived, or when there is little left to move."""
    before = unfinished(target).count()
    wait_until(
        lambda: unfinished(target).count() > before + 100 or unfinished(source).count() < 100 or move.ended(),
        every=0.005,
    )
    time.sleep(chance.uniform(0, 0.2))
    move.kill()


def test_killed_at_any_moment(sides: Sides, database: Database, other: dict[str, Any], tmp_path: Path) -> None:
    """Whenever moves are killed, there and back: each job is run once, and each that waits is there once.

    Workers of both sides run, and jobs are published, all the time; some have children, which are run in order.
    """
    path, chance = tmp_path / "told", random.Random(7)
    scheduled = for_tomorrow(database)
    workers = [sides.worker("default"), sides.worker(OTHER)]
    with publishing(database, path) as published:
        for source, target in (("default", OTHER), (OTHER, "default")) * ROUNDS:
            for _ in range(KILLED):
                move = sides.move(source, target, "--wait")
                cut_off_amid(move, ALIASES[source], ALIASES[target], chance)
            last = sides.move(source, target)
            assert last.wait() == 0, last.log
            assert "Moved " in last.log
            assert not scheduled.intersection(waiting(ALIASES[source]))
    wait_until(lambda: len(told(path)) == published())
    assert set(told(path).values()) == {1}
    wait_until(lambda: Counter([*waiting(ALIAS), *waiting(OTHER)]) == Counter(scheduled))
    assert not any(DeadLetter.objects.using(alias).exists() for alias in (ALIAS, OTHER))
    for worker in workers:
        assert worker.terminate() == 0, worker.log
