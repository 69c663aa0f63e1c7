"""``manage.py vtqueue slots``: who holds which slot, and how much a cycle has time for."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection

from django_vtqueue import NoFreeSlot, SlotCycle
from django_vtqueue.core import clock
from django_vtqueue.core.clock import SECOND
from django_vtqueue.inspection import holdings
from django_vtqueue.models import Job
from django_vtqueue.patterns.slot_cycle import Slot

from ..fake_clock import FakeClock
from .test_looking import vtqueue

pytestmark = pytest.mark.django_db
Join = Callable[..., Slot]


@pytest.fixture
def join() -> Iterator[Join]:
    """Return a function that joins a cycle; all slots are left in the end."""
    with ExitStack() as stack:
        yield lambda *cycle, **options: stack.enter_context(SlotCycle(*cycle, **options).join(0))


def test_without_a_cycle(join: Join) -> None:
    """It says how one is made; a name that is not there is an error that names those that are."""
    assert vtqueue("slots") == "No instance has joined a cycle yet: SlotCycle(name, slots, period).join()\n"
    join("mail", 1, 3)
    with pytest.raises(CommandError, match=r"There is no cycle letters\. Cycles: mail\."):
        vtqueue("slots", "letters")


def test_who_holds_which_slot(join: Join) -> None:
    """Each slot has a line: its holder, its token, for how long its lease goes on, and when its next turn is."""
    join("reconcile", 2, 10, guard=0.05)
    join("mail", 1, 3)
    [cycle, titles, held, free] = vtqueue("slots", "reconcile").splitlines()
    assert cycle == "reconcile: 2 slots in 10 s, guard 0.05 s (clocks may differ by 0.1 s)"
    assert titles.split("  ")[0] == "slot"
    number, holder, token, *_ = held.split()
    assert (number, ":" in holder, token) == ("0", True, "1")
    assert free.split()[:5] == ["1", "(free)", "0", "-", "in"]  # it has no lease, only a turn
    assert "mail: 1 slot in 3 s" in vtqueue("slots").splitlines()


def test_a_holder_that_is_gone(time: FakeClock, join: Join) -> None:
    """A slot is free when its lease has ended; one reads for how long an instance waits, and when its next turn is."""
    join("x", 1, 10)
    time.advance(4)
    ended = clock.now() - 5 * SECOND
    Job.objects.filter(unique_key="0").update(lease_until=ended)
    line = vtqueue("slots", "x").splitlines()[-1]
    assert re.search(r"^0 +\(free\) +1 +- +in 6 s +the lease of .* ended 5 s ago; an instance that asks now", line)
    [slot] = json.loads(vtqueue("slots", "--json"))[0]["slots"]
    assert (slot["holder"], slot["until"]) == (None, None)
    assert slot["remark"].startswith("the lease of ")


def test_a_change_that_is_asked_for(join: Join) -> None:
    """It says so until all have let go."""
    holder = join("x", 2, 10)
    with suppress(NoFreeSlot):
        join("x", 3, 20, 0.1)
    says = "To be changed, as soon as no slot is held, to: 3 slots in 20 s, guard 0.1 s"
    assert says in vtqueue("slots").splitlines()
    holder.leave()
    join("x", 3, 20, 0.1)
    assert "To be changed" not in vtqueue("slots")


def test_for_scripts(join: Join) -> None:
    """``--json`` has the same, with times in ISO 8601."""
    join("x", 2, 10)
    [found] = json.loads(vtqueue("slots", "--json"))
    assert (found["name"], found["wanted"]) == ("x", None)
    assert found["cycle"] == {"slots": 2, "period": 10.0, "guard": 0.0}
    assert [(slot["number"], bool(slot["holder"]), slot["token"]) for slot in found["slots"]] == [
        (0, True, 1),
        (1, False, 0),
    ]
    assert found["slots"][0]["until"].endswith("+00:00")
    assert found["slots"][1]["until"] is None


def test_a_damaged_cycle(join: Join) -> None:
    """A row that was edited by hand is shown as what it is."""
    join("x", 2, 10)
    Job.objects.filter(unique_key="cycle").update(payload={"slots": 2})
    assert vtqueue("slots") == "x: no cycle is in force.\n"
    assert json.loads(vtqueue("slots", "--json"))[0]["slots"] == []


def test_by_the_index(join: Join) -> None:
    """The rows are found by the index of unique keys, beside any number of jobs."""
    slot, plans = join("x", 2, 10), list[str]()

    def explain(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        plans.append(str(execute(f"EXPLAIN QUERY PLAN {sql}", params, many, context).fetchall()))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explain):
        holdings.cycles("default")
        holdings.slots("default", "x", slot._holder.rows.cycle, 0)
        slot._holder.rows.stored()
        slot._holder.rows._rows()
    assert len(plans) == 5
    assert all("USING INDEX vtqueue_job_unique" in plan and "TEMP B-TREE" not in plan for plan in plans), plans


def test_figures() -> None:
    """The table has the cycle, one with one instance, with more of them, and longer ones: only these have more time."""
    titles, *rows, last = vtqueue("slots", "--slots", "5", "--period", "10", "--item-seconds", "0.01").splitlines()
    assert titles.split("  ")[:2] == ["instances", "cycle"]
    items = {tuple(row.split()[:2]): row.split()[6] for row in rows}
    assert items == {("1", "10"): "1,000", ("5", "10"): "1,000", ("25", "10"): "1,000"} | {
        ("5", "50"): "5,000",
        ("25", "50"): "5,000",
    }
    assert "however many instances" in last
    found = json.loads(vtqueue("slots", "--slots=25", "--period=25", "--item-seconds=0.01", "--guard=0.1", "--json"))
    assert [row["items_a_cycle"] for row in found if (row["slots"], row["period"]) == (25, 25)] == [2000]
    assert {row["slots"] for row in found} == {1, 25, 125}
    assert [row["slots"] for row in found if row["period"] == 25] == [1, 25]  # the guard leaves nothing of more


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--slots=5"], "Give --slots, --period and --item-seconds"),
        (["x", "--slots=5", "--period=10", "--item-seconds=1"], "and no NAME"),
        (["--slots=5", "--period=10", "--item-seconds=0"], "seconds_per_item is 0.0"),
        (["--slots=5", "--period=10", "--item-seconds=1", "--guard=1"], "A turn would last 0 s"),
    ],
)
def test_wrong_figures(arguments: list[str], says: str) -> None:
    """The error says what was found, and what is allowed."""
    with pytest.raises(CommandError, match=says):
        vtqueue("slots", *arguments)


def test_an_item_that_takes_longer_than_a_turn() -> None:
    """Then no turn has time for it: it says that nothing is noticed, and what to do; else it does not."""
    figures = ("slots", "--slots", "5", "--period", "10", "--item-seconds")
    _, alone, shared, *_, last = vtqueue(*figures, "3").splitlines()
    assert (alone.split()[-2:], shared.split()[-2:]) == (["20", "s"], ["never", "never"])
    assert (
        last
        == "0 items: one takes longer than a turn, so nothing is ever noticed. Have a longer period, or fewer slots."
    )
    assert json.loads(vtqueue(*figures, "3", "--json"))[1]["noticed_after_longest"] is None
    assert "never" not in vtqueue(*figures, "0.1")
