"""Workflows in real workers, one of which is killed."""

import json
from pathlib import Path
from uuid import UUID

import pytest
from pytest_django import Settings

from django_vtqueue import call, chain, control, group
from tests.project import workflows as shop

from ..conftest import ALIAS
from ..waiting import wait_until
from . import inside
from .database import Database
from .running import Start


@pytest.fixture(autouse=True)
def same_settings(settings: Settings, database: Database) -> None:
    """Give this process the settings of the workers: workflows are stored in their database."""
    settings.TASKS = database.tasks


def test_killed_in_mid_chain(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """A worker dies in the second of three links: that link is run again, and no other one."""
    links = [call(shop.add_one, 1), call(shop.killed_once, folder=str(tmp_path)), call(shop.add_one)]
    whole = UUID(chain(*links).enqueue().id).hex
    first = start_worker("--threads", "1", ready=False)
    wait_until(first.ended)
    first.clean_up()
    assert (database.job(whole)["state"], database.job(whole)["attempts"]) == ("WAITING", 0)
    start_worker()
    database.wait_for(whole)
    assert database.job(whole)["result"] == "4"
    assert (tmp_path / "attempts").read_text() == "2\n2\n"
    [made] = database.rows("SELECT sum(value) AS made FROM project_effect WHERE name = 'add_one'")
    assert made["made"] == 2
    kinds = [record["kind"] for record in inside.steps_of(database, whole)]
    assert kinds == ["gather"] * 3


def test_a_group_in_two_workers(database: Database, start_worker: Start) -> None:
    """Chains side by side in a group, and what is behind them; the end of each wakes its whole, no look does."""
    parts = [chain(call(shop.add_one, number), call(shop.add_one)) for number in range(6)]
    whole = UUID(group(parts, then=call(shop.report, title="Sum: ")).enqueue().id).hex
    for _ in range(2):
        start_worker("--threads", "2", constants=inside.LOOKS_SELDOM)
    database.wait_for(whole)
    assert database.job(whole)["result"] == '"Sum: 27"'
    [made] = database.rows("SELECT count(*) AS made FROM vtqueue_job WHERE parent_id = ?", whole)
    assert made["made"] == 7


def test_requeued_with_its_calls(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """All that died is requeued in the background, the whole before most of its calls: each runs once."""
    count = 2 * inside.REQUEUED_AT_ONCE + 1
    calls = [call(shop.opened, number, str(tmp_path)) for number in range(count)]
    whole = UUID(group(calls).enqueue().id).hex
    for _ in range(2):
        start_worker("--threads", "2")
    wait_until(lambda: len(database.rows("SELECT 1 FROM vtqueue_deadletter")) == count + 1)
    (tmp_path / "tried").unlink()
    (tmp_path / "open").touch()
    database.write("UPDATE vtqueue_deadletter SET died_at = 1 WHERE id = ?", whole)
    control.requeue_matching(using=ALIAS)
    database.wait_for(whole)
    assert json.loads(database.job(whole)["result"]) == [*range(count)]
    assert sorted(map(int, (tmp_path / "tried").read_text().split())) == [*range(count)]
