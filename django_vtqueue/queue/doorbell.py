"""Doorbells: a publisher wakes the workers of its machine by a Unix datagram, 0.1 ms after its commit.

The sockets lie in a folder of the user's own, those of each database in a folder of its name. A worker's has two names:
publishers ring the one in RUNG, and remove it when no process answers; the other one stays, for it proves a death
(proof_of_death.py). So what the dead leave costs a publisher one ring. A process that waits at a bell also looks at the
database by itself (LOOK), so every error of ringing is ignored.
"""

import asyncio
import atexit
import logging
import os
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from hashlib import blake2b
from math import inf
from pathlib import Path

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..engines import engine_for, options_of_database, shares_disk

logger = logging.getLogger("django_vtqueue")

# Seconds between two looks of a process that waits at a bell: a ring can be missed, and other machines ring none.
LOOK = 0.1
RARE_LOOK = 0.25  # where nothing was written lately; and for a result: people, not only workers, may end the job
HEARING_LOOK = 1.0  # where LISTEN reports the commits of all hosts (engines/postgresql/listening.py)

CACHED_FOR = 1.0  # seconds for which a publisher uses the paths that it found
RING, CLOSE = b"ring", b"close"  # what is sent to a bell
WORKERS = b"workers"  # rung at one worker: the rows of the workers have something for it
RUNG = "rung"  # the folder, inside that of the bells, of those that publishers ring
LONGEST_PATH = 107  # bytes of an AF_UNIX address, less its end


def folder_of(configured: str | None) -> Path:
    """Return the folder of the sockets: ``OPTIONS['doorbells']``, or one for this user in the temporary folder."""
    if configured:
        return Path(configured)
    try:
        temporary = tempfile.gettempdir()
    except FileNotFoundError:  # all of the file system is read-only, in a container say: there are no bells
        temporary = "/tmp"
    return Path(temporary) / f"vtqueue-{os.getuid()}"


def name_of(alias: str) -> str:
    """Return a short name for a database, the same in every process that uses it."""
    given = connections[alias].settings_dict
    in_file = connections[alias].vendor == "sqlite"
    return _short_name(str(given["NAME"]), str(given["HOST"]), str(given["PORT"]), in_file)


@lru_cache
def _short_name(name: str, host: str, port: str, in_file: bool) -> str:
    """See name_of; kept, for the real path of a file takes a look at each of its folders."""
    name = os.path.realpath(name) if in_file else name
    return blake2b(f"{name}|{host}|{port}".encode(), digest_size=6).hexdigest()


def place_of(alias: str, folder: Path, kind: str = "") -> Path:
    """Return the folder of a database's bells of one kind, inside that of all bells."""
    return folder / kind / name_of(alias)


def path_of(alias: str, folder: Path, worker_id: str, kind: str = "") -> Path:
    """Return the path of a worker's bell: its name is the random end of the worker's id."""
    return place_of(alias, folder, kind) / worker_id.rpartition(":")[2]


class Doorbell:
    """A worker's own bell: a socket to listen at, and the ``path`` by which it is rung ("" if there can be none).

    ``kind``: "" for one that proves the death of its owner, and is rung by a link in RUNG; RUNG for one that is only
    rung; or a folder of others. With ``shared_disk`` there is none: all look at the database instead.
    """

    def __init__(self, alias: str, folder: Path, worker_id: str, kind: str = "") -> None:
        self.path = self._link = ""
        self._socket: socket.socket | None = None
        if shares_disk(alias):  # on another host the socket of a living worker would look like a proof of its death
            return
        path, link = (path_of(alias, folder, worker_id, kind) for kind in (kind, RUNG))
        try:
            if (longest := max(len(os.fsencode(path)), len(os.fsencode(link)))) > LONGEST_PATH:
                raise OSError(f"its path has {longest} bytes, and may have {LONGEST_PATH}: {link}")
            make_own(folder)
            about = folder.stat()
            if about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o077:
                raise OSError(f"{folder} is not this user's own with mode 0700")
            for place in {path.parent, link.parent}:
                make_own(place.parent)
                make_own(place)
            bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            bell.settimeout(None)  # a project may have set a default: at its end the bell would seem to be closed
            bell.bind(str(path))
            if not kind:
                link.symlink_to(path)
                self._link = str(link)
        except (OSError, AttributeError) as error:  # AttributeError: a system without Unix sockets
            logger.warning("no doorbell, publishers are noticed within %g s instead: %s", RARE_LOOK, error)
            return
        self._socket, self.path = bell, str(path)

    def listen(self, rung: Callable[[bool], None]) -> None:
        """Call ``rung`` each time it is rung, from a small thread, until the bell is closed.

        ``rung`` is called with True if the rows of the workers are to be read, else with False.
        """

        def wait() -> None:
            while (messages := self._wait()) and CLOSE not in messages:
                rung(WORKERS in messages)

        if self._socket:
            threading.Thread(target=wait, name="doorbell", daemon=True).start()

    def _wait(self) -> set[bytes]:
        """Return what was rung, a burst as one; nothing if the bell was closed."""
        assert self._socket
        try:
            messages = {self._socket.recv(16)}
            with suppress(BlockingIOError):
                while message := self._socket.recv(16, socket.MSG_DONTWAIT):
                    messages.add(message)
        except OSError:
            return set()
        return messages

    def ring(self, workers: bool = False) -> None:
        """Ring it, from another thread of this process."""
        send(self.path, WORKERS if workers else RING)

    def wait_for(self, seconds: float) -> None:
        """Block until it is rung, for up to ``seconds``."""
        if self._socket is None:
            time.sleep(seconds)
            return
        self._socket.settimeout(max(seconds, 0.001))
        with suppress(OSError):
            self._socket.recv(16)

    async def await_ring(self, seconds: float) -> None:
        """Wait until it is rung, for up to ``seconds``, while the event loop goes on."""
        if self._socket is None:
            await asyncio.sleep(seconds)
            return
        self._socket.setblocking(False)
        with suppress(TimeoutError, OSError):
            await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self._socket, 16), seconds)

    def fileno(self) -> int:
        """Return the descriptor of the socket, -1 if there is none; a process that has it too keeps the bell alive."""
        return self._socket.fileno() if self._socket else -1

    def let_go(self) -> None:
        """Close the socket without taking the bell away, for in a forked child it is the parent's."""
        if self._socket:
            self._socket.close()
            self._socket = None

    def close(self) -> None:
        """Take the bell away; a thread that waits at it goes on."""
        if self._socket is None:
            return
        send(self.path, CLOSE)
        remove(self.path)
        remove(self._link)
        self._socket.close()


