"""What happens to the workers of a mix: a plan that a seed decides, its execution, and what has happened by it."""

import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from django_vtqueue import control

from ...conftest import ALIAS
from ...processes.database import Database
from ...processes.running import MANAGE, READY, Running, Start, children
from ...waiting import wait_until
from .. import words
from ..wall_clock import WallClock
from ..words import SECOND
from .kinds import ASIDE, LONG_LEASE, SHORT_LEASE
from .neighbours import SLOW_LOG, STARVED

T = TypeVar("T")
THREADS = ("--threads", "4")
PROCESSES = ("--processes", "2", "--threads", "2")
LASTING = (THREADS, (*PROCESSES, "--max-jobs-per-process", "500"))
OTHERS = (("--threads", "3"), ("--processes", "2", "--threads", "1"))
LOUD = ("--threads", "2")  # of the workers with a log that is slow, or full, and of the one that lacks memory
CONSUMERS = 2
INSTANCES = 3  # of the lease "mix"
MEMBERS = 3  # of the cycle "mix", now with one slot more and now with one less
LOOK = 0.02  # seconds between two looks of an instance at its lease, or its turn
UNDISTURBED = 2.5 * SHORT_LEASE  # seconds in which it shows whether a clock that stands still makes two leaders
STEPS = (1, 300, 86_400)  # seconds by which the wall clock of the instances is stepped
LEAVING = 40.0  # seconds for workers to leave when nothing is left to do

