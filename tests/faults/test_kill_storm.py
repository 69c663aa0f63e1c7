"""Workers that are killed all the time, while they work through a queue."""

from collections import Counter
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

from django_vtqueue.core import history
from django_vtqueue.core.clock import SECOND
from tests.project import storms, transactional

from ..processes.conftest import Start
from ..processes.database import Database
from ..waiting import wait_until
from .ledger import Ledger
from .scale import scaled
from .storm import Storm

JOBS = scaled(2_000, 20_000)
PUT_OFF = scaled(400, 4_000)  # jobs that are tried again after a delay, and
SCHEDULED = 50  # some that have a time of their own
DELAY = 3.0  # seconds
LATEST = 20.0  # seconds for which a job of a higher priority than all others waits for a worker that lives
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


def claimed_after(ledger: Ledger, due: dict[str, int]) -> list[float]:
    """Return how many seconds after its time each job was claimed; before it: a negative number."""
    claims = ledger.claims()
    moments = {job: [claim.at for claim in claims[job] if claim.at > at - DELAY * SECOND] for job, at in due.items()}
    return [(moments[job][0] - at) / SECOND for job, at in due.items()]


def retries(database: Database, jobs: list[str]) -> dict[str, int]:
    """Return from when on each job that was put off may be tried again (microseconds)."""
    ends = {
        job: entry["ended"] for job in jobs for entry in database.history(job) if entry.get("outcome") == history.RETRY
    }
    return {job: ended + round(DELAY * SECOND) for job, ended in ends.items()}


def test_a_storm_loses_nothing(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """Each job is acknowledged once, and begun again only if it was in flight at a kill; none begins before its time,
    and none that comes before all others much later.

    Four workers, of which one, or a child of one, is killed every half second.
    """
    ledger, folder = Ledger(database), tmp_path / "executed"
    folder.mkdir()
    put_off = database.enqueue_many(storms.later, [(str(folder), DELAY)] * PUT_OFF)
    urgent, soon = storms.short.using(priority=10), timedelta(seconds=DELAY)
    scheduled = [database.enqueue(urgent, str(folder), run_after=soon) for _ in range(SCHEDULED)]
    due = {job: database.job(job)["visible_at"] for job in scheduled}
    published = put_off + scheduled + database.enqueue_many(storms.short, [(str(folder),)] * JOBS)
    storm = Storm(start_worker, len(published))
    work_off(storm, database)

    runs, met = executions(folder), claims_met(storm, ledger)
    again = retries(database, put_off)
    assert ledger.acknowledged() == dict.fromkeys(published, 1)
    assert ledger.buried() == {}
    times = Counter(job for job, _ in runs.elements())
    assert times.keys() == set(published)
    assert times <= Counter(published) + Counter(list(again)) + met
    assert runs <= Counter((claim.job, claim.worker) for claim in ledger.events("claimed"))
    assert met.total(), "no kill met a job"
    assert len(again) > PUT_OFF / 2
    waits = claimed_after(ledger, due | again)
    early, late = [wait for wait in waits if wait < 0], [wait for wait in waits if wait > LATEST]
    assert (len(early), len(late)) == (0, 0), (min(waits), max(waits))
    print(f"{len(published)} jobs, {len(storm.kills)} kills met {met.total()} claims, {runs.total()} executions")


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
