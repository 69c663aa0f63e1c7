"""Random mixes of backups and restores of a SQLite file, under workers, leaders and time slots."""

import random
import sqlite3
import time
from collections import Counter, defaultdict
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from django.db import connections

from django_vtqueue import Lease, SlotCycle
from django_vtqueue.core import clock
from tests.project import tasks

from ...conftest import ALIAS
from ...processes.database import Database
from ...processes.instance import Term, overlaps
from ...processes.running import Running, Start
from ...processes.slot_instance import Looks
from ...processes.slot_instance import overlaps as overlaps_of_turns
from ...waiting import PATIENCE, wait_until
from ..exchange import back_up, move_over, restore_in_place
from ..scale import MINUTES, chosen_seed, scaled
from . import journal
from .journal import Execution
from .test_mix import MISTAKES

SECONDS = scaled(20.0, 60 * MINUTES)
TTL, LEASE = 2.0, 3.0  # seconds of a leader, and of a job
LOOK, GAP = 0.01, 0.25  # seconds between two looks of a leader; and after which it may have been none in between
SEEN = 2.0  # seconds after which all that wait have seen a leader
BOTH = 1.5  # seconds between two restores: those that wait for a lease have seen the leader before both
NOTICED = 3.0  # seconds after which all have noticed a restore: a leader in a file that is gone is seen by none
WORKERS = (("--threads", "9"), ("--processes", "2", "--threads", "1"))  # the first has room for what it runs already
LEADERS, MEMBERS, SLOTS = 4, 3, 2
LONG, LONGEST, DUE_IN = 6, 4.0, 0.4  # jobs at once, for how many seconds, and in how many they may begin
MEDIUM = "tests.faults.mix.tasks.medium"
FIRST = 0.7  # how likely the farther one of two restores goes back to the first backup
PERIOD, GUARD = 0.6, 0.01  # seconds
CHANCES = {"back up": 3, "in place": 4, "by a move": 3, "stop": 1, "enqueue": 2}


def spells(file: Path) -> list[Term]:
    """Return when an instance certainly was the leader; a token may come again after a restore."""
    found: list[Term] = []
    for line in file.read_text().splitlines() if file.exists() else ():
        if len(words := line.split()) == 3 and len(words[2]) > 1:
            token, before, after = int(words[0]), float(words[1]), float(words[2])
            if found and found[-1].token == token and before - found[-1].end < GAP:
                found[-1] = found[-1]._replace(end=before)
            elif after <= before + GAP:
                found.append(Term(token, after, max(after, before), file))
    return found


