"""An export is read a slice at a time: who downloads it slowly keeps nobody's database log from beginning anew."""

import sqlite3
from contextlib import closing

import pytest
from django.db import connections

from django_vtqueue import Queue
from django_vtqueue.admin import exports
from django_vtqueue.core import clock
from django_vtqueue.queue.dead_letters import Criteria


def die(queue: Queue) -> None:
    """Have a job become a dead letter."""
    queue.publish(1)
    job = queue.claim()
    assert job
    job.nack()


def test_nothing_is_read_while_it_is_sent(sqlite_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a line that was sent, with more to come, no reader is open: the log can be truncated."""
    monkeypatch.setattr(exports, "SLICE", 2)
    queue = Queue("default", using=sqlite_file, max_attempts=1)
    for _ in range(5):
        die(queue)
    lines = iter(exports.as_file(exports.slices(Criteria(died_to=clock.now()), sqlite_file)))
    next(lines)
    die(queue)  # there is something in the log
    path = connections[sqlite_file].settings_dict["NAME"]
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
    assert len(list(lines)) == 4
