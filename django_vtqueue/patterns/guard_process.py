"""The guard of a command that only a leader may run: ``python guard_process.py CONTROL STATUS GRACE COMMAND …``.

It is a small process of its own, without Django, so that it ends the command in time although vtleader is stopped or
killed. CONTROL is a descriptor from which lines come: ``until T`` (by the moment T of the boot clock the command must
be gone; the first such line starts it) and ``signal N`` (for the command). GRACE seconds before T, or when CONTROL is
closed, for then vtleader is dead, the command is asked to stop by SIGTERM. At T, or so many seconds later, it is
killed. STATUS gets the exit code of the command (-N: ended by signal N), and whether the guard has ended it.

The guard leads the process group of the command, and ends with it: by then nothing of that group runs any more. Both
hold the doorbell of vtleader open, so that its death is proven only when they are gone too. A command that has changed
its user (sudo) is out of reach of an ordinary user's signals: then the guard stays until that ends.
"""

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress
from types import FrameType

PR_SET_PDEATHSIG = 1  # see prctl(2)
LOOK_AT_CLOCK = 1.0  # seconds between two looks at the boot clock: a wait stands still in a suspended machine
FOR_THE_GROUP = ("HUP", "INT", "QUIT", "ALRM", "TERM", "USR1", "USR2", "TSTP", "TTIN", "TTOU")  # not for the guard
NOT_FOUND, NOT_RUN = 127, 126  # exit codes, as of a shell


def since_boot() -> float:
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing; other than SIG_IGN, a handler is not inherited by the command."""


def start(command: list[str], guard: int) -> int:
    """Run the command in a child process, which is killed when this one dies; return its pid."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    handled = {number for name in FOR_THE_GROUP if signal.getsignal(number := getattr(signal, f"SIG{name}")) is ignore}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, handled)  # what comes before the exec waits for the command
    if pid := os.fork():
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid
    signal.set_wakeup_fd(-1)
    for number in handled:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
    if prctl:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
        os._exit(NOT_RUN)
    try:
        os.execvp(command[0], command)
    except (OSError, ValueError) as error:  # ValueError: an empty name
        with suppress(OSError):
            os.write(2, f"vtleader: {command[0]}: {getattr(error, 'strerror', error)}\n".encode())
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN)


def send(pid: int, number: int) -> bool:
    """Send a signal to the command; return False if it is another user's."""
    try:
        os.kill(pid, number)
    except PermissionError:
        return False
    return True


class Guard:
    """What is known of the command: ``until`` when it may run, and since when it was asked to stop."""

    def __init__(self, control: int, grace: float, wake: int) -> None:
        self.control, self.grace, self.wake = control, grace, wake
        self.until = 0.0
        self.told: list[int] = []  # signals for the command
        self.asked_at = float("inf")
        self.alone = False  # vtleader is dead
        self.out_of_reach = False
        self._text = b""

    @property
    def end(self) -> float:
        """When the command is killed."""
        return min(self.until, self.asked_at + self.grace)

    def listen(self, seconds: float) -> None:
        """Wait for at most so long; read what vtleader has said."""
        sources = [self.wake] if self.alone else [self.wake, self.control]
        ready, _, _ = select.select(sources, [], [], max(min(seconds, LOOK_AT_CLOCK), 0))
        if self.wake in ready:
            os.read(self.wake, 4096)
        if self.control in ready:
            said = os.read(self.control, 4096)
            self.alone = not said
            *lines, self._text = (self._text + said).split(b"\n")
            for word, value in map(bytes.split, lines):
                if word == b"until":
                    self.until = float(value)
                else:
                    self.told.append(int(value))

    def run(self, command: list[str]) -> str:
        """Run the command to its end; return its exit code, and whether it was asked to stop."""
        while not self.until and not self.alone:
            self.listen(LOOK_AT_CLOCK)
        if self.alone or since_boot() >= self.until - self.grace:
            return ""
        pid = start(command, os.getpid())
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return f"{os.waitstatus_to_exitcode(status)} {int(self.asked_at < float('inf'))}"
            self.look(pid)

    def look(self, pid: int) -> None:
        """Hand signals on, end the command if it is time, and wait for what is next."""
        while self.told:
            send(pid, self.told.pop(0))
        now = since_boot()
        if self.asked_at == float("inf") and (self.alone or now >= self.until - self.grace):
            self.asked_at = now
            send(pid, signal.SIGTERM)
            os.killpg(0, signal.SIGTERM)
        if now < self.end:
            self.listen((self.end if self.asked_at <= now else self.until - self.grace) - now)
        elif send(pid, signal.SIGKILL):
            os.killpg(0, signal.SIGKILL)  # this process too
        else:
            if not self.out_of_reach:
                os.write(2, b"vtleader: the command has changed its user, and cannot be ended\n")
            self.out_of_reach = True
            self.listen(LOOK_AT_CLOCK)


def main() -> None:
    control, status, grace, *command = sys.argv[1:]
    wake, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    for name in (*FOR_THE_GROUP, "CHLD"):
        number = getattr(signal, f"SIG{name}")
        if signal.getsignal(number) is not signal.SIG_IGN or name == "CHLD":
            signal.signal(number, ignore)
    for descriptor in (int(control), int(status)):
        os.set_inheritable(descriptor, False)
    outcome = Guard(int(control), float(grace), wake).run(command)
    with suppress(OSError):
        os.write(int(status), outcome.encode())
    os.killpg(0, signal.SIGKILL)  # what the command has left behind, and this process


if __name__ == "__main__":
    main()
