"""Instances that share a cycle of slots, as processes: none is ever in its turn while another one is."""

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from django.db import connections

from django_vtqueue import Queue
from django_vtqueue.core.clock import since_boot

from ..conftest import ALIAS
from ..faults.wall_clock import WallClock
from ..waiting import wait_until
from .database import Database
from .running import Running, Start
from .slot_instance import Look, Looks, overlaps

GUARD = 0.01
AT_ONCE = 50.0  # seconds: an instance that waits looks ten times a second; a busy machine is slow
LEASE = 6.0  # seconds: of these short cycles; on a busy machine one of the usual three may end
LONG = {"VTQUEUE_TEST_LEASE": "100"}  # of an instance whose lease does not end
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler (cc) is needed to step a clock")

Join = Callable[..., Running]


class Instances:
    """The instances of a test, and what they have written."""

    def __init__(self, start: Start, folder: Path) -> None:
        self._start, self._folder, self.files = start, folder, list[Path]()
        self._all = list[Running]()
        self._looks = Looks()

    def join(self, slots: int, period: float, guard: float = GUARD, work: float = 0, **variables: str) -> Running:
        """Start an instance; whether it has a slot is not waited for."""
        self.files.append(self._folder / f"instance-{len(self.files)}")
        arguments = map(str, (self.files[-1], "x", slots, period, guard, work))
        variables = {"VTQUEUE_TEST_LEASE": str(LEASE), **variables}
        self._all.append(self._start("-m", "tests.processes.slot_instance", *arguments, **variables))
        return self._all[-1]

    def joined(self, slots: int, period: float, guard: float = GUARD, **variables: str) -> Running:
        """Start an instance, and wait until it has a slot."""
        instance = self.join(slots, period, guard, **variables)
        instance.wait_for("joined")
        return instance

    def looks(self) -> list[Look]:
        return self._looks.of(*self.files)

    def turns(self, since: float = 0.0) -> dict[int, set[float]]:
        """Return the turns that each process has had, by its pid: of those that it looked at since a moment."""
        found = dict[int, set[float]]()
        for look in self.looks():
            if look.began >= since:
                found.setdefault(look.pid, set()).add(look.starts_at)
        return found

    def wait_for_turns(self, *instances: Running, number: int = 2) -> None:
        """Wait until each of these has had so many turns from now on."""
        now = since_boot()

        def had() -> bool:
            turns = self.turns(now)
            return all(len(turns.get(each.pid, ())) >= number for each in instances)

        wait_until(had, every=0.1)

    def check(self) -> None:
        """Fail if two instances were in their turns at one moment."""
        gone = [instance.pid for instance in self._all if instance.ended()]
        assert not overlaps(self.looks(), gone)


@pytest.fixture
def instances(start: Start, tmp_path: Path, load: None) -> Instances:
    return Instances(start, tmp_path)


@pytest.fixture
def load(database: Database) -> Iterator[None]:
    """Have another one publish and claim in the same database, one job after the other."""
    done, queue = Event(), Queue("load", using=ALIAS)

    def publish() -> None:
        try:
            while not done.wait(0.01):
                queue.publish("x" * 100)
                if job := queue.claim():
                    job.ack()
        finally:
            connections.close_all()

    thread = Thread(target=publish)
    thread.start()
    yield
    done.set()
    thread.join()


@pytest.fixture
def wall(tmp_path: Path) -> WallClock:
    return WallClock(tmp_path)


def test_join_leave_and_kill(instances: Instances) -> None:
    """Three instances have a turn in each cycle; one that waits has the slot of one that leaves or is killed at once.

    The number of the slot stays, and its token grows.
    """
    three = [instances.joined(3, 0.6, **LONG) for _ in range(3)]
    instances.wait_for_turns(*three)
    waiting = [instances.join(3, 0.6, **LONG) for _ in range(2)]
    for instance in waiting:
        instance.wait_for("waits")
    for end in (signal.SIGTERM, signal.SIGKILL):
        instance = three.pop(0)
        instance.signal(end)
        instance.wait()
        wait_until(lambda: sum("joined" in each.log for each in waiting) == 3 - len(three), AT_ONCE)
    instances.wait_for_turns(*three, *waiting)
    assert sorted(each.lines("joined")[0] for each in waiting) == ["joined 0 2", "joined 1 2"]
    instances.check()


def test_an_instance_that_is_stopped(instances: Instances, database: Database) -> None:
    """A process stopped for longer than its lease loses its slot to one that waits, and has no turn afterwards.

    It says so by the end of its turns, and joins anew.
    """
    two = [instances.joined(2, 0.4), instances.joined(2, 0.4, **LONG)]
    waiting = instances.join(2, 0.4, **LONG)
    instances.wait_for_turns(*two)
    database.stop(two[0])
    waiting.wait_for("joined")
    instances.wait_for_turns(waiting, two[1])
    two[0].go_on()
    two[0].wait_for("ended")
    instances.wait_for_turns(waiting, two[1])
    assert len(two[0].lines("joined")) == 1
    instances.check()


