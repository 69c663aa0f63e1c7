"""Hosts that test a shared folder together: each tells the others how far it is, in a file of its own.

A file that is opened anew is as the last writer closed it, on NFS too, and nothing here relies on more: the locks, the
caches and the names are what is tested.
"""

import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...core.ids import new_id
from .mounts import place_of

FOLDER = "vtqueue-locktest"
KERNEL = Path("/proc/sys/kernel/random/boot_id")  # one for each kernel that runs
LOOK_AT_FILES = 0.05  # seconds
ALIVE = 0.5  # seconds between two signs of life, before all are there
LEAVE = 10.0  # seconds for which the others are waited for at the end
PATIENCE = 150.0  # seconds for one step of the others

HAS_LEFT = "{} has left before the end; start all again"


class Failed(Exception):
    """The hosts cannot share files in this folder, or the test could not be made; the text says why."""


class Hosts:
    """This host among those that test ``folder``; ``names``: of all, by id, in one order, when they have met."""

    def __init__(self, folder: str) -> None:
        self.place, self.folder = place_of(folder), Path(folder, FOLDER)
        self.id, self.name = new_id()[-12:], socket.gethostname()
        self.names: dict[str, str] = {}
        self.places: list[str] = []  # how they have mounted the folder
        self._steps = 0
        self.folder.mkdir(exist_ok=True)

    def meet(self, count: int, seconds: float) -> None:
        """Wait until so many hosts are there, each with a kernel of its own; raise Failed if they are not in time."""
        until, seen, living = time.monotonic() + seconds, dict[str, Any](), {self.id}
        while len(living) < count:
            if time.monotonic() > until:
                raise Failed(f"{len(living)} of {count} hosts came within {seconds:.0f} s")
            self._say("alive", time.monotonic())
            time.sleep(ALIVE)
            for host in {path.suffix[1:] for path in self.folder.glob("host.*")}:  # some are left from broken runs
                sign = self._heard(host).get("alive")  # None: its first line is not there yet
                living |= {host} if sign is not None and seen.setdefault(host, sign) != sign else set()
        self._say("alive", time.monotonic())
        kernel = KERNEL.read_text().strip() if KERNEL.exists() else self.name
        self.names = dict.fromkeys(sorted(living), "")
        met = self.exchange("met", [sorted(living), self.name, kernel, self.place])
        self.names = {host: name for host, (_, name, _, _) in met.items()}
        self.places = sorted({place for _, _, _, place in met.values()})
        if any(ids != sorted(living) for ids, *_ in met.values()):
            raise Failed(f"more than {count} hosts came; give each of them --hosts with their number")
        if len({kernel for _, _, kernel, _ in met.values()}) < count:
            raise Failed(f"these are not {count} hosts but one ({self.name}), whose processes share a kernel")

    def exchange(self, key: str, value: Any) -> dict[str, Any]:
        """Tell the others something, and return what each host says about it, when all have."""
        self._say(key, value)
        return {host: self._hear(host, key) for host in self.names}

    def step(self, mine: bool, act: Callable[[], object]) -> None:
        """Act, if it is for this host to do, while the others wait; raise Failed on all if it fails on one."""
        problem = ""
        try:
            if mine:
                act()
        except Exception as error:
            problem = str(error) if isinstance(error, Failed) else repr(error)
        self._steps += 1
        try:
            said = self.exchange(f"step {self._steps}", problem)
        except KeyboardInterrupt:
            self._say("interrupted", None)  # its locks end now, while others may be about to look at them
            raise
        if problems := [f"{self.names[host]}: {text}" for host, text in said.items() if text]:
            for host, name in self.names.items():
                if "interrupted" in self._heard(host):
                    raise Failed(HAS_LEFT.format(name))
            raise Failed("; ".join(problems))

    def path(self, name: str) -> Path:
        """Return the path of a file for this test, the same on all hosts."""
        return self.folder / f"{'-'.join(self.names)}.{name}"

    def leave(self) -> None:
        """Take away what was left in the folder, when no host waits any more to hear of this one."""
        self._say("bye", None)
        until = time.monotonic() + LEAVE
        while time.monotonic() < until and not all("bye" in self._heard(host) for host in self.names):
            time.sleep(LOOK_AT_FILES)
        mine = self.folder.glob(self.path("*").name) if self.names else ()
        for path in (self._file(self.id), *mine):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # the last one takes it
            self.folder.rmdir()

    def _say(self, key: str, value: Any) -> None:
        with self._file(self.id).open("a") as file:
            file.write(json.dumps([key, value]) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _heard(self, host: str) -> dict[str, Any]:
        """Return what a host has said so far, in whole lines; only "bye" if it has left."""
        try:
            text = self._file(host).read_text()
        except FileNotFoundError:
            return {"bye": None}
        return dict(json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines())

    def _hear(self, host: str, key: str) -> Any:
        until = time.monotonic() + PATIENCE
        while key not in (heard := self._heard(host)):
            if "bye" in heard:
                raise Failed(HAS_LEFT.format(self.names[host] or host))
            if time.monotonic() > until:
                raise Failed(f"{self.names[host] or host} has said nothing for {PATIENCE:.0f} s; start all again")
            time.sleep(LOOK_AT_FILES)
        return heard[key]

    def _file(self, host: str) -> Path:
        return self.folder / f"host.{host}"
