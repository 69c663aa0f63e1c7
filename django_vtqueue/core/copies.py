"""The copies of a job that several workers run at once, as its row has them: claim -> [worker, since, until, most].

``most`` may run at once. One more may start when a lease has ended, as long as fewer than ROUNDS times as many are in
the row: those whose workers have died are replaced, but a job that kills its workers does not go on for ever.
"""

import json
from dataclasses import replace
from typing import Any, NamedTuple

from .job import HeldJob

DEFAULT_COPIES = 2  # copies that run at once, where a row does not say it
ROUNDS = 2


class Copy(NamedTuple):
    """One execution of several. Instants; ``until``: it does not count as one that runs for longer than that.

    ``most``: how many may run at once.
    """

    worker: str
    since: int
    until: int
    most: int = DEFAULT_COPIES


def read(stored: Any) -> dict[int, Copy]:
    """Return the copies by their claim numbers, from the stored text or the value that the models have read.

    What was damaged is left out.
    """
    try:
        found = json.loads(stored) if isinstance(stored, str) else stored or {}
        return {
            int(claim): Copy(str(worker), int(since), int(until), *map(int, most))
            for claim, (worker, since, until, *most) in found.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def running(stored: Any, now: int) -> list[Copy]:
    """Return the copies that count as running at an instant, in the order of their claims; see read."""
    return [copy for _, copy in sorted(read(stored).items()) if copy.until > now]


def written(copies: dict[int, Copy]) -> str:
    """Return copies as they are stored."""
    return json.dumps(copies, ensure_ascii=False)


def held(row: HeldJob, worker_id: str) -> list[HeldJob]:
    """Return what a worker holds of a row: each copy that it runs, under the claim of that; else the row itself."""
    mine = [
        replace(row, claims=claim, worker_id=worker_id, started_at=row.started_at and copy.since)
        for claim, copy in read(row.copies).items()
        if copy.worker == worker_id
    ]
    return mine or ([row] if row.worker_id == worker_id else [])
