"""Doorbells: a ring wakes, and a refusing bell proves a death."""

import errno
import os
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from django_vtqueue.queue import proof_of_death
from django_vtqueue.queue.doorbell import Doorbell, _sender, folder_of, ring
from django_vtqueue.queue.proof_of_death import proves_death

from ..conftest import ALIAS
from ..processes.conftest import both_engines
from ..processes.database import Database
from ..processes.running import Running, Start
from ..waiting import PATIENCE, wait_until

OWNER = """
import sys, time
import django
django.setup()
from pathlib import Path
from django_vtqueue.queue.doorbell import Doorbell
bell = Doorbell("default", Path(sys.argv[1]), "owner")
bell.listen(lambda asked: print("rung", flush=True))
print(bell.path, flush=True)
time.sleep(600)
"""


@pytest.fixture
def owner(database: Database, start: Start) -> tuple[Running, str]:
    """Return another process, and the path of the bell that it listens at."""
    process = start("-c", OWNER, database.options["doorbells"])
    wait_until(lambda: process.log.endswith("\n") or process.ended())
    return process, process.log.strip()


@both_engines
def test_a_ring_reaches_the_bell_of_another_process(database: Database, owner: tuple[Running, str]) -> None:
    """A publisher into a database file wakes the processes that wait at its bells, by the file's name alone.

    Ringing at a process that is stopped, far more often than its socket holds, neither blocks nor raises, and wakes it.
    """
    process, path = owner
    assert Path(path).exists()
    ring(ALIAS, database.options["doorbells"])
    process.wait_for("rung")
    process.stop()
    for _ in range(1000):
        ring(ALIAS, database.options["doorbells"])
    process.go_on()
    wait_until(lambda: process.log.count("rung") > 1)


@both_engines
def test_only_a_refusing_bell_proves_a_death(owner: tuple[Running, str], tmp_path: Path) -> None:
    """Alive, stopped and full prove nothing, nor does a bell that is not there; one that a killed process left does."""
    process, path = owner
    proves = partial(proves_death, alias=ALIAS, folder=Path(path).parent.parent)
    assert not proves(path)
    process.stop()
    assert not proves(path)
    process.go_on()
    assert not proves("")
    assert not proves(f"{path}-of-nobody")
    assert not proves(str(tmp_path / ("too long" * 30)))
    process.kill()
    assert proves(path)
    assert not proves_death(path, ALIAS, tmp_path)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vtq-") as folder:
        yield Path(folder)


def test_a_closed_bell_is_gone_and_its_listener_ends(database: Database, folder: Path) -> None:
    """Closing takes the socket out of the folder and ends the thread that waited at it."""
    before = set(threading.enumerate())
    bell = Doorbell(ALIAS, folder, "own")
    bell.listen(lambda asked: None)
    [listener] = set(threading.enumerate()) - before
    bell.close()
    listener.join(PATIENCE)
    assert not listener.is_alive()
    assert not any(path.is_socket() for path in folder.rglob("*"))
    assert not proves_death(bell.path, ALIAS, folder)


@pytest.fixture
def default_timeout(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], None]]:
    """Return a function that sets what a project may set for all sockets: how long they wait."""
    _sender.cache_clear()
    yield socket.setdefaulttimeout
    socket.setdefaulttimeout(None)
    _sender.cache_clear()


@both_engines
def test_a_bell_is_heard_whatever_timeout_sockets_have(
    database: Database, folder: Path, default_timeout: Callable[[float], None]
) -> None:
    """The end of such a timeout is not the end of the bell."""
    default_timeout(0.01)
    rung = threading.Event()
    bell = Doorbell(ALIAS, folder, "own")
    bell.listen(lambda asked: rung.set())
    began = time.monotonic()
    wait_until(lambda: time.monotonic() > began + 0.1)
    ring(ALIAS, str(folder))
    assert rung.wait(PATIENCE)
    bell.close()


@both_engines
def test_to_ring_never_waits(database: Database, folder: Path, default_timeout: Callable[[float], None]) -> None:
    """Not at a bell that is full, for its owner is stopped: with the timeout of all sockets this would take hours."""
    default_timeout(PATIENCE)
    bell = Doorbell(ALIAS, folder, "own")
    for _ in range(1000):
        ring(ALIAS, str(folder))
        bell.ring()
    bell.close()


def test_without_a_temporary_folder_there_is_no_bell(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the file system may be read-only, in a container say: nothing depends on bells."""

    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    assert folder_of(None) == Path(f"/tmp/vtqueue-{os.getuid()}")


def test_the_folder_is_made_whatever_the_umask_is(database: Database, folder: Path) -> None:
    """Its owner may enter it, and no one else."""
    before = os.umask(0o177)
    try:
        bell = Doorbell(ALIAS, folder / "bells", "own")
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "bells").stat().st_mode) == 0o700
    bell.close()


def test_a_folder_of_others_is_not_used(database: Database, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A folder that others may enter is refused, in words: there they could ring, or put sockets of their own."""
    folder.chmod(0o755)
    assert Doorbell(ALIAS, folder, "own").path == ""
    assert "is not this user's own with mode 0700" in caplog.text
    assert list(folder.iterdir()) == []


def test_the_bell_of_a_killed_worker_says_why(doorbells: str) -> None:
    """A mark that its job was over its time limit outlives the bell; where no bell can lie, nothing is raised."""
    path = Path(doorbells) / "bell"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
        bell.bind(str(path))
        assert not proof_of_death.was_over_time(str(path))
        proof_of_death.mark_over_time(path)
        proof_of_death.declare_dead(path)
        assert proof_of_death.was_over_time(str(path))
        with pytest.raises(ConnectionRefusedError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ringer:
            ringer.connect(str(path))
    nowhere = Path(doorbells) / ("x" * 300)
    proof_of_death.mark_over_time(nowhere)
    proof_of_death.declare_dead(nowhere)
    assert not proof_of_death.was_over_time(str(nowhere))
