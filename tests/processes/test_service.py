"""What a worker tells its service manager and its administrator."""

import signal
import socket
from pathlib import Path

from ..waiting import wait_until
from .database import Database
from .held import begin
from .inside import CONTROL_LOOP
from .running import PATIENCE, Start


def test_a_service_manager_is_told(start_worker: Start, doorbells: str) -> None:
    """systemd hears when the worker is ready, that it is alive, and that it stops."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"{doorbells}/notify")
        manager.settimeout(PATIENCE)
        worker = start_worker(NOTIFY_SOCKET=f"{doorbells}/notify")
        assert manager.recv(100) == b"READY=1"
        assert {manager.recv(100), manager.recv(100)} == {b"WATCHDOG=1"}
        worker.signal(signal.SIGTERM)
        heard = manager.recv(100)
        while heard == b"WATCHDOG=1":
            heard = manager.recv(100)
        assert heard == b"STOPPING=1"
        assert worker.wait() == 0


def test_what_every_thread_does(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """SIGUSR1 writes the stack of every thread to the log, and the worker goes on."""
    worker = start_worker()
    job_id = begin(database, tmp_path)

    def told() -> bool:
        worker.signal(signal.SIGUSR1)  # again at each look: threads go on while their stacks are written
        return all(line in worker.log for line in (" in hold\n", CONTROL_LOOP))  # a job, and the loop

    wait_until(told)
    (tmp_path / "go").touch()
    database.wait_for(job_id)
