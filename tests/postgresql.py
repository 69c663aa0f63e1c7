"""A PostgreSQL server of the tests' own, in a temporary folder; it goes with them."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from .waiting import wait_until

USER = "postgres"  # the server refuses to be root's; Debian's package makes this user
FAST = ("-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
# A database of Debian's usual kind.
CLUSTER = ("--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", f"--username={USER}")
PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
POOLER = """
[databases]
* = host={folder}
[pgbouncer]
pool_mode = transaction
default_pool_size = {size}
unix_socket_dir = {folder}
listen_port = 6432
auth_type = trust
auth_file = {folder}/users
logfile = {folder}/pgbouncer.log
"""


@cache
def binaries() -> Path | None:
    """Return the folder of the server's programs: VTQUEUE_POSTGRESQL, or of the newest that is installed; else None."""
    if given := os.environ.get("VTQUEUE_POSTGRESQL"):
        return Path(given)
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    return Path(initdb).parent if initdb else None


def require_server() -> None:
    """Skip the test where no server can be started; fail it where CI says that there is one."""
    try:
        import psycopg  # noqa: F401

        missing = "" if binaries() else "PostgreSQL is not installed (apt-get install postgresql)"
    except ImportError:
        missing = "psycopg is not installed (pip install 'psycopg[binary]')"
    if missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)


def require_pgbouncer() -> None:
    """As require_server, for the pooler."""
    if not PGBOUNCER:
        missing = "PgBouncer is not installed (apt-get install pgbouncer)"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)


class Session:
    """A session on a server that tests have one after the other: a new one, which knows no table, costs 7 ms more."""

    def __init__(self) -> None:
        self._session: Any = None  # a connection of psycopg
        self._lent: Any = None
        self._kept = 0  # times

    @contextmanager
    def lent(self, connection: Any) -> Iterator[None]:
        """Have a connection of Django's begin with it, or with a new one; it is kept if that has it at the end."""
        connect = connection.get_new_connection

        def begin(params: dict[str, Any]) -> Any:
            del connection.get_new_connection  # of this connection alone, and once
            self._lent = self._taken() or connect(params)
            return self._lent

        connection.get_new_connection = begin
        try:
            yield
        finally:
            vars(connection).pop("get_new_connection", None)
            self._keep(connection)

    def _keep(self, connection: Any) -> None:
        """Take the session of a connection of Django's if it can be made as a new one, else leave it to be closed."""
        import psycopg

        session, self._lent = self._lent, None
        if session and session is connection.connection and not connection.in_atomic_block and session.autocommit:
            with suppress(psycopg.Error):
                self._kept += 1  # psycopg forgets what it has prepared only at a statement that it has not seen before
                session.execute(f"DISCARD ALL -- {self._kept}")
                self.close()
                self._session, connection.connection = session, None

    def _taken(self) -> Any:
        session, self._session = self._session, None
        return session

    def close(self) -> None:
        if session := self._taken():
            session.close()


