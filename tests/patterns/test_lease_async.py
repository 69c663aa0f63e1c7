"""``async with Lease(...)``: it waits without a thread, and a cancelled one holds nothing."""

import asyncio
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import DatabaseError, connections

from django_vtqueue import Lease
from django_vtqueue.models import Job
from django_vtqueue.patterns.holder import Holder

from ..conftest import ALIAS
from ..waiting import PATIENCE, PROMPT, wait_until
from .test_lease import locked


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine; forget the connections of the thread for synchronous code, which outlives the database."""

    async def whole() -> Any:
        try:
            return await main
        finally:
            await sync_to_async(forget)()

    return asyncio.run(whole())


def forget() -> None:
    connections.close_all()
    with suppress(AttributeError):  # it was not used
        del connections[ALIAS]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch, alias: str) -> None:
    """Have connections wait for a lock for longer than anything here takes."""
    monkeypatch.setitem(connections.settings[alias]["OPTIONS"], "timeout", 2 * PROMPT)


def test_async_with(leases: Any) -> None:
    """It waits for the lease while the loop goes on, holds it in the block, and gives it back."""
    lease, other = leases(), leases()

    async def main() -> None:
        async with lease as held:
            assert held is lease
            assert lease.held
            waiting = asyncio.ensure_future(enter(other))
            await asyncio.sleep(0.3)
            assert not waiting.done()
        assert not lease.held
        await asyncio.wait_for(waiting, PATIENCE)
        assert other.held
        await sync_to_async(other.release)()

    run(main())


async def enter(lease: Lease) -> None:
    await lease.__aenter__()


async def given_back(lease: Lease) -> None:
    """Wait until it is not held any more, while the loop goes on."""
    async with asyncio.timeout(PATIENCE):
        while lease.held:
            await asyncio.sleep(0.05)


def test_an_error_in_the_block(leases: Any) -> None:
    """It is given back after an error, which is not hidden."""
    lease = leases()

    async def main() -> None:
        async with lease:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(main())
    assert not lease.held
    assert leases().acquire(blocking=False)


def test_cancelled_while_it_waits(leases: Any) -> None:
    """One that is cancelled while another instance is the leader waits no more."""
    holder, waiting = leases(), leases()
    holder.acquire()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(enter(waiting), 0.3)

    run(main())
    holder.release()
    assert not waiting.held
    assert leases().acquire(blocking=False)


@pytest.mark.parametrize("times", [1, 2])
def test_cancelled_while_it_takes_it(leases: Any, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """One that is cancelled, even twice, at the very moment at which it becomes the leader gives it back."""
    lease, taking, go_on, attempt = leases(), threading.Event(), threading.Event(), Holder.attempt

    def slow(self: Holder, *args: Any) -> bool | None:
        taken = attempt(self, *args)
        taking.set()
        assert go_on.wait(PATIENCE)
        return taken

    monkeypatch.setattr(Holder, "attempt", slow)

    async def main() -> None:
        entering = asyncio.ensure_future(enter(lease))
        await asyncio.to_thread(taking.wait, PATIENCE)
        for _ in range(times):
            entering.cancel()
            await asyncio.sleep(0.05)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await entering
        await given_back(lease)

    run(main())
    monkeypatch.undo()
    assert leases().acquire(blocking=False)


def test_cancelled_twice_at_the_end_of_the_block(leases: Any) -> None:
    """It is given back, also if the thread for synchronous code has other work at that moment."""
    lease, go_on = leases(), threading.Event()

    async def hold(entered: asyncio.Event) -> None:
        async with lease:
            entered.set()
            await asyncio.sleep(PATIENCE)

    async def main() -> None:
        entered = asyncio.Event()
        holding = asyncio.ensure_future(hold(entered))
        await asyncio.wait_for(entered.wait(), PATIENCE)
        other_work = asyncio.ensure_future(sync_to_async(go_on.wait)(PATIENCE))
        for _ in range(2):
            await asyncio.sleep(0.05)
            holding.cancel()
        await asyncio.sleep(0.05)
        assert not holding.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await holding
        assert not lease.held
        assert await other_work

    run(main())
    assert leases().acquire(blocking=False)


def test_cancelled_with_the_whole_loop_at_the_end_of_the_block(leases: Any) -> None:
    """A loop that ends while the lease waits to be given back leaves one that is renewed no more."""
    lease, go_on = leases(ttl=1, renewing=True), threading.Event()

    async def main() -> None:
        await enter(lease)
        other_work = asyncio.ensure_future(sync_to_async(go_on.wait)(PATIENCE))
        await asyncio.sleep(0.05)
        holding = asyncio.ensure_future(lease.__aexit__())
        await asyncio.sleep(0.05)
        asyncio.get_running_loop().call_later(0.2, go_on.set)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:  # as asyncio.run does in the end
            task.cancel()
        await asyncio.wait([holding, other_work])

    run(main())
    assert lease.held
    assert lease.acquire(blocking=False)  # anew: it is renewed again
    until = lease._holder.held_until
    wait_until(lambda: lease._holder.held_until > until)
    lease.release()
    with lease:
        pass


def test_a_loop_that_ends_while_it_is_taken(leases: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is taken behind the end of the loop is given back."""
    lease, taking, go_on, attempt = leases(renewing=True), threading.Event(), threading.Event(), Holder.attempt

    def slow(self: Holder, *args: Any) -> bool | None:
        taking.set()
        assert go_on.wait(PATIENCE)
        return attempt(self, *args)

    async def main() -> None:
        entering = asyncio.ensure_future(enter(lease))
        await asyncio.to_thread(taking.wait, PATIENCE)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:  # as asyncio.run does in the end
            task.cancel()
        await asyncio.wait([entering])
        go_on.set()

    monkeypatch.setattr(Holder, "attempt", slow)
    run(main())
    monkeypatch.undo()
    assert not lease.held
    assert leases().acquire(blocking=False)


