"""The last jobs of a schedule, as its row has them: what has become of each, and how long it ran.

A job that is done is kept for a while only, so its end is noted in the row of the schedule: with the next tick, and
once a minute by the worker that published it.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from ..core.clock import to_instant
from ..core.ids import parse_id, slices
from ..inspection.state import state_word
from ..models import DeadLetter, Job

JOBS_KEPT = 30  # jobs in the row of a schedule
GONE = "gone"  # its end was not seen
ENDS = ("done", "dead", GONE)

READ = ("state", "worker_id", "visible_at", "start_by", "attempts", "started_at", "finished_at")

Run = Mapping[str, Any]  # {"id": of the job, "at": its tick, "state": word, "ran": microseconds}; the last two if known


def ended(run: Run) -> bool:
    return run.get("state") in ENDS


def read(recent: object) -> list[dict[str, Any]]:
    """Return the runs of a row, as far as they are readable."""
    return [run for run in recent if readable(run)] if isinstance(recent, list) else []


def readable(run: object) -> bool:
    return isinstance(run, dict) and isinstance(run.get("at"), int) and parse_id(run.get("id")) is not None


def with_states(runs: Iterable[Run], known: Mapping[str, Run]) -> list[dict[str, Any]]:
    """Return runs, each with its present state; ``known``: what ``states_of`` returned for them."""
    return [dict(run) if ended(run) else {**run, **known.get(run["id"], {"state": GONE})} for run in runs]


def states_of(runs: Iterable[Run], database: str, now: int) -> dict[str, Run]:
    """Return the present states of those of these runs whose end is not noted, by the ids of their jobs."""
    found: dict[str, Run] = {}
    if not (keys := [UUID(run["id"]) for run in runs if not ended(run)]):
        return found
    jobs, letters = Job.objects.using(database), DeadLetter.objects.using(database)
    for part in slices(keys):
        for job in jobs.filter(pk__in=part).only(*READ):
            found[job.pk.hex] = {"state": state_word(job, now), **_ran(job.started_at, job.finished_at)}
        # The letters last: a job may be buried between the two reads.
        for pk, began, end in letters.filter(pk__in=part).values_list("pk", "started_at", "died_at"):
            found[pk.hex] = {"state": "dead", **_ran(began, end)}
    return found


def _ran(began: Any, ended: Any) -> dict[str, int]:
    return {"ran": to_instant(ended) - to_instant(began)} if began and ended else {}


def noted(recent: object, database: str, now: int) -> list[dict[str, Any]]:
    """Return the runs of a row as it keeps them: with the ends that are known now."""
    runs = read(recent)[:JOBS_KEPT]
    present = with_states(runs, states_of(runs, database, now))
    return [run if ended(run) else {"id": run["id"], "at": run["at"]} for run in present]
