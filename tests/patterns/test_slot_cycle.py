"""``SlotCycle``, in one process: what each of its names promises."""

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import islice
from typing import Any
from unittest import mock

import pytest
from django.db import connections, transaction
from hypothesis import given
from hypothesis import strategies as st

from django_vtqueue import NoFreeSlot, SlotCycle, VTQueueError
from django_vtqueue.core import clock
from django_vtqueue.inspection.holdings import holdings
from django_vtqueue.models import Job
from django_vtqueue.patterns import slot_cycle
from django_vtqueue.patterns.holder import Holder
from django_vtqueue.patterns.slot_cycle import Slot, Turn
from django_vtqueue.slots import next_turn

from ..conftest import ALIAS
from ..fake_clock import FakeClock
from ..processes.database import Database
from ..waiting import PROMPT, wait_until
from .conftest import BootClock

FEW = 3

Join = Callable[..., Slot]


@pytest.fixture(autouse=True)
def _long_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no lease end, nor be renewed, while a test waits."""
    monkeypatch.setattr(slot_cycle, "SHORTEST", 60.0)


@pytest.fixture
def join(alias: str) -> Iterator[Join]:
    """Return a function that joins a cycle at once; all slots are left in the end."""
    with ExitStack() as stack:

        def join(slots: int = 2, period: Any = 0.2, guard: Any = 0.0, timeout: Any = 0, name: str = "x") -> Slot:
            return stack.enter_context(SlotCycle(name, slots, period, guard, using=alias).join(timeout))

        yield join


def rows() -> dict[str, Job]:
    return {job.unique_key or "": job for job in Job.objects.using(ALIAS).filter(queue_name="slots:x")}


@contextmanager
def soon(act: Callable[[], object]) -> Iterator[None]:
    """Do something in another thread during the block, a moment after its begin."""

    def run() -> None:
        time.sleep(0.1)
        act()
        connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join()


def lose(slot: Slot) -> None:
    """Have the lease of a slot end."""
    slot._holder._held_until = 0.0


# -- join and leave ----------------------------------------------------------------------------------------------------


def test_join(join: Join) -> None:
    """Each join, also of one process, has a slot of its own, the first one that is free; another name is another cycle.

    If there is none, the error says what is held, and what to do.
    """
    assert [join(3).number for _ in range(3)] == [0, 1, 2]
    assert join(3, name="y").number == 0
    with pytest.raises(NoFreeSlot, match=r"No slot of 'x' was free within 0 s: .* vtqueue slots x shows the holders"):
        join(3)
    assert issubclass(NoFreeSlot, VTQueueError)


@pytest.mark.parametrize("timeout", [0.3, timedelta(seconds=0.3)])
def test_join_waits(join: Join, timeout: Any) -> None:
    """With a timeout it waits so long; without one until a slot is free, and has it at once."""
    first, began = join(1), time.monotonic()
    with pytest.raises(NoFreeSlot, match=re.escape("free within 0.3 s")):
        join(1, timeout=timeout)
    assert 0.3 <= time.monotonic() - began < PROMPT
    with soon(first.leave):
        assert join(1, timeout=None).token == 2


@pytest.mark.parametrize("timeout", ["1", -1, float("nan"), True, 10**400])
def test_a_bad_timeout(alias: str, timeout: Any) -> None:
    """What is no duration is refused by ``join``, whether a slot is free or not."""
    with pytest.raises(ValueError, match=r"timeout is .*, but must be a number of seconds"):
        SlotCycle("x", 1, 1, using=alias).join(timeout)


def test_join_while_the_database_is_locked(join: Join, alias: str) -> None:
    """The wait for the write lock is a part of the timeout, also of 0; then no slot was free."""
    join(2)
    with Database(connections[alias].settings_dict["NAME"], "").locked():
        for timeout in (0, 0.3):
            began = time.monotonic()
            with pytest.raises(NoFreeSlot):
                join(2, timeout=timeout)
            assert time.monotonic() - began < timeout + PROMPT


def test_rows_that_are_no_slots(join: Join) -> None:
    """Rows of the queue without the number of a slot as their key (of a queue that had this name) are never taken."""
    slot = join(2)
    for key in (None, "x"):
        job = rows()["1"]
        job.pk, job.unique_key = uuid.uuid4(), key
        job.save(force_insert=True, using=ALIAS)
    Job.objects.using(ALIAS).filter(unique_key="cycle").update(due_at=0)
    assert (slot.number, join(2).number) == (0, 1)
    with pytest.raises(NoFreeSlot):
        join(2)


def test_leave(join: Join, alias: str) -> None:
    """What is left is free at once, under a greater token; a second time, or of what is lost, nothing happens."""
    with SlotCycle("x", 2, 0.2, using=alias).join(0) as slot:
        assert (slot.held, slot.number, slot.token) == (True, 0, 1)
        assert repr(slot) == "<Slot 0 of 'x', held>"
    assert (slot.held, slot.number, slot.token) == (False, None, None)
    assert repr(slot) == "<Slot None of 'x', not held>"
    again = join()
    assert (again.number, again.token) == (0, 2)
    slot.leave()
    assert again.held
    lose(again)
    assert again.token is None
    again.leave()


def test_an_error_leaves_the_slot(join: Join, alias: str) -> None:
    """The block of a slot leaves it whatever happens in it."""
    with pytest.raises(KeyError), SlotCycle("x", 1, 1, using=alias).join():
        raise KeyError
    assert join(1, 1).number == 0


def test_no_join_in_a_transaction(alias: str) -> None:
    """Inside transaction.atomic no other instance would see it: it is refused."""
    refused = pytest.raises(RuntimeError, match=r"slot of 'x' cannot be acquired inside transaction\.atomic")
    with refused, transaction.atomic(using=alias):
        SlotCycle("x", 1, 1, using=alias).join()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"slots": 0}, "slots is 0"),
        ({"slots": 1001, "period": 100}, "slots is 1001, but must be a whole number, 1 to 1000."),
        ({"period": "1"}, "period is '1', but must be a number of seconds"),
        ({"period": 0}, "period is 0.0, but must be a number of seconds above 0"),
        ({"guard": -1}, "guard is -1"),
        ({"guard": timedelta(seconds=1)}, "A turn would last -1 s"),
        ({"slots": 10**400}, "slots is 1000000000000000000000000000000000000000 ... 000000000000000, but must be"),
        ({"period": 10**5000}, "period is a value of type int, but must be"),
        ({"using": "nope"}, "There is no database 'nope'; DATABASES has default"),
        ({"name": "x" * 9999}, "not 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx ... xxxxxxxxxxxxxx'."),
        ({"name": ""}, "The name is a text of 1 to 249 characters"),
    ],
)
def test_what_makes_no_cycle(given: dict[str, Any], says: str) -> None:
    """It is refused where it is written, before anything is stored."""
    with pytest.raises(ValueError, match=re.escape(says)):
        SlotCycle(**{"name": "x", "slots": 2, "period": timedelta(seconds=2), **given})


# -- turns -------------------------------------------------------------------------------------------------------------


class Passing(threading.Event):
    """What a slot waits by for its turn: both clocks pass by as much as it waits for, and by nothing else."""

    def __init__(self, time: FakeClock, boot: BootClock) -> None:
        super().__init__()
        self._time, self._boot = time, boot

    def wait(self, timeout: float | None = None) -> bool:
        self.pass_by(timeout or 0)
        return self.is_set()

    def pass_by(self, seconds: float) -> None:
        seconds = max(round(seconds, 6), 1e-6)
        self._time.advance(seconds)
        self._boot.pass_by(seconds)


@pytest.fixture
def clocks(time: FakeClock, boot: BootClock) -> Passing:
    """Stop the clocks of this process."""
    return Passing(time, boot)


@pytest.fixture
def passing(clocks: Passing, join: Join) -> Join:
    """Return a function that joins a cycle, by whose slot the clocks pass."""

    def passing(*cycle: Any) -> Slot:
        slot = join(*cycle)
        slot._holder.no_next_turn = clocks
        return slot

    return passing


def some(slot: Slot, number: int = FEW) -> list[Turn]:
    """Return the next turns of a slot."""
    return list(islice(slot.turns(), number))


def test_turns(join: Join, passing: Join) -> None:
    """A turn is handed out when it begins, one in each cycle; it says when it ends, and how much of it is left."""
    slots = [join(2, 0.4, 0.01), passing(2, 0.4, 0.01)]
    before = None
    for turn in islice(slots[1].turns(), FEW):
        assert slot_cycle.wall() == pytest.approx(turn.starts_at, abs=1e-5)
        assert (turn.number, turn.missed) == (1, 0)
        assert turn.ends_at - turn.starts_at == pytest.approx(0.18, abs=1e-6)
        assert turn.remaining() == pytest.approx(0.18, abs=1e-5)
        if before:
            assert turn.starts_at - before.starts_at == pytest.approx(0.4, abs=1e-6)
            assert before.remaining() == 0
        before = turn
    assert re.fullmatch(r"<Turn of slot 1, 0\.\d{3} s left>", repr(turn))


def test_a_slow_turn(passing: Join, clocks: Passing) -> None:
    """Turns that begin while the last one is still worked on are left out, and counted; also by another loop."""
    slot, missed = passing(2, 0.2), []
    for work in (0.5, 0.05, 0):
        [turn] = some(slot, 1)
        missed.append(turn.missed)
        clocks.pass_by(work)
    assert missed == [0, 2, 0]


def test_threads_share_the_turns(join: Join) -> None:
    """Threads that iterate over the turns of one slot have each turn once."""
    slot, starts = join(2, 0.1), list[float]()

    def run() -> None:
        for turn in slot.turns():
            starts.append(turn.starts_at)
        connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(starts) >= 10)
    slot.leave()
    for thread in threads:
        thread.join()
    assert len(starts) == len(set(starts))


def test_turns_end_when_the_slot_is_left(join: Join) -> None:
    """A loop over turns ends when the slot is left: inside a turn, and, from another thread, while it waits for one."""
    slot, turns = join(), 0
    for _ in slot.turns():
        turns += 1
        slot.leave()
    assert turns == 1
    waiting = join(2, 3600)
    with soon(waiting.leave):
        assert len(list(waiting.turns())) <= 1
    assert list(waiting.turns()) == []


def test_turns_end_when_the_slot_is_lost(passing: Join) -> None:
    """A slot whose lease has ended has no turn more, and none is left of the one under way."""
    slot = passing(1, 1)
    for turn in slot.turns():
        assert turn.remaining() > 0
        lose(slot)
        assert turn.remaining() == 0
    assert not slot.held


def test_a_turn_is_of_one_claim(join: Join) -> None:
    """What is left of a turn is none when the slot was given up and taken again meanwhile."""
    slot = join(1, 100)
    turn = slot._turn(time.time(), time.time() + 50)
    assert turn.remaining() > 0
    slot._holder.release()
    assert slot._holder.acquire()
    assert slot.held
    assert turn.remaining() == 0


# -- clocks ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def turn(join: Join, time: FakeClock, boot: BootClock) -> Turn:
    """Return a turn of 10 s, which begins now."""
    slot, now = join(3, 30), slot_cycle.wall()
    begin, end = next_turn(now, 0, 3, 30)
    assert begin == now
    return slot._turn(begin, end)


def test_what_is_left_of_a_turn(turn: Turn, time: FakeClock, boot: BootClock) -> None:
    """It passes with the time, to the end of the turn."""
    for passed in (0, 4, 5.5):
        assert turn.remaining() == pytest.approx(10 - sum((0, 4, 5.5)[: (0, 4, 5.5).index(passed)]))
        time.advance(passed)
        boot.pass_by(passed)
    time.advance(6)
    boot.pass_by(6)
    assert turn.remaining() == 0


def test_a_clock_that_is_set_forward(turn: Turn, time: FakeClock) -> None:
    """The turn is shorter: others believe that it has ended."""
    time.advance(8)
    assert turn.remaining() == pytest.approx(2)
    time.advance(8)
    assert turn.remaining() == 0


def test_a_clock_that_is_set_back(turn: Turn, time: FakeClock, boot: BootClock) -> None:
    """The turn is no longer for it, by the boot clock; if it has not begun by the clock as it is now, it is over."""
    time.advance(9)
    boot.pass_by(9)
    time.advance(-8)
    assert turn.remaining() == pytest.approx(1)
    time.advance(-2)
    assert turn.remaining() == 0
    time.advance(2)
    boot.pass_by(1.5)
    assert turn.remaining() == 0


@pytest.mark.parametrize("step", [-3600, 0, 3600])
def test_a_clock_that_is_set_makes_no_missed_turns(join: Join, time: FakeClock, boot: BootClock, step: int) -> None:
    """What is missed is counted by the boot clock: after a step of an hour it is what was really missed."""
    slot = join(3, 3)
    slot._holder._held_until += 1000

    def next_one() -> Turn | None:
        return slot._turn(*next_turn(slot_cycle.wall(), 0, 3, 3))

    assert next_one()
    time.advance(6 + step)
    boot.pass_by(6)
    turn = next_one()
    assert turn
    assert turn.missed == 1


def test_the_lease_ends_a_turn(turn: Turn, boot: BootClock) -> None:
    """No more is left of a turn than of the lease: a second less than that, for others count it too."""
    turn._ends_at += 1000
    turn.ends_at += 1000
    assert turn.remaining() == pytest.approx(59)
    boot.pass_by(59)
    assert turn.remaining() == 0


@given(
    st.integers(2, 5),
    st.sampled_from([0.1, 1.0, 7.0]),
    st.lists(st.tuples(st.floats(0, 10), st.floats(-20, 20)), min_size=1, max_size=30),
)
def test_one_at_a_time_by_whatever_clock(slots: int, period: float, steps: list[tuple[float, float]]) -> None:
    """On one machine at most one instance is in its turn, however its clock jumps; each goes on with its next turn."""
    now, since_boot = [1_800_000_000.0], [1000.0]
    holders = [mock.Mock() for _ in range(slots)]
    turns: list[Turn | None] = [None] * slots
    for holder in holders:
        holder.remaining.return_value = 1e9
        holder.job.payload = "0"
    with (
        mock.patch.object(clock, "now", side_effect=lambda: round(now[0] * 1e6)),
        mock.patch.object(clock, "since_boot", side_effect=lambda: since_boot[0]),
    ):
        for passed, step in steps:
            since_boot[0] += passed
            now[0] += passed + step
            for number, holder in enumerate(holders):
                begin, end = next_turn(now[0] - period, number, slots, period)
                if not remaining(turns[number]) and begin <= now[0]:  # it waited for this one, or has just missed it
                    turns[number] = Turn(begin, end, holder)
            assert sum(remaining(turn) > 0 for turn in turns) <= 1


def remaining(turn: Turn | None) -> float:
    return turn.remaining() if turn else 0.0


# -- the lease ---------------------------------------------------------------------------------------------------------


def test_the_lease_is_renewed_in_turns(passing: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance that takes its turns writes to the database in these only: its thread has nothing to renew."""
    renewed, renew = list[tuple[str, float]](), Holder._renew

    def noted(self: Holder, *given: Any) -> None:
        renewed.append((threading.current_thread().name, slot_cycle.wall()))
        renew(self, *given)

    monkeypatch.setattr(Holder, "_renew", noted)
    monkeypatch.setattr(slot_cycle, "SHORTEST", 0.5)
    slot = passing(2, 0.5)
    turns = some(slot, 6)
    assert len(renewed) >= 5
    assert {name for name, _ in renewed} == {threading.current_thread().name}
    assert all(any(turn.starts_at <= at <= turn.ends_at for turn in turns) for _, at in renewed)