def make_own(folder: Path) -> None:
    """Make a folder, unless it is there, that only this user may enter, whatever the umask is."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
        folder.chmod(0o700)


def ring_worker(path: str) -> None:
    """Ring one worker's bell so that it reads the rows of the workers at once; never waits, never raises."""
    send(path, WORKERS)


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder; none if it is not there."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def exists(path: str | Path) -> bool:
    """Return whether a socket lies at a path, as far as this process may know."""
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except (OSError, ValueError):  # ValueError: a NUL in a damaged path
        return False


def remove(path: str) -> None:
    """Take the bell of a dead owner away, so that it is not rung any more; it is known to be a bell."""
    with suppress(OSError, ValueError):
        os.unlink(path)


@lru_cache
def _sender() -> socket.socket:
    """Return the socket by which this process rings; a forked child has its own."""
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender.setblocking(False)  # with a timeout, which a project may set for all, it would try again and again
    atexit.register(sender.close)
    return sender


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_sender.cache_clear)


def send(path: str, message: bytes = RING) -> bool:
    """Ring a bell; never waits, never raises. Return False if nothing listens at it any more."""
    try:
        _sender().sendto(message, socket.MSG_DONTWAIT, path)
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    except (OSError, AttributeError, ValueError):  # no Unix sockets; a NUL in a damaged path
        pass
    return True


_found: dict[tuple[str, str | None], tuple[float, list[str]]] = {}  # when (monotonic), and the paths of the bells


def _bells(alias: str, folder: str | None) -> list[str]:
    """Return the paths of the bells that publishers ring, as they were found at most a second ago."""
    looked, paths = _found.get((alias, folder), (-inf, []))
    if time.monotonic() - looked > CACHED_FOR:
        place = place_of(alias, folder_of(folder), RUNG)
        paths = [f"{place}/{name}" for name in names_in(place)]
        _found[alias, folder] = time.monotonic(), paths
    return paths


def ring(alias: str, folder: str | None) -> None:
    """Wake the workers of a database; never raises: their jobs are stored already."""
    ring_here(alias, folder)
    engine_for(alias).ring()


def ring_here(alias: str, folder: str | None) -> None:
    """Ring the doorbells of a database in this folder, and remove those without a listener; never waits or raises."""
    paths = _bells(alias, folder)
    if silent := {path for path in paths if not send(path)}:
        for path in silent:
            remove(path)
        _found[alias, folder] = _found[alias, folder][0], [path for path in paths if path not in silent]


def wake_workers(database: str) -> None:
    """Wake the workers of a database, those of each of its backends, after the caller's transaction."""
    for folder in {options.doorbells for options in options_of_database(database)} or {None}:
        ring_after_commit(connections[database], folder)


def ring_after_commit(connection: BaseDatabaseWrapper, folder: str | None, *, here: bool = False) -> None:
    """Wake the workers of a connection's database when its transaction has committed: at once if there is none.

    ``here``: only those of this machine.
    """
    alias, act = connection.alias, ring_here if here else ring
    if not connection.in_atomic_block:
        act(alias, folder)
        return
    if connection.run_on_commit:
        last = connection.run_on_commit[-1][1]
        if isinstance(last, partial) and last.func is act and last.args == (alias, folder):
            return  # one ring for each commit; a savepoint that takes that one back takes back what is written now
    transaction.on_commit(partial(act, alias, folder), using=alias, robust=True)
