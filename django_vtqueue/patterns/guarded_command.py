"""A command that runs under a guard (see guard_process.py), as vtleader sees it."""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from . import guard_process

LOOK_AT_CHILD = 0.2  # seconds
PR_SET_CHILD_SUBREAPER = 36  # see prctl(2)


def reap_orphans() -> None:
    """Have what commands leave behind vanish when it ends, also where this is process 1 of a container."""
    if prctl := getattr(ctypes.CDLL(None), "prctl", None):
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


class Guarded:
    """A running command, which is gone by the moment that ``keep`` has said last, whatever becomes of this process.

    ``grace``: seconds before that moment it is asked to stop by SIGTERM. ``bell``: the descriptor of this process's
    doorbell (-1: it has none), which the command keeps alive. Leaving the block ends the command, and waits for it.
    """

    def __init__(self, command: Sequence[str], grace: float, bell: int, environment: dict[str, str]) -> None:
        control, self._control = os.pipe()
        self._status, status = os.pipe()
        self._until, self._grace = 0.0, grace
        self._outcome: bytes | None = None  # what the guard has said; b"": it is dead, and has said nothing
        inherited = [control, status, *([bell] if bell >= 0 else [])]
        words = [str(Path(guard_process.__file__)), str(control), str(status), str(grace), *command]
        try:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", *words], pass_fds=inherited, start_new_session=True, env=environment
            )
        finally:
            os.close(control)
            os.close(status)

    def keep(self, until: float) -> None:
        """Let it run until a moment of the boot clock; 0: no longer."""
        if until != self._until:
            self._say("until", until or -1.0)
            self._until = until
        if not until:  # by now the guard has ended it; one that was stopped has not
            self._kill()

    def forward(self, number: int) -> None:
        """Send it a signal."""
        self._say("signal", number)

    def ended(self, seconds: float) -> bool:
        """Wait for its end, for at most so long; return whether it has ended, for certain."""
        if self._outcome is None and select.select([self._status], [], [], seconds)[0]:
            self._outcome = os.read(self._status, 100)
            self._kill()
            self._guard.wait()
        if self._outcome == b"" and self._left_behind():
            time.sleep(seconds)
            return False
        return self._outcome is not None

    def _kill(self) -> None:
        if self._guard.returncode is None:  # else its pid may be that of another process
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._guard.pid, signal.SIGKILL)

    def _left_behind(self) -> bool:
        """Return whether a process of the group is there: one of another user (sudo), which no signal has reached."""
        try:
            os.killpg(self._guard.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True

    def exit_code(self) -> int | None:
        """Return its exit code, 128 + N if it was ended by signal N; None if the guard has ended it."""
        code, _, stopped = (self._outcome or b"").decode().partition(" ")
        if not code or stopped == "1":
            return None
        return 128 - int(code) if int(code) < 0 else int(code)

    def __enter__(self) -> "Guarded":
        return self

    def __exit__(self, *error: object) -> None:
        control, self._control = self._control, -1
        os.close(control)
        if not self.ended(self._grace + 1):  # for the guard asks it to stop now, and kills it in time
            self._kill()
            while not self.ended(LOOK_AT_CHILD):
                pass
        os.close(self._status)

    def _say(self, word: str, value: float) -> None:
        with suppress(OSError):  # it has ended
            os.write(self._control, f"{word} {value}\n".encode())