class Server:
    """A server that listens on a socket in its own folder only. ``launcher``: a command line before its programs."""

    def __init__(self, folder: Path, *options: str, launcher: Sequence[str] = ()) -> None:
        self.folder, self.options = folder, options
        self.session = Session()  # on its usual database
        self.as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if os.getuid() == 0 else []
        self.as_user = [*launcher, *self.as_user]

    @property
    def pid(self) -> int:
        return int((self.folder / "data/postmaster.pid").read_text().split("\n")[0])

    def settings(self, name: str = "postgres") -> dict[str, Any]:
        """Return what a project's DATABASES say of one of its databases, with OPTIONS of VTQUEUE_POSTGRESQL_OPTIONS."""
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": name,
            "USER": USER,
            "PASSWORD": "",
            "HOST": str(self.folder),
            "PORT": "",
            "OPTIONS": json.loads(os.environ.get("VTQUEUE_POSTGRESQL_OPTIONS", "{}")),
        }

    def create(self, *options: str) -> None:
        """Make its files; ``options``: of initdb."""
        self.own_folder()
        self._run("initdb", "--pgdata", str(self.folder / "data"), *CLUSTER, *options)

    def copy(self, files: Path) -> None:
        """Make its files as a copy of those of another server, which is stopped."""
        self.own_folder()
        copy_files(files, self.folder / "data")

    def follow(self, other: "Server") -> None:
        """Make its files as a copy of a running server, which it will follow until it is promoted."""
        self.own_folder()
        source = f"host={other.folder} user={USER} application_name=standby"
        self._run("pg_basebackup", "-D", str(self.folder / "data"), "-R", "-X", "stream", "-c", "fast", "-d", source)

    def promote(self) -> None:
        """Follow no longer; return when it can be written."""
        self._run("pg_ctl", "promote", "-w", "-s", "-D", str(self.folder / "data"))

    def own_folder(self) -> None:
        if self.as_user:
            shutil.chown(self.folder, USER, USER)

    def start(self) -> None:
        options = ["-c", "listen_addresses=", "-k", str(self.folder), *self.options]
        self._run("pg_ctl", "start", "-w", "-s", "-D", str(self.folder / "data"), "-l", str(self.folder / "log"), "-o",
                  " ".join(options))  # fmt: skip

    def stop(self, mode: str = "immediate") -> None:
        self.session.close()
        self._run("pg_ctl", "stop", "-w", "-s", "-D", str(self.folder / "data"), "-m", mode)

    def runs(self) -> bool:
        """Return whether it runs; one that can write nothing may end itself."""
        try:
            self._run("pg_ctl", "status", "-D", str(self.folder / "data"))
        except RuntimeError:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [*self.as_user, str(binaries() or "") + "/" + program, *arguments],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if program == "pg_ctl" else subprocess.PIPE,  # the server keeps the pipe
            stderr=subprocess.DEVNULL if program == "pg_ctl" else subprocess.STDOUT,
            preexec_fn=_usual_signals,
            timeout=60,
            check=False,
        )
        if done.returncode:
            log = self.folder / "log"
            said = log.read_text() if log.exists() else (done.stdout or b"").decode()
            raise RuntimeError(f"{program} failed: {said[-2000:]}")


@contextmanager
def pooled(server: Server, size: int) -> Iterator[dict[str, Any]]:
    """Start PgBouncer in transaction mode with so many connections to a server; yield settings of its database."""
    (server.folder / "users").write_text(f'"{USER}" ""\n')
    (server.folder / "pooler").write_text(POOLER.format(folder=server.folder, size=size))
    command = [*server.as_user, str(PGBOUNCER), str(server.folder / "pooler")]
    pooler = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=_usual_signals)
    try:
        wait_until(lambda: (server.folder / ".s.PGSQL.6432").exists() or pooler.poll() is not None)
        yield {**server.settings(), "PORT": "6432", "OPTIONS": {}, "DISABLE_SERVER_SIDE_CURSORS": True}
    finally:
        pooler.kill()
        pooler.wait()
        (server.folder / ".s.PGSQL.6432").unlink(missing_ok=True)


def _usual_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def copy_files(files: Path, to: Path) -> None:
    """Copy the files of a server that is stopped; they stay its user's."""
    subprocess.run(["cp", "-a", str(files), str(to)], check=True)


@contextmanager
def running(*options: str, files: Path | None = None) -> Iterator[Server]:
    """Start a server; remove it and its files at the end.

    ``options``: of the server; FAST: what a crash may lose. ``files``: what it begins with; else there is nothing yet.
    """
    folder = Path(
        tempfile.mkdtemp(prefix="vtq-pg-", dir="/tmp")
    )  # short, as the path of a socket must be, and where that user may go
    server = Server(folder, *options)
    try:
        if files:
            server.copy(files)
        else:
            server.create()
        server.start()
        yield server
    finally:
        if (folder / "data/postmaster.pid").exists():
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
