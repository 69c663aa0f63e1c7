"""Workflows in real workers, one of which is killed."""

import json
from pathlib import Path

from django_vtqueue import call, chain, group, requeueing
from django_vtqueue.queue.dead_letters import Criteria
from django_vtqueue.tasks.workflows import Workflow
from tests.project import workflows as shop

from ..conftest import ALIAS
from ..waiting import wait_until
from .database import Database
from .running import Start


def enqueue(database: Database, workflow: Workflow) -> str:
    """Enqueue a workflow in the database of the workers; return its id."""
    whole = workflow.call()
    return database.enqueue(whole.task, **whole.kwargs)


def test_killed_in_mid_chain(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """A worker dies in the second of three links: that link is run again, and no other one."""
    links = [call(shop.add_one, 1), call(shop.killed_once, folder=str(tmp_path)), call(shop.add_one)]
    whole = enqueue(database, chain(*links))
    first = start_worker("--threads", "1", ready=False)
    wait_until(first.ended)
    first.clean_up()
    assert (database.job(whole)["state"], database.job(whole)["attempts"]) == ("READY", 0)
    start_worker()
    database.wait_for(whole)
    assert database.job(whole)["result"] == "4"
    assert (tmp_path / "attempts").read_text() == "2\n2\n"
    [made] = database.rows("SELECT sum(value) AS made FROM project_effect WHERE name = 'add_one'")
    assert made["made"] == 2
    kinds = [record["kind"] for record in json.loads(database.job(whole)["steps"])["done"]]
    assert kinds == ["gather"] * 3


def test_a_group_in_two_workers(database: Database, start_worker: Start) -> None:
    """Chains side by side in a group, and what is behind them; the end of each wakes its whole, no look does."""
    parts = [chain(call(shop.add_one, number), call(shop.add_one)) for number in range(6)]
    whole = enqueue(database, group(parts, then=call(shop.report, title="Sum: ")))
    for _ in range(2):
        start_worker("--threads", "2", constants={"worker.periodic.LOOK": 3600})
    database.wait_for(whole)
    assert database.job(whole)["result"] == '"Sum: 27"'
    [made] = database.rows("SELECT count(*) AS made FROM vtqueue_job WHERE parent_id = ?", whole)
    assert made["made"] == 7


def test_requeued_with_its_calls(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """All that died is requeued in the background, the whole before most of its calls: each runs once."""
    count = 2 * requeueing.BATCH + 1
    whole = enqueue(database, group([call(shop.opened, number, str(tmp_path)) for number in range(count)]))
    for _ in range(2):
        start_worker("--threads", "2")
    wait_until(lambda: len(database.rows("SELECT 1 FROM vtqueue_deadletter")) == count + 1)
    (tmp_path / "tried").unlink()
    (tmp_path / "open").touch()
    database.write("UPDATE vtqueue_deadletter SET died_at = 1 WHERE id = ?", whole)
    requeueing.start(Criteria(), using=ALIAS)
    database.wait_for(whole)
    assert json.loads(database.job(whole)["result"]) == [*range(count)]
    assert sorted(map(int, (tmp_path / "tried").read_text().split())) == [*range(count)]