class Site:
    """A database file in use, its backups, and the jobs that each of them knows."""

    def __init__(self, database: Database, start: Start, start_worker: Start, folder: Path, seed: int) -> None:
        self.database, self.folder, self.chance = database, folder, random.Random(seed)
        self._start_worker = start_worker
        self.jobs: list[str] = []
        self.restored_at = 0.0  # boot clock
        self.backups: list[tuple[Path, list[str]]] = []
        self.happened: list[tuple[float, str]] = []  # when (by the boot clock)
        with Lease("mix", TTL, ALIAS), SlotCycle("mix", SLOTS, PERIOD, GUARD, ALIAS).join():
            pass
        self.back_up()  # knows of no leader, and of no instance in a slot
        self.workers = [start_worker(*arguments, ready=False) for arguments in WORKERS]
        self.ended: list[Running] = []
        self.files = [folder / f"leader{number}" for number in range(LEADERS)]
        self.leaders = [
            start("-m", "tests.processes.instance", "mix", str(TTL), str(file), str(LOOK)) for file in self.files
        ]
        self.turns = [folder / f"member{number}" for number in range(MEMBERS)]
        for file in self.turns:
            start("-m", "tests.processes.slot_instance", *map(str, (file, "mix", SLOTS, PERIOD, GUARD, 0, LOOK)))
        self.stopped: tuple[float, Running] | None = None

    def go_on(self) -> None:
        """Do one thing."""
        [verb] = self.chance.choices(list(CHANCES), list(CHANCES.values()))
        if verb == "back up":
            self.back_up()
        elif verb == "enqueue":
            self.enqueue(self.chance.randint(1, 50))
        elif verb == "stop":
            self.stop()
        elif self.leader() is not None:
            self.restore(verb)

    def rest(self, seconds: float) -> None:
        """Let time pass; a stopped leader goes on when its lease is over, a worker that has left is replaced."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.stopped and self.stopped[0] <= time.monotonic():
                self.stopped[1].go_on()
                self.stopped = None
            for number, worker in enumerate(self.workers):
                if worker.ended():
                    self.ended.append(worker)
                    self.workers[number] = self._start_worker(*WORKERS[number], ready=False)
            time.sleep(0.05)

    def enqueue(self, number: int) -> None:
        calls = [(str(self.folder / "done"), str(each)) for each in range(number)]
        self.jobs += self.database.enqueue_many(tasks.note, calls)
        for _ in range(LONG):  # by its path: to import that module is to have its schedules
            seconds = self.chance.uniform(LONGEST / 2, LONGEST)
            self.jobs.append(self.database.publish(MEDIUM, seconds, max_attempts=0, due_in=DUE_IN))
        connections[ALIAS].close()  # this process is one of those that an exchange finds without the file

    def back_up(self) -> None:
        copy = back_up(self.database.path, self.folder / f"copy{len(self.happened)}")
        self.backups.append((copy, list(self.jobs)))
        self.note("back up")

    def leader(self) -> int | None:
        """Return the number of the leader that all others have seen; None if there is none."""
        since = self.restored_at + NOTICED
        for number, file in enumerate(self.files):
            last = spells(file)[-1:]
            if last and last[0].end - max(last[0].begin, since) > SEEN and clock.since_boot() - last[0].end < 2 * GAP:
                return number
        return None

    def restore(self, verb: str) -> None:
        """Go back by a moment, to where what runs by now has waited; then farther, most likely to the first backup."""
        self.enqueue(1)
        self.back_up()
        self.rest(self.chance.uniform(2 * DUE_IN, 3 * DUE_IN))
        self.go_back(verb, len(self.backups) - 1)
        self.rest(BOTH)
        self.go_back(verb, 0 if self.chance.random() < FIRST else self.chance.randrange(len(self.backups)))

    def go_back(self, verb: str, number: int) -> None:
        """Restore a backup, and forget the later ones: behind an older one, none of these may be restored to leaders.

        See docs/guides/leader-election.md.
        """
        copy, jobs = self.backups[number]
        del self.backups[number + 1 :]
        self.note(f"{verb} begins: {copy.name}")
        if verb == "in place":
            restore_in_place(copy, self.database.path)
        else:
            move_over(back_up(copy, self.folder / "next"), self.database.path)
        self.jobs, self.restored_at = list(jobs), clock.since_boot()
        self.note(verb)

    def note(self, event: str) -> None:
        self.happened.append((clock.since_boot(), event))

    def stop(self) -> None:
        """Stop the leader for longer than its lease."""
        if not self.stopped and (number := self.leader()) is not None:
            self.leaders[number].stop()
            self.stopped = time.monotonic() + 1.3 * TTL, self.leaders[number]
            self.note("stop")


def beside_itself(executions: list[Execution]) -> list[tuple[Execution, Execution]]:
    """Return executions of a job that the worker has begun which ran it already."""
    runs: dict[tuple[str, str], list[Execution]] = defaultdict(list)
    for execution in executions:
        runs[execution.job, execution.worker].append(execution)
    return [(one, other) for each in runs.values() for one, other in pairwise(each) if other.begin < one.last]


@pytest.mark.sqlite("its file is exchanged, and written over")
@pytest.mark.timeout(60 * MINUTES + 400)
def test_restores_under_load(
    database: Database, start: Start, start_worker: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often backups are restored, one leads, one is in its turn, and each job of the last backup is done.

    No worker begins a job that it runs. The workers go on, or leave and are replaced; told to stop they leave; the file
    is sound.
    """
    seed, folder = chosen_seed(), tmp_path / "journal"
    folder.mkdir()
    monkeypatch.setenv(journal.FOLDER, str(folder))
    database.options |= {"visibility_timeout": LEASE, "max_attempts": 0, "result_ttl": None}
    database.options |= {"task_modules": ["tests.faults.mix.tasks"]}
    database.enqueue_many(tasks.note, [(str(tmp_path / "done"), "first")])
    connections[ALIAS].close()
    site = Site(database, start, start_worker, tmp_path, seed)
    wait_until(lambda: site.leader() is not None)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        site.go_on()
        site.rest(site.chance.uniform(0.2, 1.0))
    site.enqueue(10)
    wait_until(lambda: (site.rest(0.2), database.succeeded(*site.jobs))[1], 2 * PATIENCE)
    for worker in site.workers:
        worker.terminate()
    told = [spell for file in site.files for spell in spells(file)]
    looks = Looks().of(*site.turns)
    print(f"{dict(Counter(event for _, event in site.happened))}")
    print(f"{len(told)} leaders; {len({look.starts_at for look in looks})} turns")
    if wrong := overlaps(told):
        for at, what in sorted([*site.happened, *((term.begin, f"{term.file.name} {term}") for term in told)]):
            print(f"{at:.3f} {what}")
    assert wrong == []
    assert overlaps_of_turns(looks, promised=False) == []
    executions, _ = journal.read(folder)
    print(f"{len(executions)} executions of {len({execution.job for execution in executions})} jobs")
    assert beside_itself(executions) == []
    assert [worker.log for worker in site.ended + site.workers if any(each in worker.log for each in MISTAKES)] == []
    with closing(sqlite3.connect(database.path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