@pytest.mark.usefixtures("watchful")
def test_a_turn_that_takes_longer_than_the_lease(passing: Join, clocks: Passing) -> None:
    """The lease is kept up meanwhile, in a thread."""
    slot = passing(1, 30)
    some(slot, 1)
    for _ in range(3):
        clocks.pass_by(41)  # two thirds of the lease
        wait_until(lambda: slot._holder.renews_in() > 0)
    assert (slot.held, slot.token) == (True, 1)


@pytest.mark.django_db
def test_in_a_test_case(clocks: Passing, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a transaction that a test rolls back, where no thread sees the row, the loop itself keeps the lease up."""
    monkeypatch.setattr(slot_cycle, "SHORTEST", 0.1)
    monkeypatch.setattr(slot_cycle, "CYCLES", 0.7)
    with SlotCycle("x", 2, 1.5).join() as slot:
        slot._holder.no_next_turn = clocks
        assert [turn.missed for turn in some(slot, 2)] == [0, 0]
        assert slot.token == 1


# -- another cycle -----------------------------------------------------------------------------------------------------


def test_another_cycle_is_asked_for(join: Join) -> None:
    """A join with another cycle has no slot before all have let go; a holder's lease is not renewed any more."""
    first = join(2, 0.4)
    with pytest.raises(NoFreeSlot):
        join(3, 0.6)
    assert rows()["cycle"].payload == {
        **{"slots": 2, "period": 0.4, "guard": 0.0},
        "wanted": {"slots": 3, "period": 0.6, "guard": 0.0},
    }
    assert first._holder.rows.take("another one", 3.0) is None
    until = first._holder._held_until
    first._holder.renew()
    assert first._holder._held_until == until
    first.leave()
    assert [join(3, 0.6).number for _ in range(3)] == [0, 1, 2]
    assert rows()["cycle"].payload["wanted"] is None


def test_turns_go_on_in_the_new_cycle(join: Join) -> None:
    """A loop over turns lets go of its slot, and has one of the new cycle once all have; it counts no missed turns."""
    first = join(1, 0.4)
    turns = first.turns()
    before = next(turns)
    second: list[Slot] = []
    with soon(lambda: second.append(join(3, 0.6, timeout=None))):
        wait_until(lambda: rows()["cycle"].payload["wanted"])
        first._holder.renew()  # notices it
        after = next(turn for turn in turns if turn.ends_at - turn.starts_at < 0.3)
    assert before.remaining() == 0
    assert {after.number, second[0].number} == {0, 1}
    assert after.missed == 0


def test_fewer_slots_and_more_again(join: Join) -> None:
    """Of the slots beyond a smaller number none is taken; when there are more again, their tokens have grown."""
    for slot in [join(3) for _ in range(3)]:
        slot.leave()
    only = join(1)
    with pytest.raises(NoFreeSlot):
        join(1)
    assert [each.key for each in holdings(ALIAS, clock.now(), "slots:")] == ["0"]  # what the admin lists
    only.leave()
    assert [(slot.number, slot.token) for slot in (join(3), join(3), join(3))] == [(0, 3), (1, 2), (2, 2)]


def test_a_change_that_is_withdrawn(join: Join) -> None:
    """An instance that joins with the cycle in force ends a change of it that was asked for."""
    first = join(2)
    with pytest.raises(NoFreeSlot):
        join(3)
    second = join(2)
    assert rows()["cycle"].payload["wanted"] is None
    assert [first.number, second.number] == [0, 1]
    assert [turn.number for turn in some(first, 2)] == [0, 0]


@pytest.mark.parametrize("payload", [None, 7, [], {"slots": 0, "period": 1, "guard": 0}, {"slots": "x"}, {"period": 1}])
def test_a_damaged_row_of_the_cycle(join: Join, payload: Any) -> None:
    """If it says nothing of a cycle, that of the next instance is in force once all have let go."""
    first = join(2)
    Job.objects.using(ALIAS).filter(unique_key="cycle").update(payload=payload)
    with pytest.raises(NoFreeSlot):
        join(2)
    first._holder.renew()  # notices it
    assert [turn.number for turn in some(first, 2)] == [0, 0]
    assert join(2).number == 1


def test_a_row_of_the_cycle_that_is_gone(join: Join) -> None:
    """If all rows are deleted, the slot is lost, and the next instance makes new ones."""
    first = join(2)
    Job.objects.using(ALIAS).filter(queue_name="slots:x").delete()
    assert join(2).number == 0
    first._holder._renew_at = 0.0  # at the next turn
    for _ in first.turns():
        pass
    assert not first.held
