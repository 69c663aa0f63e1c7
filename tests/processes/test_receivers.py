"""Receivers of the signals of tasks that raise or hang: they cost no job, and hold no other one up."""

import json
from pathlib import Path

import pytest

from tests.hindering import tasks as hindering
from tests.project import tasks

from ..waiting import wait_until
from . import inside
from .conftest import both_engines
from .database import Database
from .held import begin
from .running import Start
from .test_hindered import APP, LEASE, go_at, wait_for_renewals


def receiving(folder: Path, **deeds: str) -> dict[str, str]:
    """Return the environment of a process whose receivers of these signals do this."""
    return {"VTQUEUE_TEST_APPS": APP, "VTQUEUE_TEST_RECEIVERS": json.dumps(deeds), **go_at(folder)}


EACH_SECOND = {"every": 1, "name": "second", "args": ["second"]}
TICKS = {
    "VTQUEUE_TEST_APPS": f"{APP},tests.ticking",
    "VTQUEUE_TEST_RECURRING": json.dumps([EACH_SECOND]),
}
SUCCEEDED = "SELECT count(*) FROM vtqueue_job WHERE state = 'SUCCESSFUL' AND task_path = ?"


@both_engines
@pytest.mark.parametrize("deed", ["fail", "exit", "misspell"])
def test_receivers_that_raise_cost_no_job(database: Database, start_worker: Start, tmp_path: Path, deed: str) -> None:
    """Of whatever signal: ticks come, children run and end, and what has ended is settled."""
    deeds = dict.fromkeys(("task_enqueued", "task_started", "task_finished"), deed)
    worker = start_worker(**(receiving(tmp_path, **deeds) | TICKS))
    parent = database.enqueue(hindering.gather)
    database.wait_for(parent)
    assert database.result(parent) == [0, 1, 2]
    wait_until(lambda: database.rows(SUCCEEDED, "tests.ticking.tasks.tick")[0][0] >= 2)
    assert database.outcomes(parent) == []
    assert worker.terminate() == 0
    assert "waiting" not in worker.log
    assert "left out" not in worker.log


@both_engines
def test_a_receiver_that_hangs_at_a_tick_stops_no_job(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """Ticks go on, and jobs run, are settled and are renewed."""
    worker = start_worker(**(receiving(tmp_path, task_enqueued="hang") | TICKS))
    worker.wait_for("a receiver is to hang")
    jobs = [database.enqueue(tasks.add, number, 1) for number in range(3)]
    database.wait_for(*jobs)
    ticks = database.rows(SUCCEEDED, "tests.ticking.tasks.tick")[0][0]
    wait_until(lambda: database.rows(SUCCEEDED, "tests.ticking.tasks.tick")[0][0] >= ticks + 2)
    assert worker.terminate() == 0


@both_engines
def test_a_receiver_that_hangs_in_a_task_stops_no_other_job(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """It is called in the thread of the task that has enqueued children, and holds no lock of theirs."""
    worker = start_worker(**receiving(tmp_path, task_enqueued="hang"))
    parent = database.enqueue(hindering.gather)
    worker.wait_for("a receiver is to hang")
    jobs = [database.enqueue(tasks.add, number, 1) for number in range(3)]
    database.wait_for(*jobs)
    (tmp_path / "on").touch()
    database.wait_for(parent)
    assert worker.terminate() == 0


@both_engines
def test_receivers_that_lag_behind_delay_claims_and_no_renewal(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """No signal is lost: as long as too many wait to be sent, nothing more is claimed."""
    database.options["visibility_timeout"] = LEASE
    most = inside.tuned(receivers=5)
    worker = start_worker("--threads", "2", constants=most, **receiving(tmp_path, task_finished="hang"))
    held = begin(database, tmp_path)
    done = []
    for number in range(8):  # the first is being told of; the 7th is one too many
        done.append(database.enqueue(tasks.add, number, 1))
        if number < 7:
            database.wait_for(done[-1])
    wait_for_renewals(database, held)
    assert database.job(done[-1])["claims"] == 0
    (tmp_path / "on").touch()
    database.wait_for(*done)
    (tmp_path / "go").touch()
    database.wait_for(held)
    wait_until(lambda: worker.log.count("a receiver is to hang") == 9)
    assert worker.terminate() == 0
