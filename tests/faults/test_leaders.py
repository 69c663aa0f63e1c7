"""Four instances, one leader: it is killed, stopped, its wall clock is stepped, and stands; never do two believe so."""

import random
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from itertools import cycle, islice
from pathlib import Path

import pytest

from django_vtqueue import Lease
from django_vtqueue.core import clock
from django_vtqueue.queue.doorbell import RUNG

from ..conftest import ALIAS
from ..processes.database import Database
from ..processes.instance import Term, overlaps, terms
from ..processes.running import Running, Start
from ..waiting import wait_until
from .exchange import back_up, move_over, restore_in_place
from .scale import MINUTES, scaled
from .wall_clock import WallClock

TTL = scaled(10.0, 2.0)
ROUNDS = scaled(5, 50)  # one of each fault, and the death of one whose clock stands still
# Seconds within which another instance is the leader; in the suite, where the machine has other work, less than a ttl.
WHILE_DEAD, WHILE_STOPPED = scaled(9.0, 1.5), TTL + scaled(9.0, 0.5)
SEED = 7


class Instances:
    """Four processes of one lease, each with a wall clock of its own."""

    def __init__(self, database: Database, start: Start, folder: Path) -> None:
        self.database, self.start, self.folder = database, start, folder
        self.clocks: dict[int, WallClock] = {}
        self.files: dict[int, Path] = {}
        self.running: list[Running] = []
        for _ in range(4):
            self.add()

    def add(self) -> None:
        number = len(self.files)
        folder = self.folder / f"instance{number}"
        folder.mkdir()
        wall_clock, file = WallClock(folder), folder / "held"
        process = self.start("-m", "tests.processes.instance", "shop", str(TTL), str(file), **wall_clock.variables)
        process.wait_for("ready")
        self.clocks[process.pid], self.files[process.pid] = wall_clock, file
        self.running.append(process)

    def terms(self) -> list[Term]:
        return [term for file in self.files.values() for term in terms(file)]

    def leader(self, after: int = 0) -> tuple[Term, Running]:
        """Return the leader with the greatest token, once there is one beyond ``after``."""
        term = wait_until(lambda: max((term for term in self.terms() if term.token > after), default=None))
        return term, next(process for process in self.running if self.files[process.pid] == term.file)


def kill(instances: Instances, term: Term, leader: Running) -> float:
    """Kill the leader; return after how long there is another one."""
    killed = clock.since_boot()
    leader.kill()
    instances.running.remove(leader)
    took = instances.leader(term.token)[0].begin - killed
    instances.add()
    assert took < WHILE_DEAD
    return took


def stop(instances: Instances, term: Term, leader: Running) -> float:
    """Stop the leader for longer than its ttl, and let it go on; return after how long there is another one."""
    instances.database.stop(leader)
    stopped = clock.since_boot()
    took = instances.leader(term.token)[0].begin - stopped
    leader.go_on()
    assert took < WHILE_STOPPED
    return took


def step(instances: Instances, term: Term, leader: Running) -> float:
    """Step the wall clock of the leader: it stays the leader, and its death is noticed in time whatever its stamps."""
    instances.clocks[leader.pid].set(random.choice([-1, 1]) * random.choice([1, 100, 86_400]))
    stays(instances, term)
    return 0.0


def stand(instances: Instances, term: Term, leader: Running) -> float:
    """Have the wall clock of the leader stand still: others recognise its renewals all the same."""
    instances.clocks[leader.pid].stand_still()
    stays(instances, term)
    return 0.0


def stays(instances: Instances, term: Term) -> None:
    """Wait for longer than a ttl; fail if another instance has become the leader."""
    until = clock.since_boot() + 1.2 * TTL
    wait_until(lambda: max(terms(term.file)).end > until)
    assert max(instances.terms()).token == term.token


