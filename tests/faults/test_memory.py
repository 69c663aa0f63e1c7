"""Workers that get no more memory for a while: that passes, and costs no outcome and no thread."""

from pathlib import Path

import pytest

from tests.project import tasks

from ..processes.database import Database
from ..processes.held import begin
from ..processes.running import Start
from ..waiting import wait_until
from .inside import BEHIND_A_COMMIT


def test_what_ends_without_memory_is_settled_later(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """What ended meanwhile has succeeded, at its first attempt, and the worker goes on with all of its threads."""
    worker = start_worker("--threads", "6")
    held = [begin(database, tmp_path, str(number)) for number in range(5)]
    eater = database.enqueue(tasks.eat_memory, str(tmp_path))
    wait_until((tmp_path / "eaten").exists)
    for number in range(5):
        (tmp_path / f"{number}go").write_text("x" * 1000)
    wait_until(lambda: "emory" in worker.log or database.succeeded(*held))
    (tmp_path / "enough").touch()
    database.wait_for(*held, eater)
    assert [database.job(job_id)["attempts"] for job_id in (*held, eater)] == [1] * 6
    later = [begin(database, tmp_path, f"later{number}") for number in range(6)]
    for number in range(6):
        (tmp_path / f"later{number}go").touch()
    database.wait_for(*later)
    assert worker.terminate() == 0
    assert not worker.lines("lost")


@pytest.mark.parametrize("call", BEHIND_A_COMMIT)
def test_without_memory_behind_a_commit_no_job_and_no_thread_is_lost(
    database: Database, start_worker: Start, call: str
) -> None:
    """All jobs run, each once, and the worker ends when it is told to: it has no job in flight that no thread has."""
    database.options |= {"task_modules": ["tests.faults.starved"]}
    worker = start_worker("--threads", "2", VTQUEUE_TEST_STARVED_CALL=call)
    for _ in range(6):
        database.wait_for(database.enqueue(tasks.add, 1, 2))
    assert database.rows("SELECT max(attempts) AS most FROM vtqueue_job")[0]["most"] == 1
    assert worker.terminate() == 0
    assert not worker.lines("lost")
