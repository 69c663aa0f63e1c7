"""Hosts that share a folder: processes of this machine in namespaces of their own, so that they share nothing else.

Each host has its own mounts, network, name, and boot id: no socket and no memory of one reaches another.
"""

import json
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from ..processes.running import Running
from ..projects import ROOT, Project
from .inside import have_passed
from .namespaces import on_host

SOURCE = Path(__file__).with_name("shared_disk.c")
UNSHARE = ["unshare", "--mount", "--net", "--uts", "--ipc"]

SETTINGS = """
DATABASES["default"] = {{
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": {name!r},
    "OPTIONS": {{
        "transaction_mode": "IMMEDIATE",
        "timeout": 60,
        "init_command": "PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL;",
    }},
}}
TASKS["default"]["OPTIONS"] = {{"shared_disk": True, "visibility_timeout": 300, "doorbells": {doorbells!r}}}
"""
TASKS = """
import os, time
from pathlib import Path
from django_vtqueue import task

@task
def note(path, text):
    with Path(path).open("a") as file:
        file.write(f"{text} {os.uname().nodename}\\n")

@task
def hold(path):
    Path(path, "started").touch()
    while not Path(path, "go").exists():
        time.sleep(0.05)
"""


def why_not() -> str:
    """Return why no hosts can be made on this system; "" if they can."""
    if not shutil.which("unshare") or not shutil.which("cc"):
        return "unshare(1) and a C compiler (cc) are needed"
    done = subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "none", "/dev/shm"], capture_output=True, check=False)
    return done.stderr.decode().strip() if done.returncode else ""


def compile_lies(folder: Path) -> Path:
    """Compile shared_disk.c."""
    library = folder / "shared_disk.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, SOURCE], check=True)
    return library


class SharedDisk:
    """A folder with the database of a project, and the hosts that have it mounted.

    ``migrated``: a database file with all tables, to be copied, once one was made.
    """

    def __init__(self, folder: Path, doorbells: str, migrated: Path) -> None:
        self.migrated = migrated
        self.folder, self.logs = folder / "shared", folder
        self.folder.mkdir()
        self.path = self.folder / "db.sqlite3"
        self.project = Project(folder / "project", SETTINGS.format(name=str(self.path), doorbells=doorbells))
        self.project.write("shop/tasks.py", TASKS)
        self.processes: list[Running] = []

    def trust(self) -> None:
        """Have the test of the locks passed, and make the tables, which are the same each time."""
        have_passed(self.folder, "host1", "host2")
        if self.migrated.exists():
            shutil.copy(self.migrated, self.path)
            return
        said = self.project.manage("migrate")
        assert said.startswith("exit 0\n"), said
        shutil.copy(self.path, self.migrated)

    def start(self, host: int, *command: str, **variables: str) -> Running:
        """Start a management command on a host, or, after "-c", lines of Python."""
        program = command if command[0] == "-c" else ("-m", "django", *command)
        there = on_host(("enter_disk", f"host{host}", str(self.folder)), *program)
        env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "VTQUEUE_"))},
            "DJANGO_SETTINGS_MODULE": "settings",
            "PYTHONPATH": os.pathsep.join([str(self.project.folder), str(ROOT)]),
            "PYTHONUNBUFFERED": "1",
            "VTQUEUE_HOST": str(host),
            "VTQUEUE_DISK": str(self.folder),
            **variables,
        }
        self.processes.append(Running(there, env, self.logs / f"log-{len(self.processes)}"))
        return self.processes[-1]

    def on_both(self, *command: str, **variables: str) -> list[Running]:
        """Run a command on two hosts at once, until both have ended."""
        running = [self.start(host, *command, **variables) for host in (1, 2)]
        for process in running:
            process.wait()
        return running

    def enqueue(self, calls: str, host: int = 1) -> None:
        """Enqueue on a host; ``calls``: a list of calls, in Python."""
        code = f"import django; django.setup()\nfrom shop.tasks import *\n{calls}"
        process = self.start(host, "-c", code)
        assert process.wait() == 0, process.log

    def rows(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection, connection:
            return connection.execute(sql, values).fetchall()

    def passed(self) -> dict[str, list[str]] | None:
        """Return what the test of the locks has stored."""
        path = self.folder / "vtqueue-locktest.json"
        return json.loads(path.read_text()) if path.exists() else None

    def clean_up(self) -> None:
        for process in self.processes:
            process.clean_up()