@pytest.mark.timeout(60 * (MINUTES or 2))
def test_one_leader_at_a_time(database: Database, start: Start, tmp_path: Path) -> None:
    """Never two believe to be the leader at one instant; tokens grow; another one is there within the promised time."""
    random.seed(SEED)
    instances, took = Instances(database, start, tmp_path), defaultdict[str, list[float]](list)
    for fault in islice(cycle((kill, stop, step, stand)), ROUNDS):
        term, leader = instances.leader()
        took[fault.__name__].append(fault(instances, term, leader))
    for name, times in took.items():
        print(
            f"{name}: {len(times)} times; another leader after {', '.join(f'{each:.2f}' for each in sorted(times))} s"
        )
    told = instances.terms()
    assert overlaps(told) == []
    ordered = sorted(told, key=lambda term: term.begin)
    tokens = [term.token for term in ordered]
    assert tokens == sorted(set(tokens)), "a token came twice, or went back"
    assert len(ordered) > ROUNDS / 2


@pytest.mark.sqlite("a server is not restored under its sessions; commits that a standby lacks: tests/patterns")
@pytest.mark.parametrize("restore", [restore_in_place, move_over])
def test_a_restored_database(
    database: Database, start: Start, tmp_path: Path, restore: Callable[[Path, Path], None]
) -> None:
    """Instances that wait while a backup without the leader is restored take over when it believes no more."""
    with Lease("shop", TTL, ALIAS):
        pass
    copy = back_up(database.path, tmp_path / "copy")
    instances = Instances(database, start, tmp_path)
    term, _ = instances.leader()
    bells = Path(database.options["doorbells"], "leases", RUNG)
    wait_until(lambda: sum(not bell.is_symlink() for bell in bells.glob("*/*")) == 3)  # the others wait
    waiting = clock.since_boot()
    wait_until(lambda: max(terms(term.file)).end > waiting + 1)  # they have seen the leader
    restore(copy, database.path)
    restored = clock.since_boot()
    wait_until(lambda: max(each.end for each in instances.terms()) > restored + 2 * TTL)
    assert overlaps(instances.terms()) == []


@pytest.mark.sqlite("a server has no file that is exchanged")
def test_a_later_backup_behind_an_old_one(database: Database, start: Start, tmp_path: Path) -> None:
    """An instance that finds its own lease of another time in the file waits until the present leader believes no more.

    The number of that claim is greater than the present one, so it does not tell of a restore.
    """
    with Lease("shop", TTL, ALIAS):
        pass
    old = back_up(database.path, tmp_path / "old")
    instances = Instances(database, start, tmp_path)
    first, leader = instances.leader()
    later = back_up(database.path, tmp_path / "later")
    with closing(sqlite3.connect(later)) as connection, connection:
        connection.execute("UPDATE vtqueue_job SET claims = claims + 5 WHERE queue_name = 'lease:shop'")
    leader.stop()
    move_over(old, database.path)
    wait_until(lambda: any(each.file != first.file for each in instances.terms()))
    leader.go_on()
    waiting = clock.since_boot()
    wait_until(lambda: max(each.end for each in instances.terms()) > waiting + 4)  # it has seen the new leader
    move_over(later, database.path)
    restored = clock.since_boot()
    wait_until(lambda: max(each.end for each in instances.terms()) > restored + TTL + 4)
    assert overlaps(instances.terms()) == []


@pytest.mark.sqlite("a server has no file that is exchanged")
def test_a_file_that_is_exchanged_again(database: Database, start: Start, tmp_path: Path) -> None:
    """However often it is, the leader is one in the file that is there: its row says so."""
    copies = [back_up(database.path, tmp_path / f"copy{number}") for number in range(2)]
    start("-m", "tests.processes.instance", "shop", str(TTL), str(tmp_path / "held"))
    held = "SELECT 1 FROM vtqueue_job WHERE queue_name = 'lease:shop' AND state = 'RUNNING'"
    wait_until(lambda: database.rows(held))
    for copy in copies:
        move_over(copy, database.path)
        wait_until(lambda: database.rows(held))