def test_waits_through_a_lock(leases: Any, alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the database is locked it waits, as the ``with`` of a thread does."""
    monkeypatch.setitem(connections.settings[alias]["OPTIONS"], "timeout", 0.05)
    lease = leases()
    lease.acquire()
    lease.release()

    async def main() -> None:
        with locked(alias):
            entering = asyncio.ensure_future(enter(lease))
            await asyncio.sleep(0.5)
            assert not entering.done()
        await asyncio.wait_for(entering, PATIENCE)
        assert lease.held
        await sync_to_async(lease.release)()

    run(main())


@pytest.mark.usefixtures("patient")
def test_a_lock_keeps_no_other_code_waiting(leases: Any, alias: str) -> None:
    """While the database is locked, other synchronous code has the thread for it, and a cancelled wait ends."""
    lease = leases()
    lease.acquire()
    lease.release()
    began = time.monotonic()

    async def main() -> None:
        with locked(alias):
            entering = asyncio.ensure_future(enter(lease))
            await asyncio.sleep(0.2)
            await sync_to_async(Job.objects.using(alias).count)()
            entering.cancel()
            await asyncio.wait([entering])
            assert entering.cancelled()

    run(main())
    assert time.monotonic() - began < PROMPT
    assert not lease.held


@pytest.mark.usefixtures("patient")
def test_a_lock_at_the_end_of_the_block(leases: Any, alias: str) -> None:
    """The block ends all the same, and another instance has the lease as soon as the database is free."""
    lease, began = leases(), 0.0

    async def main() -> None:
        nonlocal began
        await enter(lease)
        began = time.monotonic()
        with locked(alias):
            await lease.__aexit__()

    run(main())
    assert leases().acquire(timeout=PROMPT)
    assert time.monotonic() - began < PROMPT


def test_an_error_that_does_not_pass(leases: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another error of the database is raised."""

    def fail(self: Holder, *args: Any) -> bool | None:
        raise DatabaseError("no")

    monkeypatch.setattr(Holder, "attempt", fail)
    with pytest.raises(DatabaseError, match="no"):
        run(enter(leases()))


@pytest.mark.django_db
def test_in_a_test_case() -> None:
    """Inside a TestCase it sees the test's own transaction."""

    async def main() -> None:
        async with Lease("x") as lease:
            assert lease.token == 1

    async_to_sync(main)()
