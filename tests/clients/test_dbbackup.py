"""django-dbbackup: a backup beside a worker, and a restore when nothing else has the database open."""

import sqlite3
from contextlib import closing
from pathlib import Path

from ..waiting import wait_until
from .projects import Client

SETTINGS = """
INSTALLED_APPS = [*INSTALLED_APPS, "dbbackup"]
STORAGES = {"dbbackup": {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": "backups"}}}
"""
TASKS = """
import time
from pathlib import Path
from django_vtqueue import task

@task
def waits():
    Path("started").touch()
    while not Path("go").exists():
        time.sleep(0.01)
"""


def test_a_backup_beside_a_worker_is_restored(tmp_path: Path) -> None:
    """The worker goes on while the backup is made; what was running in it runs again after the restore."""
    project, path = Client(tmp_path, SETTINGS), tmp_path / "db.sqlite3"
    project.write("shop/tasks.py", TASKS)
    assert (said := project.manage("migrate", "-v0")).startswith("exit 0"), said
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    project.python("from shop.tasks import waits; waits.enqueue()")
    with project.started("-m", "django", "vtworker", "--drain") as log:
        wait_until((tmp_path / "started").exists)
        assert (said := project.manage("dbbackup")).startswith("exit 0"), said
        (tmp_path / "go").touch()
        wait_until(lambda: "ok    shop.tasks.waits" in log.read_text())
        wait_until(lambda: " done: 1 attempt" in log.read_text())
    for name in ("db.sqlite3-wal", "db.sqlite3-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    assert (said := project.manage("dbrestore", "--noinput")).startswith("exit 0"), said
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT state FROM vtqueue_job").fetchall() == [("RUNNING",)]
