"""Workers that are killed all the time, while they work through a queue."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from tests.project import storms, transactional

from ..processes.conftest import Start
from ..processes.database import Database
from ..waiting import wait_until
from .ledger import Ledger
from .scale import scaled
from .storm import Storm

JOBS = scaled(2_000, 20_000)
INCREMENTS = scaled(500, 20_000)
PATIENCE = scaled(120, 1_800)
CHILD = re.compile(r"Process (\d+) of its worker died")


def work_off(storm: Storm, database: Database) -> None:
    """Have the storm blow until nothing is left to do."""
    wait_until(lambda: not (left := database.unfinished()) or storm.blow(left), PATIENCE)
    storm.calm()


def executions(folder: Path) -> Counter[tuple[str, str]]:
    """Return how many times each job was begun for each worker, from the files that the executions wrote."""
    lines = [line.split() for file in folder.iterdir() for line in file.read_text().splitlines()]
    return Counter((job, worker) for job, worker in lines)


def attempts_ended(database: Database) -> dict[str, list[dict[str, Any]]]:
    """Return the history of each job that has one."""
    rows = database.rows("SELECT id, history FROM vtqueue_job WHERE history != '[]'")
    return {row["id"]: json.loads(row["history"]) for row in rows}


def in_flight_at_a_kill(entry: dict[str, Any], storm: Storm) -> bool:
    """Return whether an attempt was under way when the storm killed the process that ran it, or its worker."""
    worker = int(entry["worker"].split(":")[1])
    child = CHILD.search(entry.get("message", ""))
    pid = int(child[1]) if child else worker
    return max(storm.kills.get(pid, 0), storm.kills.get(worker, 0)) >= entry["started"]


def test_a_storm_loses_nothing(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """Each job is acknowledged once, and begun again only if a kill had met it; its history names each of them.

    Four workers, of which one, or a child of one, is killed every half second.
    """
    ledger, folder = Ledger(database), tmp_path / "executed"
    folder.mkdir()
    published = database.enqueue_many(storms.short, [(str(folder),)] * JOBS)
    storm = Storm(start_worker, len(published))
    work_off(storm, database)

    claims, runs, ended = ledger.claims(), executions(folder), attempts_ended(database)
    assert ledger.acknowledged() == dict.fromkeys(published, 1)
    assert ledger.buried() == {}
    assert runs <= Counter((claim.job, claim.worker) for job in published for claim in claims[job])
    times = Counter(job for job, _ in runs.elements())
    assert times.keys() == set(published)
    met = {job: sum(in_flight_at_a_kill(entry, storm) for entry in history) for job, history in ended.items()}
    assert times <= Counter({job: 1 + met.get(job, 0) for job in published})
    assert sum(met.values()), "no kill met a job"
    print(f"{JOBS} jobs, {len(storm.kills)} kills met {sum(met.values())} attempts, {runs.total()} executions")


def test_transactional_increments(database: Database, start_worker: Start) -> None:
    """A counter that transactional tasks increment ends at their number, though the same storm meets them."""
    ledger = Ledger(database)
    database.write("INSERT INTO project_effect (name, value) VALUES ('counter', 0)")
    published = database.enqueue_many(transactional.count, [("counter",)] * INCREMENTS)
    storm = Storm(start_worker, len(published))
    work_off(storm, database)
    assert database.rows("SELECT value FROM project_effect")[0]["value"] == INCREMENTS
    assert ledger.acknowledged() == dict.fromkeys(published, 1)
    assert ledger.buried() == {}
    met = sum(map(len, attempts_ended(database).values()))
    assert met, "no kill met a job"
    print(f"{INCREMENTS} increments, {len(storm.kills)} kills met {met} attempts")
