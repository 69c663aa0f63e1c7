"""What a turn of a control loop leaves behind on SQLite: nothing of a transaction that broke, and a short log."""

import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from django.db import ProgrammingError, connections

from django_vtqueue.engines import new_engine
from django_vtqueue.engines.sqlite.wal import SLOW

from ..waiting import wait_until


def test_a_broken_transaction_leaves_the_interpreter_as_it_was(sqlite_file: str) -> None:
    """How long a thread may keep the interpreter is put back also when the connection is gone at the end."""
    engine = new_engine(sqlite_file, traced=False)
    usual = sys.getswitchinterval()
    with engine.without_lock_waits():
        with pytest.raises(ProgrammingError, match="closed"), engine.transaction():
            engine.connection.connection.close()  # type: ignore[attr-defined]
        assert sys.getswitchinterval() == usual
        engine.disconnect()


def test_a_long_log_is_copied_beside_the_turns(sqlite_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long is no part of a turn: leases are renewed meanwhile."""
    path = connections[sqlite_file].settings_dict["NAME"]
    log = Path(f"{path}-wal")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA wal_autocheckpoint = 0")
        other.execute("CREATE TABLE filler (content BLOB)")
        for _ in range(9):
            other.execute("INSERT INTO filler VALUES (zeroblob(8000000))")
        assert log.stat().st_size > SLOW
        engine = new_engine(sqlite_file, traced=False)
        with engine.without_lock_waits():
            engine.now(), engine.changed()
            started, start = list[threading.Thread](), threading.Thread.start

            def note_and_start(thread: threading.Thread) -> None:
                started.append(thread)
                start(thread)

            monkeypatch.setattr(threading.Thread, "start", note_and_start)
            assert engine.tidy(early=False) == 0
            assert len(started) == 1
            wait_until(lambda: log.stat().st_size == 0)
