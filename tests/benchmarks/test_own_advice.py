"""What ``benchmarks.own`` advises, by what holds and what was measured."""

from typing import Any

import pytest
from django.core.management import CommandError, call_command

from benchmarks.own.advice import Found, advice
from benchmarks.own.command import Command
from benchmarks.own.measures import FULL, NORMAL, Setting
from django_vtqueue.database_checks import Pragmas

DELETE = Setting("delete", 2)
OFF = Setting("wal", 0)


def advised(present: Setting = NORMAL, mode: str = "IMMEDIATE", busy_timeout: int = 20_000, **found: Any) -> str:
    """Return all advice for a database whose commits a second are 20,000 with NORMAL, 1,000 with FULL in WAL."""
    commits = {DELETE: 100.0, OFF: 22_000.0, NORMAL: 20_000.0, FULL: 1000.0}
    values = {"file_system": "ext4", "commits": commits, "fsync": 0.001, **found}
    return "\n".join(advice(Found("jobs", Pragmas(*present, busy_timeout), mode, **values)))


def test_nothing_to_change() -> None:
    """With the settings of the README there is nothing to change; it says what the other choice would cost."""
    assert advised() == (
        "Nothing to change.\nsynchronous=NORMAL may lose the last commits in a power loss; FULL would lose none, at "
        "0.05 of the commits a second."
    )
    assert advised(commits={NORMAL: 1000.0, FULL: 990.0}) == "Nothing to change."


def test_a_rollback_journal() -> None:
    """What WAL brings with either choice of synchronous, and the setting, for this alias."""
    said = advised(DELETE)
    assert (
        "In WAL there were 200 times as many commits a second with synchronous=NORMAL, and 10 times with FULL." in said
    )
    assert "(vtqueue.W001)\nSo in DATABASES['jobs'], add these OPTIONS:\n" in said
    assert "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" in said


def test_full_is_a_choice() -> None:
    """FULL is no fault: it says what NORMAL would bring and what it would lose, unless it brings nothing."""
    said = advised(FULL)
    assert "With NORMAL there were 20 times as many a second" in said
    assert "jobs just enqueued may be gone" in said
    assert said.endswith("if not, change nothing.")
    assert "OPTIONS" not in said
    assert advised(FULL, commits={NORMAL: 1100.0, FULL: 1000.0}) == "Nothing to change."


@pytest.mark.parametrize(
    ("present", "mode", "busy_timeout", "number"),
    [(OFF, "IMMEDIATE", 20_000, "W005"), (NORMAL, "DEFERRED", 20_000, "W002"), (NORMAL, "IMMEDIATE", 5000, "W003")],
)
def test_other_faults(present: Setting, mode: str, busy_timeout: int, number: str) -> None:
    """What the system checks warn of is advised here too, with its id."""
    said = advised(present, mode, busy_timeout)
    assert f"(vtqueue.{number})\nSo in DATABASES['jobs']" in said
    assert "Nothing to change" not in said


def test_where_the_file_lies() -> None:
    """A network file system, and a slow disk, are said; no setting is."""
    assert "network file system (nfs4)" in advised(file_system="nfs4")
    assert "The disk takes 35 ms to store a block for good." in advised(fsync=0.035)
    assert "OPTIONS" not in advised(file_system="nfs4", fsync=0.035)


@pytest.mark.django_db
@pytest.mark.parametrize("seconds", ["0", "-1", "601", "nan"])
def test_seconds(seconds: str) -> None:
    """A length that makes no sense is refused with what is allowed."""
    with pytest.raises(CommandError, match=r"--seconds is .+, but must be from 1 to 600\."):
        call_command(Command(), "--seconds", seconds)


@pytest.mark.django_db
def test_in_memory() -> None:
    """A database in memory has no disk to measure."""
    with pytest.raises(CommandError, match="is in memory, or inside a transaction"):
        call_command(Command())
