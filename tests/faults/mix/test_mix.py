"""Random mixes of all that may happen, against all that is promised."""

import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import pytest

from ...conftest import ENGINE
from ...processes.database import Database
from ...processes.instance import terms
from ...processes.running import READY, Running, Start, is_ours
from ...processes.slot_instance import Looks
from ..ledger import Ledger
from ..scale import MINUTES, chosen_seed, scaled
from ..vitals import Vitals
from ..wall_clock import WallClock
from ..words import SECOND
from . import checker, journal
from .checker import Job, Story, moment, row_of
from .faults import KILLS, MEMBERS, ON_A_FILE, ON_A_SERVER, Faults, plan
from .kinds import ASIDE, COPIES, COUNTER, HANDLED, LIMITED, LISTED, LONG_LEASE, MAX_DEPTH, OTHER, ROWS, SHARED
from .neighbours import BAD

FEW = ("brief", "backs_off", "medium", "shared", "writes")
MIXES = {  # for how many seconds, which faults, how many seconds apart, and the kinds of jobs; none: all
    ("sqlite", "everything"): (scaled(20.0, 60 * MINUTES), ON_A_FILE, (0.5, 2.0), ()),
    ("sqlite", "kills"): (scaled(8.0, 60 * MINUTES), KILLS, (0.4, 0.6), FEW),
    ("postgresql", "everything"): (scaled(20.0, 60 * MINUTES), ON_A_SERVER, (0.5, 2.0), ()),
    ("postgresql", "kills"): (scaled(8.0, 60 * MINUTES), KILLS, (0.4, 0.6), FEW),
}
CHOSEN = [mix for mix in MIXES if MINUTES or mix[0] == ENGINE or mix[1] == "kills"]
PATIENCE = 90  # seconds in which one more of what is left over has to end
KINDS = os.environ.get("VTQUEUE_KINDS", "").split()
MISTAKES = ("met an error", "Fatal Python error")  # what a worker says of an error that is no task's
ENDED_WELL = {0, -signal.SIGKILL, -signal.SIGTERM}  # exit codes of workers
OVER_TIME = re.compile(r"a job of process (\d+) runs for too long; the process is killed")
GAVE_BACK = "gave back"  # says one that leaves with code 1: code of these jobs may still run, and must end with it
OPTIONS = {
    "visibility_timeout": LONG_LEASE,
    "max_attempts": 0,
    "result_ttl": None,
    "task_modules": ["tests.faults.mix.tasks"],
    "queue_options": {
        HANDLED: {"handler": "tests.faults.mix.tasks.handle", "backoff": 0.5},
        ASIDE: {"result_ttl": 3},
        LIMITED: {"max_depth": MAX_DEPTH, "on_full": "wait", "full_timeout": 0.1},
        SHARED: {"overflow": True, "copies": COPIES},
    },
}
# How many jobs wait that were never claimed, after each of them: what a worker gives back is not refused. It is counted
# at the commit: between an INSERT and the count of its publisher a claim may take jobs.
DEPTHS = "CREATE TABLE depths (depth INTEGER)"
COUNT = f"""
INSERT INTO depths SELECT count(*) FROM vtqueue_job
WHERE queue_name = '{LIMITED}' AND finished_at IS NULL AND lease_until IS NULL AND claims = 0"""
LISTS = f"""
WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < {ROWS})
INSERT INTO project_effect (name, value) SELECT '{LISTED}', number * 7919 % 1000 FROM numbers"""
IN_THE_END = """
SELECT id, state, worker_id, lease_us, '' AS exception_class, history FROM vtqueue_job
WHERE queue_name NOT LIKE 'lease:%' AND queue_name NOT LIKE 'slots:%'
UNION ALL
SELECT id, 'FAILED', worker_id, lease_us, exception_class, history FROM vtqueue_deadletter"""


def published(publisher: Running) -> list[Job]:
    """Return what a publisher relies on."""
    jobs: dict[str, Job] = {}
    for line in publisher.log.splitlines():
        told = json.loads(line)
        if "cancelled" in told:
            jobs[told["cancelled"]].cancelled_at, jobs[told["cancelled"]].asked = told["at"], not told["at"]
        else:
            for job_id in told["jobs"]:
                own = {name: told[name] for name in ("key", "priority") if name in told}
                jobs[job_id] = Job(job_id, told["kind"], told["queue"], told["at"], told["due"], **own)
    return list(jobs.values())


def story(database: Database, ledger: Ledger, publisher: Running, faults: Faults, folder: Path) -> Story:
    """Return all that is known in the end."""
    executions, forked = journal.read(folder)
    effects = database.rows("SELECT name, count(*) AS number, sum(value) AS value FROM project_effect GROUP BY name")
    return Story(
        jobs=published(publisher),
        executions=executions,
        rows={row["id"]: row_of(row) for row in database.rows(IN_THE_END)},
        faults=faults.happened,
        claims=ledger.events("claimed"),
        acknowledged=ledger.acknowledged(),
        buried=ledger.buried(),
        effects=Counter({row["name"]: row["number"] for row in effects}),
        counted=next(row["value"] for row in effects if row["name"] == COUNTER),
        terms=[term for file in faults.told_by for term in terms(file)],
        looks=Looks().of(*faults.turns_in),
        forked=forked,
        starved=faults.starved,
        deepest=database.rows("SELECT max(depth) AS depth FROM depths")[0]["depth"] or 0,
        over_time={int(pid) for worker in faults.ended for pid in OVER_TIME.findall(worker.log)},
        stayed=[" ".join(map(str, worker.process.args)) for worker in faults.stayed],  # type: ignore[arg-type]
    )


