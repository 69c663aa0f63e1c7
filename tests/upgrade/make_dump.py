#!/usr/bin/env python
"""Make the dump of a queue that tests/test_upgrade.py loads: one job in each state it can be in.

Run it under the Django that the dump shall be of, and only when the tables have changed in a way that users must dump
and load for; a queue of an older release is what the test is about. Needs nothing but this repository:

    python tests/upgrade/make_dump.py
"""

import os
import socket
import sqlite3
import sys
import sysconfig
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
LONG_AGO = 1_767_225_600_000_000  # 1 January 2026 in microseconds: whenever the test runs, all leases have ended


def main() -> None:
    sys.path[0] = str(ROOT)
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    os.environ["VTQUEUE_TEST_OPTIONS"] = '{"result_ttl": null}'
    with tempfile.TemporaryDirectory() as folder:
        os.environ["VTQUEUE_TEST_DB"] = file = str(Path(folder) / "db.sqlite3")

        import django

        django.setup()
        with patch("django_vtqueue.core.clock.now", lambda: LONG_AGO + time.monotonic_ns() // 1000):
            fill()
        name = f"queued_by_django_{django.VERSION[0]}_{django.VERSION[1]}.sql"
        with closing(sqlite3.connect(file)) as database:
            (FOLDER / name).write_text(without_this_machine("\n".join(database.iterdump())) + "\n")


def fill() -> None:
    """Put a job of each kind into a new database."""
    from django.core.management import call_command
    from django.db import connections

    from django_vtqueue import Queue
    from django_vtqueue.core.ids import new_worker_id
    from django_vtqueue.core.job import Scope
    from django_vtqueue.engines import engine_for
    from django_vtqueue.models import Origin
    from django_vtqueue.queue.claims import Claims
    from tests.project.long_lived import fail, fail_once, succeed

    call_command("migrate", "vtqueue", verbosity=0)
    succeed.enqueue("finished")
    fail_once.enqueue("failed once")
    fail.enqueue("dead")
    call_command("vtworker", drain=True)

    succeed.using(priority=100).enqueue("held by a worker that was killed")
    engine = engine_for("default")
    with engine.transaction():
        Claims(engine, lease_us=1_000_000).claim([Scope(None, raw=False)], 1, new_worker_id(), engine.now())

    succeed.using(queue_name="emails", priority=7).enqueue(name="ready")
    succeed.using(run_after=datetime(2100, 1, 1, 12, tzinfo=UTC)).enqueue("scheduled")
    Queue("raw").publish({"name": "raw", "deep": [{"ü": None}]})
    Origin.objects.update(machine="web1:0", path="/srv/shop/db.sqlite3", file="1:1")
    connections.close_all()


def without_this_machine(text: str) -> str:
    """Return the dump without the names that it was made under."""
    names = {
        f"{sysconfig.get_path('purelib')}/": "site-packages/",
        f"{sysconfig.get_path('stdlib')}/": "python/",
        f"{ROOT}/": "",
        f"{socket.gethostname()}:": "web1:",
    }
    for name, replacement in names.items():
        text = text.replace(name, replacement)
    return text


if __name__ == "__main__":
    main()