def test_a_moment_of_standstill(instances: Instances) -> None:
    """Processes that are stopped for less than their leases, again and again, never overlap, and keep their slots."""
    three = [instances.joined(3, 0.3, **LONG) for _ in range(3)]
    for number in range(6):
        instances.wait_for_turns(*three, number=1)
        stopped = three[number % 3 :][:2]
        for instance in stopped:
            instance.signal(signal.SIGSTOP)
        time.sleep(0.07 * (number % 5))
        for instance in stopped:
            instance.go_on()
    assert [instance.lines("joined") for instance in three] == [[f"joined {number} 1"] for number in range(3)]
    instances.check()


def test_another_number_of_slots(instances: Instances, database: Database) -> None:
    """An instance that joins with another cycle changes it for all that run, and at no moment do two have a turn.

    A holder that is killed or stopped meanwhile is waited for, and one whose turn takes too long.
    """
    old = [instances.joined(3, 0.6) for _ in range(2)] + [instances.joined(3, 0.6, work=1.0)]
    instances.wait_for_turns(*old, number=1)
    more = [instances.join(5, 1.0) for _ in range(2)]
    instances.wait_for_turns(*old, *more)
    wait_until(lambda: numbers(instances) == set(range(5)), every=0.1)

    dead, stopped, *rest = [*more, *old]
    dead.kill()
    database.stop(stopped)
    fewer = [instances.join(2, 0.8)]  # it has a slot, or the others have both
    wait_until(lambda: numbers(instances) == {0, 1}, every=0.1)
    stopped.go_on()
    wait_until(lambda: numbers(instances) == {0, 1}, every=0.1)

    for instance in [stopped, *rest, *fewer]:
        instance.kill()
    assert instances.joined(4, 0.4).lines("joined")[0].startswith("joined 0")
    instances.check()


def numbers(instances: Instances) -> set[int]:
    """Return the slots that had turns within the last two seconds."""
    return {look.number for look in instances.looks() if look.began > since_boot() - 2}


def test_threads_that_share_a_slot(instances: Instances) -> None:
    """When the cycle is changed, none of them gives the slot up as long as another one has time left in its turn."""
    lease = {"VTQUEUE_TEST_LEASE": "8", "VTQUEUE_TEST_LONGEST": "8"}  # so that it is renewed amid a turn
    one = instances.joined(1, 12.0, **lease, VTQUEUE_TEST_THREADS="2")
    instances.wait_for_turns(one, number=1)
    two = instances.joined(2, 0.4, **LONG)
    instances.wait_for_turns(two, number=1)
    instances.check()


def test_instances_that_want_different_cycles(instances: Instances) -> None:
    """Whoever joins last decides the cycle, and no two have a turn at one moment, however often that is."""
    running = [instances.join(2 + number % 3, 0.3 + 0.2 * (number % 2)) for number in range(6)]
    wait_until(lambda: sum("joined" in instance.log for instance in running) >= 2)
    for number in range(6):
        time.sleep(0.3)
        running[number].kill()
        running.append(instances.join(2 + number % 3, 0.3 + 0.2 * (number % 2)))
    wait_until(lambda: len(instances.turns(since_boot() - 2)) >= 2, every=0.1)
    instances.check()


@needs_compiler
@pytest.mark.parametrize(("guard", "never"), [(0.15, True), (0.05, False)])
def test_clocks_that_differ(instances: Instances, wall: WallClock, guard: float, never: bool) -> None:
    """Turns do not overlap while clocks differ by twice the guard at the most; by more, they do."""
    two = [instances.joined(2, 1.2, guard, **LONG), instances.joined(2, 1.2, guard, **LONG, **wall.variables)]
    for offset in (0.3, -0.3):
        wall.set(offset)
        instances.wait_for_turns(*two)
    if never:
        instances.check()
    else:
        wait_until(lambda: overlaps(instances.looks()), every=0.1)


@needs_compiler
def test_steps_of_the_clock(instances: Instances, wall: WallClock) -> None:
    """On one machine no two are in their turns at one moment, however its clock is set; turns go on at once."""
    three = [instances.joined(3, 0.9, **LONG, **wall.variables) for _ in range(3)]
    for offset in (0, 0.5, 1.2, 0.4, 3600, 3600.5, 0, -3600, -3600.7, 0):
        wall.set(offset)
        if offset % 3600 == 0:
            instances.wait_for_turns(*three, number=1)
        else:
            time.sleep(0.2)  # in the middle of a cycle
    assert not overlaps(instances.looks(), promised=False)
    assert [instance.lines("joined") for instance in three] == [[f"joined {number} 1"] for number in range(3)]
