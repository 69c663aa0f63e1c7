"""Mixed load and random faults, for a while."""

import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

from ..processes.conftest import Start
from ..processes.database import Database
from ..processes.running import Running
from ..waiting import wait_until
from .ledger import Ledger
from .load import COUNTER, RAW
from .scale import MINUTES, scaled
from .vitals import Vitals, fifths
from .weather import Weather

SECONDS = scaled(6.0, 60 * MINUTES)
PATIENCE = 120  # seconds for what is left over
LOOK = 1.0  # seconds between two looks at the vitals
LEASE = 3  # seconds
MISTAKE = "met an error"  # what a thread of a worker says of an error that is no task's
LONGEST_WAL = 32  # MiB
GROWTH = 5  # MiB of a worker's memory, from the second fifth of the time to the last
OPTIONS = {
    "visibility_timeout": LEASE,
    "max_attempts": 0,
    "result_ttl": 20,
    "dead_letter_ttl": 20,
    "queue_options": {RAW: {"handler": "tests.project.storms.handle", "backoff": 0.1}},
}


class Published(NamedTuple):
    """A job as its publisher saw it; ``due`` in microseconds."""

    kind: str
    job: str
    due: int


def published(publisher: Running) -> list[Published]:
    lines = (line.split() for line in publisher.log.splitlines())
    return [Published(kind, job, int(due)) for kind, job, due in lines]


def check_counts(jobs: list[Published], ledger: Ledger) -> None:
    """Each job has ended once, and as it should; none was begun before its time."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for job in jobs:
        kinds["failing" if job.kind == "failing" else "others"].append(job.job)
    assert ledger.acknowledged() == dict.fromkeys(kinds["others"], 1)
    assert ledger.buried() == dict.fromkeys(kinds["failing"], 1)
    claims = ledger.claims()
    assert [job for job in jobs if claims[job.job][0].at < job.due] == []
    assert max(claim.claims for claim in claims[jobs[0].job]) == len(claims[jobs[0].job])


def check_vitals(vitals: Vitals) -> None:
    """The WAL stays small; in a long run the memory and the open files of the workers that last do not grow."""
    assert max(vitals.wal) < LONGEST_WAL
    for pid in vitals.memory if MINUTES else ():
        _, early, *_, late = fifths(vitals.memory[pid])
        assert late - early < GROWTH
        assert max(vitals.files[pid][-10:]) <= max(vitals.files[pid][: len(vitals.files[pid]) // 2]) + 2


def test_a_soak(database: Database, start: Start, start_worker: Start, tmp_path: Path) -> None:
    """Under mixed load and all kinds of faults every job ends once, memory stays flat, and the WAL bounded."""
    database.options |= OPTIONS
    database.write("INSERT INTO project_effect (name, value) VALUES (?, 0)", COUNTER)
    ledger, folder = Ledger(database), tmp_path / "executed"
    folder.mkdir()
    weather = Weather(database, start_worker)
    for worker in weather.lasting:
        worker.wait_ready()
    vitals = Vitals(database.path, [worker.pid for worker in weather.lasting])
    publisher = start("-m", "tests.faults.load", str(SECONDS), str(folder))
    look_at = time.monotonic()
    while not publisher.ended():
        weather.change()
        if time.monotonic() >= look_at:
            vitals.look()
            look_at = time.monotonic() + LOOK
        time.sleep(0.02)
    weather.clear_up()
    assert publisher.wait() == 0, publisher.log
    wait_until(lambda: not database.unfinished(), PATIENCE)
    weather.calm()

    jobs = published(publisher)
    print(
        f"{dict(Counter(job.kind for job in jobs))} through {dict(weather.faults)}; at most {max(vitals.wal):.1f} MiB"
    )
    for pid, samples in vitals.memory.items():
        print(f"worker {pid}: {fifths(samples)} MiB, {vitals.files[pid][0]} to {vitals.files[pid][-1]} files")
    check_counts(jobs, ledger)
    [counter] = database.rows("SELECT value FROM project_effect")
    assert counter["value"] == sum(job.kind == "transactional" for job in jobs)
    check_vitals(vitals)
    assert {worker.process.returncode for worker in weather.ended} <= {0, -9, -15}
    assert [worker.log for worker in weather.ended if MISTAKE in worker.log] == []