KILL, KILL_CHILD, TERM, TERM_TWICE = "kill", "kill of a child", "SIGTERM", "SIGTERM twice"
STOP, STANDSTILL, LEASE_LOCK, LOCK, PAUSE = "stop", "standstill", "lock until a lease ends", "lock", "pause"
VISIT, DRAIN, CUT = "Queue.run for a moment", "vtworker --drain", "sessions are ended"
FROZEN, STEPPED = "the wall clock of the instances stands still", "it is stepped"
DISTURBING = {KILL, STOP, STANDSTILL, LEASE_LOCK, LOCK}  # what ends leases, or has nobody take one
KILLS = {KILL: 1, KILL_CHILD: 2}
EVERYTHING = {
    KILL: 2,
    KILL_CHILD: 2,
    TERM: 3,
    TERM_TWICE: 1,
    STOP: 1,
    STANDSTILL: 2,
    LEASE_LOCK: 5,
    LOCK: 2,
    PAUSE: 1,
    VISIT: 2,
    DRAIN: 1,
}
ON_A_SERVER = {**EVERYTHING, CUT: 4}
ON_A_FILE = {**EVERYTHING, FROZEN: 2, STEPPED: 1}
HOLDERS = "SELECT DISTINCT worker_id FROM vtqueue_job WHERE state = 'RUNNING' AND worker_id <> ''"
# Some of all sessions, whatever they do; those of the test itself and of its publisher have names.
END_SOME = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = '' AND random() < {share}"""


class Step(NamedTuple):
    """A fault that is planned. ``at``: seconds from the begin; ``choice`` and ``size``, 0 to 1: whom, and how much."""

    at: float
    fault: str
    choice: float
    size: float


@dataclass
class Fault:
    """A fault that happened to the workers (or other holders) with these ids; instants in microseconds."""

    name: str
    pids: frozenset[int]
    begin: int
    end: int


def plan(seed: int, seconds: float, chances: dict[str, int], between: tuple[float, float]) -> list[Step]:
    """Return the same faults for the same seed; ``between``: the seconds between two of them.

    The wall clock of the instances stands still early, if it is to: for that a run of seconds has to be long enough.
    """
    chance, at = random.Random(seed), 0.0
    steps = [Step(2.0, FROZEN, chance.random(), chance.uniform(0.5, 1))] if FROZEN in chances else []
    while (at := at + chance.uniform(*between)) < seconds:
        [fault] = chance.choices(list(chances), list(chances.values()))
        steps.append(Step(at, fault, chance.random(), chance.random()))
    return sorted(steps)


class Faults:
    """Workers and consumers that come and go by a plan; the ``lasting`` workers lose their children only.

    The plan begins when ``begin`` is called. ``happened``: the faults, as they came about. ``wall_clock``: that of the
    instances. ``loud``: whether there are workers whose log is slow, or full, or that lack memory.
    """

    def __init__(
        self,
        database: Database,
        start: Start,
        start_worker: Start,
        steps: list[Step],
        *,
        wall_clock: WallClock,
        loud: bool,
    ) -> None:
        self._database, self._start, self._start_worker = database, start, start_worker
        self._steps, self._wall_clock = steps, wall_clock
        self._began = 0.0
        self._visitors: list[tuple[float, Running]] = []  # which process leaves when (monotonic)
        self._stopped: list[tuple[float, list[int], Fault]] = []  # which processes go on when
        self._paused: tuple[float, Fault] | None = None
        self._locks: list[threading.Thread] = []
        self._frozen: tuple[float, Fault] | None = None
        self._undisturbed = 0.0  # until when (monotonic)
        self.told: set[int] = set()  # which were told to stop before the end
        self.starved: set[int] = set()  # which lack memory now and then
        self.happened: list[Fault] = []
        self.ended: list[Running] = []
        self.stayed: list[Running] = []  # which did not leave when told to
        self.lasting = [self._with_slow_log(LASTING[0]) if loud else self._worker(LASTING[0]), self._worker(LASTING[1])]
        self._start_others = [partial(self._worker, arguments) for arguments in OTHERS]
        if loud:
            self._start_others += [self._with_slow_log, self._with_full_log, self._starved]
        self.others = [start_other() for start_other in self._start_others]
        self.consumers = [self._consumer() for _ in range(CONSUMERS)]
        self.told_by: list[Path] = []  # the files of all instances
        self.turns_in: list[Path] = []  # the files of all members
        self.instances = [self._instance() for _ in range(INSTANCES)] + [self._member() for _ in range(MEMBERS)]

    def _worker(self, arguments: tuple[str, ...]) -> Running:
        return self._start_worker(*arguments, ready=False)

    def _with_slow_log(self, arguments: tuple[str, ...] = LOUD) -> Running:
        return self._start_worker(*arguments, ready=False, VTQUEUE_TEST_LOGGING=json.dumps(SLOW_LOG))

    def _with_full_log(self) -> Running:
        return self._start("-m", "tests.faults.mix.neighbours", MANAGE, "vtworker", "--no-reload", *LOUD)

    def _starved(self) -> Running:
        worker = self._start_worker(*LOUD, ready=False, **{STARVED: "1"})
        self.starved.add(worker.pid)
        return worker

    def _consumer(self, *names: str) -> Running:
        return self._start("-m", "tests.faults.mix.consumer", *names)

    def _instance(self) -> Running:
        self.told_by.append(self._database.path.with_name(f"instance{len(self.told_by)}"))
        arguments = ("mix", str(SHORT_LEASE), str(self.told_by[-1]), str(LOOK))
        return self._start("-m", "tests.processes.instance", *arguments, **self._wall_clock.variables)

    def _member(self) -> Running:
        self.turns_in.append(self._database.path.with_name(f"member{len(self.turns_in)}"))
        slots = MEMBERS - len(self.turns_in) // MEMBERS % 2
        arguments = (self.turns_in[-1], "mix", slots, 0.6, 0.01, 0, LOOK)
        return self._start("-m", "tests.processes.slot_instance", *map(str, arguments))

    def begin(self) -> None:
        """Begin the plan when all are there, however long that takes on a busy machine: faults have to meet them."""
        for worker in self.lasting:
            worker.wait_ready()
        for instance in self.instances[:INSTANCES]:
            instance.wait_for("ready")
        wait_until(lambda: all(worker.ended() or READY.search(worker.log) for worker in self.others))
        self._began = time.monotonic()

    def go_on(self) -> None:
        """Do what is to be done now: end what is over, replace workers that have ended, cause the next fault."""
        now = time.monotonic()
        self._end_those(now)
        self._replace()
        if self._steps and now >= self._began + self._steps[0].at:
            self._cause(self._steps.pop(0))

    def clear_up(self) -> None:
        """No more faults: those under way end."""
        self._steps.clear()
        self._end_those(float("inf"))
        for lock in self._locks:
            lock.join()

    def calm(self) -> None:
        """Stop all workers in good order; kill those that do not leave, and the consumers, which know no order."""
        workers = self.lasting + self.others + [visitor for _, visitor in self._visitors]
        for worker in workers:
            worker.signal(signal.SIGTERM)
        deadline = time.monotonic() + LEAVING
        while time.monotonic() < deadline and not all(worker.ended() for worker in workers):
            time.sleep(0.1)
        self.stayed = [worker for worker in workers if not worker.ended()]
        for process in self.stayed + self.consumers + self.instances:
            process.kill()
        self.ended += workers

    # What is over

    def _end_those(self, now: float) -> None:
        for item in [item for item in self._stopped if item[0] <= now]:
            self._stopped.remove(item)
            for pid in item[1]:
                send(pid, signal.SIGCONT)
            item[2].end = words.now()
        for leaves, visitor in [item for item in self._visitors if item[0] <= now]:
            self._visitors.remove((leaves, visitor))
            self._kill(visitor)
            self.ended.append(visitor)
        if self._paused and self._paused[0] <= now and not self._stopped:  # one of whom may have the write lock
            self._paused[1].end = words.now()
            control.resume(ASIDE, using=ALIAS)
            self._paused = None

        if self._frozen and self._frozen[0] <= now:
            self._frozen[1].end = words.now()
            self._wall_clock.set(0)
            self._frozen = None

    def _replace(self) -> None:
        for number, worker in enumerate(self.others):
            if worker.ended():
                self.ended.append(worker)
                self.others[number] = self._start_others[number]()
        for number, consumer in enumerate(self.consumers):
            if consumer.ended():
                self.consumers[number] = self._consumer()
        for number, instance in enumerate(self.instances):
            if instance.ended():
                self.instances[number] = self._instance() if number < INSTANCES else self._member()

    # What happens

    def _cause(self, step: Step) -> None:
        if self._stopped and step.fault != LOCK:
            return  # a process that stands still is neither killed meanwhile nor stopped twice
        if step.fault in DISTURBING and time.monotonic() < self._undisturbed:
            return
        choose = {
            KILL: self._kill_one,
            KILL_CHILD: self._kill_child,
            TERM: self._term,
            TERM_TWICE: self._term_twice,
            STOP: self._stop_one,
            STANDSTILL: self._stop_all,
            LEASE_LOCK: self._lock_until_a_lease_ends,
            LOCK: self._lock,
            PAUSE: self._pause,
            VISIT: self._visit,
            DRAIN: self._drain,
            CUT: self._end_sessions,
            FROZEN: self._freeze_clock,
            STEPPED: self._step_clock,
        }
        choose[step.fault](step)

    def _kill_one(self, step: Step) -> None:
        processes, holders = ready(self.others) + self.consumers + self.instances, self._holders()
        busy = [process for process in processes if family(process) & holders]
        if chosen := pick(busy or processes, step.choice):
            self._kill(chosen)

    def _holders(self) -> set[int]:
        """Return the ids of the processes that hold jobs."""
        held = self._database.rows(HOLDERS)
        return {int(row["worker_id"].split(":")[1]) for row in held}

    def _kill(self, process: Running) -> None:
        """Kill a process, and write it down before its next job can begin elsewhere."""
        fault = self._note(KILL, family(process))
        process.kill()
        fault.end = words.now()

    def _kill_child(self, step: Step) -> None:
        candidates = [child for worker in ready(self.lasting + self.others) for child in children(worker.pid)]
        if chosen := pick(sorted({*candidates} & self._holders()) or candidates, step.choice):
            self._note(KILL_CHILD, {chosen})
            send(chosen, signal.SIGKILL)

    def _term(self, step: Step) -> None:
        """Stop a worker in good order; one that was told before would take it for "at once"."""
        if chosen := pick([worker for worker in ready(self.others) if worker.pid not in self.told], step.choice):
            self.told.add(chosen.pid)
            self._note(TERM, family(chosen))
            chosen.signal(signal.SIGTERM)

    def _term_twice(self, step: Step) -> None:
        if chosen := pick(ready(self.others), step.choice):
            self.told.add(chosen.pid)
            self._note(TERM_TWICE, family(chosen))
            chosen.signal(signal.SIGTERM)
            time.sleep(0.05)
            chosen.signal(signal.SIGTERM)

    def _stop_one(self, step: Step) -> None:
        if chosen := pick(ready(self.others) + self.consumers + self.instances, step.choice):
            pid = pick(sorted(family(chosen)), step.choice) or chosen.pid
            self._freeze(STOP, [pid], step.size * 1.5 * SHORT_LEASE)

    def _stop_all(self, step: Step) -> None:
        """Stop all holders and claimers of jobs for longer than the short leases, and not for half of the long ones.

        The parents first: none of them starts a child that would not stand still.
        """
        everybody = self.lasting + self.others + self.consumers + self.instances
        everybody = everybody + [visitor for _, visitor in self._visitors]
        for process in everybody:
            process.signal(signal.SIGSTOP)
        pids = [pid for process in everybody if not process.ended() for pid in sorted(family(process))]
        random.Random(step.choice).shuffle(pids)  # in which they go on
        self._freeze(STANDSTILL, pids, SHORT_LEASE * 1.1 + step.size * (LONG_LEASE / 2 - SHORT_LEASE * 1.2))

    def _freeze(self, name: str, pids: list[int], seconds: float) -> None:
        fault = self._note(name, set(pids))
        fault.end = 1 << 62
        for pid in pids:
            send(pid, signal.SIGSTOP)
        self._stopped.append((time.monotonic() + seconds, pids, fault))

    def _freeze_clock(self, step: Step) -> None:
        """Have the instances' wall clock stand still for longer than their leases, and jump when it goes on."""
        if self._frozen:
            return
        self._wall_clock.stand_still()
        self._undisturbed = time.monotonic() + UNDISTURBED
        self._frozen = (time.monotonic() + (2 + 2 * step.size) * SHORT_LEASE, self._note(FROZEN, set()))
        self._frozen[1].end = 1 << 62
        if leader := pick(self.instances[:INSTANCES], step.choice):
            self._kill(leader)

    def _step_clock(self, step: Step) -> None:
        """Step the instances' wall clock by a second, minutes or a day, ahead or back; later that is taken back."""
        if not self._frozen:
            self._wall_clock.set((-1 if step.size < 0.5 else 1) * STEPS[int(step.choice * len(STEPS))])
            self._frozen = (time.monotonic() + 2 * SHORT_LEASE, self._note(STEPPED, set()))

    def _pause(self, step: Step) -> None:
        if self._paused:
            return
        control.pause(ASIDE, using=ALIAS)
        self._paused = (time.monotonic() + 1 + 2 * step.size, self._note(PAUSE, set()))
        self._paused[1].end = 1 << 62

    def _visit(self, step: Step) -> None:
        self._note(VISIT, set())
        self._visitors.append((time.monotonic() + 2 + 3 * step.size, self._consumer(ASIDE)))

    def _drain(self, step: Step) -> None:
        self._note(DRAIN, set())
        self._visitors.append(
            (time.monotonic() + 20, self._worker(("--drain", *pick([THREADS, PROCESSES], step.choice))))
        )

    def _end_sessions(self, step: Step) -> None:
        self._note(CUT, set())
        self._database.rows(END_SOME.format(share=step.size))

    def _lock(self, step: Step) -> None:
        self._in_a_thread(self._hold, step.size * SHORT_LEASE)

    def _lock_until_a_lease_ends(self, step: Step) -> None:
        self._in_a_thread(self._hold_until_a_lease_ends, step.size * 0.8 - 0.2)

    def _in_a_thread(self, hold: object, *arguments: float) -> None:
        self._locks = [lock for lock in self._locks if lock.is_alive()]
        if not self._locks:
            self._locks.append(threading.Thread(target=hold, args=arguments))  # type: ignore[arg-type]
            self._locks[-1].start()

    def _hold(self, seconds: float) -> None:
        """Hold the write lock for a while, as a backup or a foreign program would."""
        with self._locked(LOCK):
            time.sleep(seconds)

    def _hold_until_a_lease_ends(self, after: float) -> None:
        """Hold the write lock from just after a renewal of a short lease until ``after`` seconds after its end."""
        if (job := renewed(self._database)) is None:
            return
        with self._locked(LEASE_LOCK):
            if lease := short_leases(self._database).get(job):
                left = min(lease / SECOND - time.time(), SHORT_LEASE)  # one that was extended ends much later
                time.sleep(max(left + after, 0))

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        asked = words.now()  # from then on others stand behind it in the line, on a server
        with self._database.locked():
            fault = self._note(name, set())
            fault.begin = asked
            yield
            fault.end = words.now()

    def _note(self, name: str, pids: set[int]) -> Fault:
        now = words.now()
        self.happened.append(Fault(name, frozenset(pids), now, now))
        return self.happened[-1]


def renewed(database: Database) -> str | None:
    """Return a job whose short lease was renewed just now; None if none is within three leases."""
    deadline, known = time.monotonic() + 3 * SHORT_LEASE, short_leases(database)
    while time.monotonic() < deadline:
        found = short_leases(database)
        for job, end in found.items():
            if job in known and end > known[job]:
                return job
        known = found
        time.sleep(0.005)
    return None


def short_leases(database: Database) -> dict[str, int]:
    """Return when the short leases end that are under way."""
    query = "SELECT id, visible_at FROM vtqueue_job WHERE state = 'RUNNING' AND worker_id <> '' AND lease_us = ?"
    return {row["id"]: row["visible_at"] for row in database.rows(query, round(SHORT_LEASE * SECOND))}


def ready(workers: list[Running]) -> list[Running]:
    return [worker for worker in workers if not worker.ended() and READY.search(worker.log)]


def family(process: Running) -> set[int]:
    """Return the ids of a process and of its children, each of which may hold jobs."""
    return {process.pid, *children(process.pid)}


def pick(among: list[T], choice: float) -> T | None:
    """Return one of several, which a number from 0 to 1 decides; None if there is none."""
    return among[int(choice * len(among))] if among else None


def send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
