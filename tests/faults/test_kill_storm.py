"""Workers that are killed all the time, while they work through a queue."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

from tests.project import storms, transactional

from ..processes.conftest import Start
from ..processes.database import Database
from ..waiting import wait_until
from .ledger import Ledger
from .scale import scaled
from .storm import Storm

JOBS = scaled(2_000, 20_000)
INCREMENTS = scaled(500, 20_000)
PATIENCE = scaled(200, 3_600)  # a busy machine takes seconds to start a worker


def work_off(storm: Storm, database: Database) -> None:
    """Have the storm blow until nothing is left to do."""

    def holders() -> set[int]:
        rows = database.rows("SELECT DISTINCT worker_id FROM vtqueue_job WHERE state = 'RUNNING'")
        return {int(row["worker_id"].split(":")[1]) for row in rows}

    wait_until(lambda: not (left := database.unfinished()) or storm.blow(left, holders), PATIENCE)
    storm.calm()


def executions(folder: Path) -> Counter[tuple[str, str]]:
    """Return how many times each job was begun for each worker, from the files that the executions wrote."""
    lines = [line.split() for file in folder.iterdir() for line in file.read_text().splitlines()]
    return Counter((job, worker) for job, worker in lines)


def claims_met(storm: Storm, ledger: Ledger) -> Counter[str]:
    """Return how many claims of each job were in flight at a kill and did not end well, as the database saw it."""
    met: Counter[str] = Counter()
    for job, claims in ledger.claims().items():
        met[job] = sum(storm.met(claim.worker, claim.at, following.at) for claim, following in pairwise(claims))
    return met


def test_a_storm_loses_nothing(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """Each job is acknowledged once, and begun again only if it was in flight at a kill.

    Four workers, of which one, or a child of one, is killed every half second.
    """
    ledger, folder = Ledger(database), tmp_path / "executed"
    folder.mkdir()
    published = database.enqueue_many(storms.short, [(str(folder),)] * JOBS)
    storm = Storm(start_worker, len(published))
    work_off(storm, database)

    runs, met = executions(folder), claims_met(storm, ledger)
    assert ledger.acknowledged() == dict.fromkeys(published, 1)
    assert ledger.buried() == {}
    times = Counter(job for job, _ in runs.elements())
    assert times.keys() == set(published)
    assert times <= Counter(published) + met
    assert runs <= Counter((claim.job, claim.worker) for claim in ledger.events("claimed"))
    assert met.total(), "no kill met a job"
    print(f"{JOBS} jobs, {len(storm.kills)} kills met {met.total()} claims, {runs.total()} executions")


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
    met = claims_met(storm, ledger).total()
    assert met, "no kill met a job"
    print(f"{INCREMENTS} increments, {len(storm.kills)} kills met {met} claims")
