"""Processes of tests that begin with Django and the package imported: forked from one that has both (see preloader.py),
in a fifth of the time of a new interpreter.

They are children of this process, and have what a new one has, but two things: their hashes are those of one another,
and at the end they leave the modules with which they began as they are.
"""

import atexit
import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path

SCRIPT = str(Path(__file__).with_name("preloader.py"))
SPACE = 1 << 14  # bytes of a command line
PR_SET_CHILD_SUBREAPER = 36  # see prctl(2)
# What the interpreter, or the system for it, reads at its start; and what of that the preloader does again.
AT_START = ("PYTHON", "LANG", "LC_", "LD_", "MALLOC_", "GLIBC_")
DONE_AGAIN = ("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "uts")


class Forked:
    """A child of this process, as subprocess.Popen has it."""

    def __init__(self, args: list[str], pid: int) -> None:
        self.args, self.pid = args, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit code, or the negative number of the signal that ended it; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for so many seconds for its end; return as poll does."""
        deadline, pause = time.monotonic() + (float("inf") if timeout is None else timeout), 0.0005
        while (code := self.poll()) is None:
            if time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Preloader:
    """The process to fork from, of this process; ``surroundings``: what it has from it."""

    def __init__(self) -> None:
        self.surroundings = surroundings(dict(os.environ))
        own = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "VTQUEUE_"))}
        for name in DONE_AGAIN:
            own.pop(name, None)
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, SCRIPT, str(theirs.fileno()), " " * SPACE],
                env=own,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    def fork(self, command: list[str], env: dict[str, str], files: list[int], cwd: Path | None) -> Forked:
        """Start a process that runs a command of this Python. ``files``: its standard input, output and errors."""
        ignored = [number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN]
        message = {"command": command, "env": env, "cwd": str(cwd or os.getcwd()), "ignored": ignored}
        adopt(True)
        try:
            socket.send_fds(self._channel, [json.dumps(message).encode()], files)
            if not (answer := self._channel.recv(20)):
                raise ConnectionError("the preloader is gone")
        finally:
            adopt(False)
        return Forked(command, int(answer))

    def close(self) -> None:
        self._channel.close()
        self.process.kill()  # a fork of this process may have the channel, too, so it would not notice
        self.process.wait()


def adopt(adopting: bool) -> None:
    """Have this process become the parent of what its descendants leave behind, or no longer."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(adopting), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def surroundings(env: dict[str, str]) -> tuple[object, ...]:
    """Return what a new process has from its start on: of its environment, the system, and the one that starts it.

    A thread of a test may have namespaces of its own (see faults/disks.py).
    """
    read = {name: value for name, value in env.items() if name.startswith(AT_START) and name not in DONE_AGAIN}
    namespaces = [os.readlink(f"/proc/thread-self/ns/{name}") for name in NAMESPACES]
    limits = [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")]
    return read, namespaces, limits, os.getresuid(), os.nice(0)


_lock = threading.Lock()
_preloader: Preloader | None = None


def start(
    command: list[str],
    env: dict[str, str],
    *,
    output: int,
    stdin: int = subprocess.DEVNULL,
    cwd: Path | None = None,
    fresh: bool = False,
) -> "Forked | subprocess.Popen[bytes]":
    """Start a process whose output and errors go to one file.

    ``fresh``: it is a new interpreter, as it is if the command is not one of this Python, or asks for options, or if it
    would begin in other surroundings than the preloader.
    """
    with _lock:
        if not fresh and forkable(command, stdin) and preloader().surroundings == surroundings(env):
            return fork(command, env, output, stdin, cwd)
    return subprocess.Popen(command, env=env, stdin=stdin, stdout=output, stderr=output, cwd=cwd)


def fork(command: list[str], env: dict[str, str], output: int, stdin: int, cwd: Path | None) -> Forked:
    nothing = os.open(os.devnull, os.O_RDONLY)
    files = [nothing if stdin == subprocess.DEVNULL else stdin, output, output]
    try:
        return preloader().fork(command, env, files, cwd)
    except ConnectionError:  # it was killed; what it has started goes on
        close()
        return preloader().fork(command, env, files, cwd)
    except BaseException:  # a test whose time is up: the answer that it does not read is none to the next one
        close()
        raise
    finally:
        os.close(nothing)


@cache
def possible() -> bool:
    """Return whether this system has what is needed; else each process is a new interpreter."""
    try:
        adopt(False)
        surroundings({})
    except (OSError, AttributeError):
        return False
    return True


def forkable(command: list[str], stdin: int) -> bool:
    first, *others = command
    words = others[2:] if others[:2] == ["-W", "error"] else others
    plain = bool(words) and (words[0] in ("-c", "-m") or not words[0].startswith("-"))
    short = sum(len(os.fsencode(word)) + 1 for word in command) < SPACE
    return first == sys.executable and plain and short and stdin != subprocess.PIPE and possible()


def preloader() -> Preloader:
    """Return that of this process; start it if there is none."""
    global _preloader
    if _preloader is None:
        _preloader = Preloader()
    return _preloader


@atexit.register
def close() -> None:
    global _preloader
    if _preloader:
        _preloader.close()
    _preloader = None