def blow(faults: Faults, publisher: Running, vitals: Vitals) -> None:
    while not publisher.ended():
        faults.go_on()
        vitals.look()
        time.sleep(0.02)
    faults.clear_up()
    assert publisher.wait() == 0, publisher.log


def left_over(database: Database, faults: Faults) -> None:
    """Wait for the end of what is left, as long as there is less and less; the rest is found by the checker."""
    fewest, deadline = 1 << 62, 0.0
    while (left := database.unfinished()) and (left < fewest or time.monotonic() < deadline):
        if left < fewest:
            fewest, deadline = left, time.monotonic() + PATIENCE
        faults.go_on()
        time.sleep(0.1)


def end_forked(folder: Path) -> None:
    """End the children of tasks that live on as if they were workers."""
    for pid in journal.read(folder)[1]:
        if is_ours(pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def report(happened: Story, found: dict[str, list[str]]) -> None:
    """Say what has happened; and more of it if a promise was broken."""
    print(f"{dict(Counter(job.kind for job in happened.jobs))}: {len(happened.executions)} executions")
    turns, members = {look.starts_at for look in happened.looks}, {look.pid for look in happened.looks}
    print(f"{len(happened.terms)} leaders; {len(turns)} turns of {len(members)} instances")
    print(f"through {dict(Counter(fault.name for fault in happened.faults))}")
    for fault in happened.faults if found else ():
        pids = " ".join(map(str, sorted(fault.pids)))
        print(f"{moment(fault.begin)} {(fault.end - fault.begin) / SECOND:6.3f} s {fault.name} {pids}")
    for promise, sentences in found.items():
        print(f"BROKEN {len(sentences)} times: {promise}", *sentences[:10], sep="\n    ")


def ended_well(worker: Running, told: Collection[int]) -> bool:
    """Return whether it ended as it may; ``told``: who was told to stop. Told again, one is gone in 8 s in any case.

    One that gets no memory before it is ready holds no job yet.
    """
    code, log = worker.process.returncode, worker.log
    starved = not READY.search(log) and log.endswith("MemoryError\n")
    return code in ENDED_WELL or (code == 1 and (GAVE_BACK in log or worker.pid in told or starved))


@pytest.mark.timeout(60 * MINUTES + 600)
@pytest.mark.parametrize(("database", "mix"), CHOSEN, indirect=["database"])
def test_every_promise_holds(
    request: pytest.FixtureRequest,
    database: Database,
    start: Start,
    start_worker: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mix: str,
) -> None:
    """Whatever workers, consumers and the database meet, all that docs/explanation/guarantees.md promises is kept.

    The WAL stays small, and in a long run the memory of the workers. ``kills``: a worker, or a child of one, is killed
    every half second, on a server too. There sessions are ended besides, at length or where all tests run on it.

    ``VTQUEUE_SEED`` repeats the plan of a run (what meets what is left to the machine); ``VTQUEUE_KINDS``, names from
    kinds.py, leaves out all others.
    """
    seconds, chances, between, kinds = MIXES[request.node.callspec.params["database"], mix]
    seed, folder = chosen_seed(), tmp_path / "journal"
    folder.mkdir()
    monkeypatch.setenv(journal.FOLDER, str(folder))
    monkeypatch.setenv("VTQUEUE_TEST_OTHER", json.dumps({"NAME": str(tmp_path / OTHER)}))
    database.options |= OPTIONS
    ledger = Ledger(database)
    database.write(DEPTHS)
    database.on("counted", "INSERT ON vtqueue_job", f"NEW.queue_name = '{LIMITED}'", COUNT, at_commit=True)
    database.write("INSERT INTO project_effect (name, value) VALUES (?, 0)", COUNTER)
    database.write(LISTS)
    steps, loud = plan(seed, seconds, chances, between), mix == "everything"
    if loud:
        monkeypatch.setenv(BAD, "1")
    faults = Faults(database, start, start_worker, steps, wall_clock=WallClock(tmp_path), loud=loud)
    vitals = Vitals(database.path, [worker.pid for worker in faults.lasting])
    faults.begin()
    publisher = start("-m", "tests.faults.mix.load", str(seed), str(seconds), *(KINDS or kinds), PGAPPNAME="publisher")
    try:
        blow(faults, publisher, vitals)
        left_over(database, faults)
        faults.calm()
    finally:
        end_forked(folder)
    happened = story(database, ledger, publisher, faults, folder)
    found = checker.broken(happened)
    report(happened, found)
    print(vitals)
    vitals.check()
    assert not ledger.strayed()
    assert not found, f"VTQUEUE_SEED={seed} breaks: {'; '.join(found)}"
    badly = [worker for worker in faults.ended if not ended_well(worker, faults.told)]
    assert [(worker.process.returncode, worker.log[-2000:]) for worker in badly] == []
    assert [worker.log for worker in faults.ended if any(mistake in worker.log for mistake in MISTAKES)] == []
    if MINUTES:  # in seconds a busy machine may do too little for it
        assert_met(happened)


def assert_met(happened: Story) -> None:
    """Fail if something was not put to the test."""
    assert KINDS or happened.deepest == MAX_DEPTH, "the queue with a max_depth was never full"
    outcomes = [entry.get("outcome") for row in happened.rows.values() for entry in row.history]
    assert set(outcomes) & set(checker.ENDED_FOR_IT), "no fault met a job"
    members = {look.pid for look in happened.looks}
    assert len(members) > 1, "no two instances had turns"
    assert len(happened.terms) > 1 or len(members) > MEMBERS, "no instance was followed by another one"
