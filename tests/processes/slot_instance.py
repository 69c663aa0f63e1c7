"""An instance with time slots: ``python -m tests.processes.slot_instance FILE NAME SLOTS PERIOD GUARD [WORK [EVERY]]``.

It writes to FILE when it looked at ``Turn.remaining()``, every so many seconds, and what that was, by the boot clock.
``WORK``: seconds for which it handles a turn, whatever the time. It leaves its slot at SIGTERM. The shortest lease of a
slot is VTQUEUE_TEST_LEASE, the longest VTQUEUE_TEST_LONGEST. VTQUEUE_TEST_THREADS share the turns.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import django

from django_vtqueue.core.clock import since_boot
from django_vtqueue.patterns import slot_cycle

TOLERANCE = 0.001  # seconds: the wall clock is slewed against the boot clock


@dataclass(frozen=True)
class Look:
    """One look of an instance at its turn: when it began and ended, and until when the turn is its own (boot clock)."""

    began: float
    ended: float
    until: float
    pid: int
    number: int
    starts_at: float
    missed: int


class Looks:
    """The looks of instances that found them in their turns. What has been read of their files is not read again."""

    def __init__(self) -> None:
        self._read = dict[Path, int]()
        self._found = list[Look]()

    def of(self, *files: Path) -> list[Look]:
        """Return those that are written by now, by their begin; of a line only the whole counts."""
        for file in filter(Path.exists, files):
            with file.open("rb") as written:
                written.seek(self._read.get(file, 0))
                new = written.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read[file] = self._read.get(file, 0) + len(whole)
            self._found += [Look(**json.loads(line)) for line in whole.splitlines()]
        self._found.sort(key=lambda look: look.began)
        return self._found


def overlaps(found: list[Look], gone: Collection[int] = (), *, promised: bool = True) -> list[tuple[Look, Look]]:
    """Return the looks of two instances of which both were in their turns at one moment.

    ``promised``: also in the time for which a look found that the turn goes on; not those of the processes that are
    ``gone``, by their ids, for their turns ended with them.
    """
    wrong, last = [], dict[int, Look]()
    for look in found:
        for pid, other in last.items():
            end = other.until - TOLERANCE if promised and pid not in gone else other.ended
            if pid != look.pid and look.began < end:
                wrong.append((other, look))
        last[look.pid] = look
    return wrong


def main(file: str, name: str, slots: str, period: str, guard: str, work: str = "0", every: str = "0.002") -> None:
    from django_vtqueue import SlotCycle

    log = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def look(turn: Any) -> bool:
        began = since_boot()
        remaining = turn.remaining()
        told = {"number": turn.number, "starts_at": turn.starts_at, "missed": turn.missed, "pid": os.getpid()}
        if remaining:
            line = json.dumps({"began": began, "ended": since_boot(), "until": began + remaining, **told})
            os.write(log, f"{line}\n".encode())
        return bool(remaining)

    def take_turns() -> None:
        for turn in slot.turns():
            while look(turn):
                time.sleep(float(every))
            time.sleep(float(work))

    print("waits", flush=True)
    with SlotCycle(name, int(slots), float(period), float(guard)).join() as slot:
        print(f"joined {slot.number} {slot.token}", flush=True)
        for _ in range(int(os.environ.get("VTQUEUE_TEST_THREADS", "1")) - 1):
            Thread(target=take_turns, daemon=True).start()
        take_turns()
    print("ended", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *given: sys.exit())
    django.setup()
    slot_cycle.SHORTEST = float(os.environ.get("VTQUEUE_TEST_LEASE", slot_cycle.SHORTEST))
    slot_cycle.LONGEST = float(os.environ.get("VTQUEUE_TEST_LONGEST", slot_cycle.LONGEST))
    main(*sys.argv[1:])
