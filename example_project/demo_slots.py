"""Five instances keep 200 processes running, each acting only in its time slot; some are killed all the while.

It counts what was started twice, how long each process was missing, and how often SQLite refused a lock to an instance;
with `--without-slots` the instances act whenever they like.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django

HERE = Path(__file__).resolve().parent
PATIENCE = 100  # seconds to wait for anything before something must be wrong
PAUSE = 0.25  # seconds between two kills
INSTANCE_EVERY = 12  # of so many kills one is that of an instance


def arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--without-slots", action="store_true", help="the instances act whenever they like")
    parser.add_argument("--instances", type=int, default=5)
    parser.add_argument("--children", type=int, default=200)
    parser.add_argument("--period", type=float, default=5.0, help="seconds of a cycle")
    parser.add_argument("--seconds", type=float, default=20.0, help="for which processes are killed")
    return parser.parse_args()


class Demo:
    """The instances of one run, what was killed, and what they have written down."""

    def __init__(self, options: Namespace, folder: Path) -> None:
        self.options, self.journal, self.log = options, folder / "journal", folder / "log"
        self.journal.touch()
        self.instances: list[subprocess.Popen[bytes]] = []
        self.killed: dict[int, tuple[str, float]] = {}  # the process ids of children, their names, and when
        self.instances_killed = 0

    def start_instance(self) -> None:
        options = self.options
        command = [sys.executable, str(HERE / "manage.py"), "watch", "--journal", str(self.journal)]
        command += ["--slots", str(options.instances), "--period", str(options.period)]
        command += ["--without-slots"] * options.without_slots
        with self.log.open("ab") as log:
            self.instances.append(subprocess.Popen(command, stdout=log, stderr=log))

    def wait_ready(self) -> None:
        """Wait until the last instance acts: those that join at the same moment may meet."""
        pid = self.instances[-1].pid
        self.wait_until(lambda: pid in {event["ready"] for event in self.events("ready")}, "an instance is ready")

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for line in self.journal.read_text().splitlines() if kind in (event := json.loads(line))]

    def all_run(self) -> bool:
        return all(processes.runs(pid, born) for pid, born in Sleeper.objects.values_list("pid", "born"))

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline or any(instance.poll() is not None for instance in self.instances):
                raise SystemExit(f"Gave up waiting until {what}:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.05)

    def kill_for(self, seconds: float) -> None:
        """Kill children, a few at a time, and now and then an instance, which is started anew at once."""
        chance, kills, end = random.Random(7), 0, time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(PAUSE)
            kills += 1
            if kills % INSTANCE_EVERY == 0:
                victim = self.instances.pop(0)
                victim.kill()
                victim.wait()
                self.instances_killed += 1
                self.start_instance()
            running = [(name, process) for name, found in processes.find().items() for process in found]
            for name, process in chance.sample(running, min(chance.randint(1, 8), len(running))):
                at = time.monotonic()
                if processes.end(process):
                    self.killed[process.pid] = name, at

    def stop(self) -> None:
        """End the instances, then all children, each by its id."""
        for instance in self.instances:
            instance.kill()
            instance.wait()
        while there := [process for found in processes.find().values() for process in found]:
            for process in there:
                processes.end(process)
            time.sleep(0.01)


def lives(demo: Demo) -> dict[str, list[tuple[float, float]]]:
    """Return when each process of a name was started, and when it was killed."""
    found: dict[str, list[tuple[float, float]]] = {}
    for event in demo.events("started"):
        _, end = demo.killed.get(event["pid"], ("", float("inf")))
        found.setdefault(event["started"], []).append((event["at"], end))
    return found


def started_twice(demo: Demo) -> int:
    """Return how often a process was started while another one of its name ran."""
    return sum(any(begin < at < end for begin, end in of_name) for of_name in lives(demo).values() for at, _ in of_name)


def missing_for(demo: Demo) -> list[float]:
    """Return for how long each child that was killed was missing, in seconds, unless another one of its name ran."""
    times, found = [], lives(demo)
    for name, at in demo.killed.values():
        later = [begin for begin, _ in found[name] if begin > at]
        if later and not any(begin < at < end for begin, end in found[name]):
            times.append(min(later) - at)
    return times


def run(demo: Demo) -> None:
    options = demo.options
    for _ in range(options.instances):
        demo.start_instance()
        demo.wait_ready()
    Sleeper.objects.bulk_create(Sleeper(name=f"sleeper-{number:03}") for number in range(options.children))
    demo.wait_until(demo.all_run, "all children run")
    print(f"{options.instances} instances run {options.children} processes; now some of both are killed.", flush=True)
    demo.kill_for(options.seconds)
    demo.wait_until(demo.all_run, "all children run again")


def report(demo: Demo) -> int:
    """Say what was counted; return the exit code: 1 if it is not as promised."""
    options, times = demo.options, missing_for(demo)
    limit = options.period + options.period / options.instances
    busy = Counter(event["acts"] for event in demo.events("busy"))
    twice = started_twice(demo)
    there = Counter(map(len, processes.find().values()))
    longest, mean = max(times, default=0.0), sum(times) / max(len(times), 1)
    again = f"in {longest:.2f} s at the latest, {mean:.2f} s on average"
    print()
    fact("instances", f"{options.instances}, {'without slots' if options.without_slots else 'each in its slot'}")
    fact("killed", f"{len(demo.killed)} children, {demo.instances_killed} instances")
    fact("started twice", str(twice))
    fact("running again", f"{again} (a cycle and a turn: {limit:.2f} s)")
    fact("SQLITE_BUSY", f"{busy[True]}, met by the instances; {busy[False]} while one joined")
    promised = not twice and not busy[True] and longest <= limit and there == {1: options.children}
    if not promised and not options.without_slots:
        print(f"\nNOT AS PROMISED (processes of a name: {dict(there)})\n{demo.log.read_text()[-3000:]}")
    return 0 if promised or options.without_slots else 1


def fact(name: str, value: str) -> None:
    print(f"{name:<20}{value}", flush=True)


def main(options: Namespace, folder: Path) -> int:
    call_command("migrate", verbosity=0)
    demo = Demo(options, folder)
    try:
        run(demo)
        return report(demo)
    finally:
        demo.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="demo-slots-") as folder:
        os.environ["DATABASE_PATH"] = str(Path(folder) / "db.sqlite3")
        os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
        django.setup()
        from django.core.management import call_command
        from sleepers import processes
        from sleepers.models import Sleeper

        signal.signal(signal.SIGTERM, lambda *given: sys.exit(1))
        sys.exit(main(arguments(), Path(folder)))
