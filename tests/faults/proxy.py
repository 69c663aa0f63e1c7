"""A way between clients and a server on which a test cuts connections, so that it is unknown what was committed."""

import random
import select
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SOCKET = ".s.PGSQL.5432"
COMMITS = (b"COMMIT", b"INSERT INTO vtqueue_job")  # a single INSERT commits itself
BEFORE, AFTER = "before the server heard of it", "after the server had done it"


class Proxy:
    """Passes on what clients and server say; cuts some connections at a commit. ``cuts``: how often it did so.

    ``chance``: of each commit, to be cut; half of the cuts come before the server has heard of the commit. ``marked``:
    of the next transaction with this text the answer to its commit is cut off.
    """

    def __init__(self, listener: socket.socket, server: Path) -> None:
        self.chance, self.marked = 0.0, b""
        self.cuts: Counter[str] = Counter()
        self._listener, self._server, self._random = listener, str(server / SOCKET), random.Random(7)

    def accept(self) -> None:
        """Take connections until the listener is shut down."""
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._server)
            other, marked = {client: server, server: client}, False
            while ready := select.select([client, server], [], [])[0]:
                for one in ready:
                    if not (said := one.recv(2**16)):
                        return
                    marked = marked or bool(self.marked and self.marked in said)
                    if one is client and self._commits(said) and (marked or self._random.random() < self.chance):
                        self._lose(said, server, AFTER if marked else self._random.choice((BEFORE, AFTER)))
                        return
                    other[one].sendall(said)

    def _commits(self, said: bytes) -> bool:
        return any(commit in said for commit in COMMITS)

    def _lose(self, said: bytes, server: socket.socket, when: str) -> None:
        self.marked = b""
        if when == AFTER:
            server.sendall(said)
            server.recv(1)  # it answers when it has done it
        self.cuts[when] += 1


@contextmanager
def proxy(folder: Path, server: Path) -> Iterator[Proxy]:
    """Listen in a folder for clients of the server that listens in another one."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / SOCKET))
        listener.listen(50)
        made = Proxy(listener, server)
        thread = threading.Thread(target=made.accept)
        thread.start()
        try:
            yield made
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
