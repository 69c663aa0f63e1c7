"""The last jobs of a schedule, as its row has them: what has become of each, and how long it ran.

A job that is done is kept for a while only, so its end is noted in the row of the schedule: with the next tick, and
once a minute by the worker that published it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from ..core import states
from ..core.clock import to_instant
from ..models import DeadLetter, Job

KEPT = 30  # jobs in the row of a schedule
GONE = "gone"  # its end was not seen
ENDS = ("done", "dead", GONE)

Run = Mapping[str, Any]  # {"id": of the job, "at": its tick, "state": word, "ran": microseconds}; the last two if known


def ended(run: Run) -> bool:
    return run.get("state") in ENDS


def with_states(runs: Sequence[Run], database: str, now: int) -> list[dict[str, Any]]:
    """Return runs, each with its present state."""
    known = _states([run["id"] for run in runs if not ended(run)], database, now)
    return [dict(run) if ended(run) else {**run, **known.get(run["id"], {"state": GONE})} for run in runs]


def _states(job_ids: Iterable[str], database: str, now: int) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    if not (keys := [UUID(job_id) for job_id in job_ids]):
        return found
    # The letters last: a job may be buried between the two reads.
    columns = ("pk", "state", "visible_at", "attempts", "started_at", "finished_at")
    for pk, state, visible_at, attempts, began, ended in (
        Job.objects.using(database).filter(pk__in=keys).values_list(*columns)
    ):
        found[pk.hex] = {"state": states.word(state, to_instant(visible_at), attempts, now), **_ran(began, ended)}
    for pk, began, ended in (
        DeadLetter.objects.using(database).filter(pk__in=keys).values_list("pk", "started_at", "died_at")
    ):
        found[pk.hex] = {"state": "dead", **_ran(began, ended)}
    return found


def _ran(began: Any, ended: Any) -> dict[str, int]:
    return {"ran": to_instant(ended) - to_instant(began)} if began and ended else {}


def noted(runs: Sequence[Run], database: str, now: int) -> list[dict[str, Any]]:
    """Return runs as a row keeps them: with the ends that are known now."""
    return [
        run if ended(run) else {"id": run["id"], "at": run["at"]} for run in with_states(runs, database, now)[:KEPT]
    ]
