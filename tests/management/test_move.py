"""``manage.py vtqueue move``, as people call it."""

import io
import logging
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder

from django_vtqueue.core import clock
from django_vtqueue.management.subcommands import move as move_command
from django_vtqueue.models import Job, Requeue
from django_vtqueue.patterns.lease import Lease

from ..conftest import reached
from ..moving.conftest import PAIRS, Pair, pair
from ..moving.rows import HOUR_AGO, RUNS, job, letter

__all__ = ["pair"]
pytestmark = [pytest.mark.django_db, pytest.mark.parametrize("pair", PAIRS[:1], indirect=True)]


def move(*options: str, source: str = "source", target: str = "target") -> list[str]:
    """Run it; return the lines that it wrote."""
    out = io.StringIO()
    call_command("vtqueue", "move", "--from", source, "--to", target, *options, stdout=out)
    return out.getvalue().splitlines()


def refusal(*options: str, source: str = "source", target: str = "target") -> str:
    with pytest.raises(CommandError) as raised:
        move(*options, source=source, target=target)
    return str(raised.value)


def test_what_it_says(pair: Pair) -> None:
    """It says how many rows were moved, and of what stays why."""
    stays, runs = job(pair.source, unique_key="a"), job(pair.source, **RUNS, lease_until=clock.now() + 10**12)
    job(pair.target, unique_key="a")
    job(pair.source)
    letter(pair.source)
    Requeue(criteria="{}", queue_name="emails", state="running", created_at=HOUR_AGO).save(using=pair.source)
    out = io.StringIO()
    with Lease("nightly", using=pair.source), pytest.raises(CommandError, match="still in 'source': 1"):
        call_command("vtqueue", "move", "--from", "source", "--to", "target", stdout=out)
    assert out.getvalue().splitlines() == [
        "Moved 1 row from 'source' to 'target'.",
        "1 job runs: it goes, with its family, when it has ended.",
        "1 requeue goes on: dead letters go when it has ended. Stop it in the admin if no worker is left here.",
        "1 lease or time slot is held: it goes when it is free, and no unfinished job is left.",
        f"Stays: {stays.pk.hex}: another job there has its unique key",
        "3 jobs and dead letters and 1 rows of leases and time slots are left in 'source'.",
    ]
    assert set(Job.objects.using(pair.source).filter(queue_name="emails").values_list("pk", flat=True)) == {
        stays.pk, runs.pk,
    }  # fmt: skip


def test_without_tqdm(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar is an extra: without it a move is the same."""
    monkeypatch.setattr(move_command, "is_terminal", lambda stream: True)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    job(pair.source)
    assert move() == ["Moved 1 row from 'source' to 'target'."]


def test_the_bar(pair: Pair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On a terminal a bar counts the rows that have arrived; the project's own handlers write what is logged."""
    monkeypatch.setattr(move_command, "is_terminal", lambda stream: True)
    for _ in range(3):
        job(pair.source)
    move()
    assert "3/3" in capsys.readouterr().err
    with move_command.progress_bar(lambda: 1, "row", show=True):
        logging.getLogger("django_vtqueue").warning("once")
    assert "once" not in capsys.readouterr().err


def test_dry_run(pair: Pair) -> None:
    """It counts, and neither database is written to."""
    job(pair.source)
    job(pair.source, **RUNS, lease_until=clock.now() + 10**12)
    letter(pair.source)
    lines = move("--dry-run")
    assert lines[:3] == ["2  unfinished jobs", "0  ended jobs", "1  dead letters"]
    assert lines[-2:] == [
        "1 job runs: it goes, with its family, when it has ended.",
        "3 jobs and dead letters are left in 'source'.",
    ]
    assert Job.objects.using(pair.source).count() == 2
    assert not Job.objects.using(pair.target).exists()


def test_what_is_under_way_is_said(pair: Pair) -> None:
    """After a move that was cut off, what is under way is counted; the next move lets it arrive."""
    Job(
        queue_name="move:out", attempts=7, max_attempts=0, lease_us=1, enqueued_at=1, due_at=clock.LAST, payload={}
    ).save(using=pair.source)  # fmt: skip
    assert "7 rows are under way, since a move was cut off; the next one lets them arrive first." in move("--dry-run")


def test_databases_that_are_refused(pair: Pair, tmp_path: Path) -> None:
    """A database that is not there, has no tables, or those of another version, or is the same one."""
    assert "There is no database 'postgres'; DATABASES has default, " in refusal(target="postgres")
    with reached({"NAME": str(tmp_path / "bare.sqlite3")}, "bare"):
        assert "bare: the queue's tables are missing; run: python manage.py migrate" in refusal(target="bare")
    MigrationRecorder(connections[pair.target]).record_applied("vtqueue", "9999_later")
    assert "target: the queue's tables are ahead of this code (9999_later)" in refusal()
    assert "'source' and 'source' are the same database" in refusal(target="source")
