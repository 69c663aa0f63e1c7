"""``Lease``, in one process: what each of its names promises."""

import logging
import os
import shutil
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction

from django_vtqueue import Lease, LeaseLost
from django_vtqueue.core import history
from django_vtqueue.models import Job
from django_vtqueue.patterns.reserved import seen

from ..processes.database import Database
from ..waiting import PATIENCE, PROMPT, wait_until
from .conftest import TTL, BootClock


def row(alias: str, name: str = "nightly") -> Job:
    return Job.objects.using(alias).get(queue_name=f"lease:{name}")


# -- one holds it -----------------------------------------------------------------------------------------------------


def test_one_of_two_objects_holds_it(leases: Any) -> None:
    """Two Lease objects are two instances, also in one process; another name is another lease."""
    first, second, other = leases(), leases(), leases("other")
    assert first.acquire()
    assert first.held
    assert not second.acquire(blocking=False)
    assert not second.held
    assert other.acquire(blocking=False)


def test_acquire_what_is_held_already(leases: Any) -> None:
    """An instance that holds it has it: acquire returns True, and the token stays."""
    lease = leases()
    assert lease.acquire()
    token = lease.token
    assert lease.acquire(blocking=False)
    assert lease.token == token


def test_token_grows(leases: Any, boot: BootClock) -> None:
    """Each acquisition has a greater token: after a release, after a lease that ended, by whichever instance."""
    first, second, tokens = leases(), leases(), []
    for lease in (first, second, first, first):
        assert lease.acquire()
        tokens.append(lease.token)
        lease.release()
    assert first.acquire()
    tokens.append(first.token)
    assert not second.acquire(blocking=False)
    boot.pass_by(TTL)
    assert second.acquire(blocking=False)
    tokens.append(second.token)
    assert tokens == sorted(set(tokens))


def test_no_token_without_it(leases: Any, boot: BootClock) -> None:
    """The token is None before it is acquired, after it is released, and when it is lost."""
    lease = leases()
    assert lease.token is None
    lease.acquire()
    assert lease.token is not None
    lease.release()
    assert lease.token is None
    lease.acquire()
    boot.pass_by(TTL)
    assert lease.token is None


def test_release_lets_the_next_one_in(leases: Any, alias: str) -> None:
    """A release frees it at once, and is in the history; releasing what is not held does nothing."""
    first, second = leases(), leases()
    first.acquire()
    first.release()
    first.release()
    assert second.acquire(blocking=False)
    first.release()
    assert second.held
    assert [entry["outcome"] for entry in row(alias).history] == [history.RELEASED]


def test_a_release_in_a_transaction_counts_from_its_commit(leases: Any, alias: str) -> None:
    """Inside transaction.atomic it is given up at once, and free for others from the commit on."""
    lease = leases()
    lease.acquire()
    with transaction.atomic(using=alias):
        lease.release()
        assert not lease.held
        transaction.set_rollback(True, using=alias)
    assert row(alias).state == "RUNNING"
    with transaction.atomic(using=alias):
        assert not lease.held


def test_repr(leases: Any) -> None:
    """It says its name, and whether it is held."""
    lease = leases()
    assert repr(lease) == "<Lease 'nightly', not held>"
    lease.acquire()
    assert repr(lease) == "<Lease 'nightly', held>"


# -- until when -------------------------------------------------------------------------------------------------------


def test_held_ends_before_another_can_hold_it(leases: Any, boot: BootClock) -> None:
    """``held`` is False a tenth of the ttl (1 s at the most) before another instance can acquire it."""
    for ttl, margin in ((5.0, 0.5), (TTL, 1.0)):
        holder, waiting = leases(f"of {ttl}", ttl), leases(f"of {ttl}")
        holder.acquire()
        assert not waiting.acquire(blocking=False)  # has seen it now
        boot.pass_by(ttl - margin - 0.01)
        assert holder.held
        assert holder.remaining() == pytest.approx(0.01)
        boot.pass_by(0.01)
        assert not holder.held
        assert holder.remaining() == 0
        assert not waiting.acquire(blocking=False)
        boot.pass_by(margin - 0.001)
        assert not waiting.acquire(blocking=False)
        boot.pass_by(0.002)
        assert waiting.acquire(blocking=False)


def test_an_instance_counts_from_when_it_looked(leases: Any, boot: BootClock) -> None:
    """An instance that has just come does not know for how long the row was as it is: it waits for a whole lease."""
    holder, late = leases(), leases()
    holder.acquire()
    boot.pass_by(10 * TTL)
    assert not late.acquire(blocking=False)
    boot.pass_by(TTL)
    assert late.acquire(blocking=False)


def test_what_was_lost_is_not_held_again(leases: Any, boot: BootClock) -> None:
    """Once ``held`` was False it stays so, whatever the clock says, until it is acquired anew, with another token."""
    lease = leases()
    lease.acquire()
    token = lease.token
    boot.pass_by(TTL)
    assert not lease.held
    boot.pass_by(-TTL)
    assert not lease.held
    with pytest.raises(LeaseLost, match="lease 'nightly' is not held"):
        lease.renew()
    assert lease.acquire(blocking=False)
    assert lease.token > token


def test_a_renewal_that_comes_through_too_late(leases: Any, boot: BootClock, alias: str, monkeypatch: Any) -> None:
    """A renewal that had to wait until the lease was over changes nothing: it is lost."""
    lease = leases()
    lease.acquire()
    before, engine = row(alias).lease_until, type(lease._holder.rows.engine)
    transaction_of = engine.transaction

    def slow(self: Any) -> Any:
        boot.pass_by(TTL)
        return transaction_of(self)

    monkeypatch.setattr(engine, "transaction", slow)
    with pytest.raises(LeaseLost):
        lease.renew()
    assert not lease.held
    assert row(alias).lease_until == before


def test_a_renewal_whose_commit_takes_too_long(leases: Any, boot: BootClock, monkeypatch: Any) -> None:
    """Another thread may have seen by then that it is lost: it stays so."""
    lease = leases()
    lease.acquire()
    engine = type(lease._holder.rows.engine)
    renew = engine.renew

    def slow(self: Any, *arguments: Any, **options: Any) -> Any:
        lost = renew(self, *arguments, **options)
        boot.pass_by(2)
        assert not lease.held  # what another thread sees
        return lost

    monkeypatch.setattr(engine, "renew", slow)
    boot.pass_by(TTL - 2)
    with pytest.raises(LeaseLost):
        lease.renew()


def test_renew_keeps_it(leases: Any, boot: BootClock) -> None:
    """Each renewal gives it a whole ttl from then on, and others see it renewed."""
    holder, waiting = leases(), leases()
    holder.acquire()
    for _ in range(5):
        assert not waiting.acquire(blocking=False)
        boot.pass_by(TTL - 2)
        holder.renew()
        assert holder.remaining() == pytest.approx(TTL - 1)
    assert holder.held


@pytest.mark.parametrize("step", [-86400, 86400])
def test_wall_clocks_decide_nothing(leases: Any, boot: BootClock, time: Any, step: int) -> None:
    """However the wall clock steps, nothing is taken early, renewals count, and what has ended is taken in time."""
    holder, waiting = leases(), leases()
    holder.acquire()
    assert not waiting.acquire(blocking=False)
    time.advance(step)
    assert holder.held
    assert not waiting.acquire(blocking=False)
    boot.pass_by(TTL - 2)
    holder.renew()
    boot.pass_by(TTL - 2)
    assert not waiting.acquire(blocking=False)
    boot.pass_by(TTL)
    assert waiting.acquire(blocking=False)


@pytest.mark.usefixtures("time")
def test_a_wall_clock_that_stands_still(leases: Any, boot: BootClock) -> None:
    """Renewals are recognised all the same."""
    holder, waiting = leases(), leases()
    holder.acquire()
    for _ in range(4):
        assert not waiting.acquire(blocking=False)
        boot.pass_by(TTL - 2)
        holder.renew()
    assert not waiting.acquire(blocking=False)


def test_objects_that_are_made_for_each_try(leases: Any, boot: BootClock) -> None:
    """An end of the lease is seen by the process, not by one object only: also one that is new takes it over."""
    leases().acquire()
    assert not leases().acquire(blocking=False)
    boot.pass_by(TTL - 0.01)
    assert not leases().acquire(blocking=False)
    boot.pass_by(0.02)
    assert leases().acquire(blocking=False)


def test_different_ttls(leases: Any, boot: BootClock) -> None:
    """The ttl of the holder counts, whatever that of an instance that waits is."""
    holder, hasty, patient = leases(ttl=20), leases(ttl=1), leases(ttl=500)
    holder.acquire()
    assert not hasty.acquire(blocking=False)
    assert not patient.acquire(blocking=False)
    boot.pass_by(19.9)
    assert not hasty.acquire(blocking=False)
    boot.pass_by(0.2)
    assert patient.acquire(blocking=False)
    assert patient.remaining() == pytest.approx(499)


def test_ttl_as_timedelta(leases: Any) -> None:
    """A timedelta is as good as seconds, for the ttl and for the timeout."""
    lease, other = leases(ttl=timedelta(minutes=1)), leases()
    assert lease.ttl == 60
    lease.acquire()
    assert not other.acquire(timeout=timedelta(milliseconds=1))


# -- LeaseLost --------------------------------------------------------------------------------------------------------


def test_check_and_renew_raise_lease_lost(leases: Any, boot: BootClock) -> None:
    """``check`` and ``renew`` raise LeaseLost when it was not acquired, was released, or has ended."""
    lease = leases()
    for prepare in (lambda: None, lambda: (lease.acquire(), lease.release()), lambda: boot.pass_by(TTL)):
        prepare()
        for ask in (lease.check, lease.renew):
            with pytest.raises(LeaseLost):
                ask()
    assert lease.acquire()
    lease.check()


def test_a_row_that_another_instance_has_taken(leases: Any, boot: BootClock, alias: str) -> None:
    """A holder whose row was taken by force learns that from its next renewal."""
    lease = leases()
    lease.acquire()
    Job.objects.using(alias).update(claims=99, worker_id="elsewhere:1:99")
    assert lease.held
    with pytest.raises(LeaseLost):
        lease.renew()
    assert not lease.held
    assert not lease.acquire(blocking=False)


def test_a_row_deleted_by_hand(leases: Any, boot: BootClock, alias: str) -> None:
    """Its holder learns that it was lost from the next renewal; an instance that waits makes it anew."""
    holder, other = leases(), leases()
    holder.acquire()
    waiting = threading.Thread(target=lambda: (other.acquire(timeout=PATIENCE), connections.close_all()))
    waiting.start()
    Job.objects.using(alias).all().delete()
    waiting.join()
    assert other.held
    with pytest.raises(LeaseLost):
        holder.renew()


# -- on_lost, and the thread that renews ------------------------------------------------------------------------------


def pass_by_renewals(lease: Lease, boot: BootClock, number: int) -> None:
    """Have so many thirds of a ttl pass, and wait for the renewal after each."""
    for _ in range(number):
        boot.pass_by(lease.ttl / 3)
        wait_until(lambda: lease.remaining() == pytest.approx(lease.ttl - 1))


@pytest.mark.usefixtures("watchful")
def test_it_renews_itself(leases: Any, boot: BootClock) -> None:
    """While it is held a thread renews it every third of its ttl, so that it stays held."""
    lease = leases(renewing=True)
    lease.acquire()
    token = lease.token
    pass_by_renewals(lease, boot, 5)
    assert lease.token == token
    lease.release()
    wait_until(lambda: not threads())
    assert lease.acquire(blocking=False)
    assert lease.token == token + 1


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("lease ")]


def test_without_renewing(leases: Any) -> None:
    """With ``renewing=False`` no thread is started."""
    wait_until(lambda: not threads())  # that of another test
    leases().acquire()
    assert threads() == []


def test_on_lost_is_called_once(leases: Any, alias: str, caplog: pytest.LogCaptureFixture) -> None:
    """``on_lost`` is called once, by the thread that renews, as soon as it is known; an error in it is logged."""
    told: list[str] = []

    def on_lost() -> None:
        told.append(threading.current_thread().name)
        raise ZeroDivisionError

    lease = leases(ttl=0.3, renewing=True, on_lost=on_lost)
    lease.acquire()
    Job.objects.using(alias).update(claims=99)
    wait_until(lambda: not threads())
    with pytest.raises(LeaseLost):
        lease.check()
    assert told == ["lease lease 'nightly'"]
    wait_until(lambda: "lease 'nightly' is lost" in caplog.text)  # a thread of its own writes the log
    assert "on_lost of lease 'nightly' has failed" in caplog.text


def test_on_lost_without_renewing(leases: Any, boot: BootClock) -> None:
    """Without a thread it is called by the ``check`` or ``renew`` that finds the lease lost, once."""
    told: list[int] = []
    lease = leases(on_lost=lambda: told.append(1))
    lease.acquire()
    boot.pass_by(TTL)
    for ask in (lease.check, lease.renew):
        with pytest.raises(LeaseLost):
            ask()
    assert told == [1]


def test_a_release_is_no_loss(leases: Any) -> None:
    """``on_lost`` is not called when it is released."""
    told: list[int] = []
    lease = leases(renewing=True, on_lost=lambda: told.append(1))
    lease.acquire()
    lease.release()
    wait_until(lambda: not threads())
    assert told == []


@pytest.mark.usefixtures("watchful")
def test_on_lost_in_time_while_the_database_is_locked(leases: Any, boot: BootClock, alias: str, caplog: Any) -> None:
    """If the database is locked for longer than the ttl, ``on_lost`` comes before that ttl is over."""
    lost: list[int] = []
    lease = leases(renewing=True, on_lost=lambda: lost.append(1))
    lease.acquire()
    with locked(alias), caplog.at_level(logging.INFO, "django_vtqueue"):
        boot.pass_by(TTL / 2)
        wait_until(lambda: "was not renewed" in caplog.text)
        assert lease.held
        boot.pass_by(TTL / 2 - 0.5)
        began = time.monotonic()
        wait_until(lambda: lost)
        assert time.monotonic() - began < PROMPT  # and not when a wait for the lock has ended
        assert not lease.held


def test_on_lost_in_time_while_a_renewal_waits(leases: Any, alias: str) -> None:
    """A ``renew`` that waits for a locked database ends with the lease, and ``on_lost`` is called then."""
    for renewing in (True, False):
        lost_at: list[float] = []
        lease = leases(f"renewing {renewing}", 1.0, renewing, on_lost=lambda at=lost_at: at.append(time.monotonic()))
        lease.acquire()
        with locked(alias):
            began = time.monotonic()
            with pytest.raises(LeaseLost):
                lease.renew()
            wait_until(lambda at=lost_at: at)
            assert lost_at[0] - began < PROMPT  # and not when a wait for the lock has ended


@pytest.mark.usefixtures("watchful")
def test_held_through_a_lock(leases: Any, boot: BootClock, alias: str, caplog: pytest.LogCaptureFixture) -> None:
    """If the database is locked for less than two thirds of the ttl, it stays held, and no warning is written."""
    lease = leases(renewing=True)
    lease.acquire()
    token = lease.token
    with caplog.at_level(logging.INFO, "django_vtqueue"):
        with locked(alias):
            boot.pass_by(TTL / 2)
            wait_until(lambda: "was not renewed" in caplog.text)
        wait_until(lambda: boot.pass_by(0.001) or lease.remaining() > TTL - 2)  # type: ignore[func-returns-value]
    assert lease.token == token
    assert [record.levelname for record in caplog.records] == ["INFO"]


def locked(alias: str) -> Any:
    return Database(connections[alias].settings_dict["NAME"], "").locked()


# -- waiting ----------------------------------------------------------------------------------------------------------


def test_a_timeout(leases: Any) -> None:
    """``acquire`` returns False when the timeout is over, and True at once if it is free."""
    holder, other = leases(), leases()
    assert holder.acquire(timeout=0)
    began = time.monotonic()
    assert not other.acquire(timeout=0.3)
    assert 0.3 <= time.monotonic() - began < PROMPT


def test_an_instance_that_waits_is_woken(leases: Any, alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release wakes an instance that waits, by its doorbell."""
    monkeypatch.setattr("django_vtqueue.patterns.holder.LOOK", 3600)
    holder, other, got = leases(), leases(), []
    holder.acquire()

    def wait() -> None:
        other.acquire(timeout=PATIENCE)
        got.append(time.monotonic())
        connections.close_all()

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: any(row.claims for row in seen[alias, "lease:nightly"].values()))  # it waits
    time.sleep(1.1)  # for so long a doorbell may be unknown
    released = time.monotonic()
    holder.release()
    thread.join()
    assert got[0] - released < PATIENCE / 2
    assert other.held


def test_waiting_does_not_ask_for_the_write_lock(leases: Any, alias: str, caplog: Any) -> None:
    """An instance that waits reads only, as long as the lease is held: it meets no lock."""
    holder, other = leases(), leases()
    holder.acquire()
    with locked(alias):
        assert not other.acquire(timeout=0.5)
        assert not other.acquire(blocking=False)
    assert caplog.messages == []


def test_a_timeout_counts_the_wait_for_the_lock(leases: Any, alias: str) -> None:
    """However long the settings have a connection wait for the write lock, ``acquire`` waits for its timeout only."""
    lease = leases()
    lease.acquire()
    lease.release()
    with locked(alias):
        for timeout in (0.5, 0, None):
            began = time.monotonic()
            assert not lease.acquire(blocking=timeout is not None, timeout=timeout)
            assert (timeout or 0) <= time.monotonic() - began < (timeout or 0) + PROMPT
    assert connections[alias].cursor().execute("PRAGMA busy_timeout").fetchone()[0] >= 5000
    assert lease.acquire(blocking=False)


def test_waiting_through_a_lock(leases: Any, alias: str, caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    """``acquire`` waits while the database is locked, says so once, and returns False in time; then it goes on."""
    connections[alias].cursor().execute("PRAGMA busy_timeout = 50")
    lease = leases()
    lease.acquire()
    lease.release()
    with caplog.at_level(logging.WARNING, "django_vtqueue"), locked(alias):
        assert not lease.acquire(timeout=0.5)
        assert caplog.messages == [
            "lease 'nightly' is waited for, but the database is locked by another connection; waiting."
        ]
    assert lease.acquire(timeout=PATIENCE)


def test_an_error_that_is_no_lock(leases: Any, alias: str) -> None:
    """``acquire(blocking=False)`` returns False for a database that is locked only: another error is raised."""
    with connections[alias].cursor() as cursor:
        cursor.execute("PRAGMA query_only = 1")
    with pytest.raises(OperationalError, match="readonly"):
        leases().acquire(blocking=False)
    with connections[alias].cursor() as cursor:
        cursor.execute("PRAGMA query_only = 0")


# -- where ------------------------------------------------------------------------------------------------------------


def test_context_manager(leases: Any) -> None:
    """``with`` waits for it, and gives it back, also after an error."""
    lease, other = leases(), leases()

    def block() -> None:
        with lease as held:
            assert held is lease
            assert lease.held
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert not lease.held
    assert other.acquire(blocking=False)


def test_a_database_that_is_locked_when_a_block_ends(leases: Any, alias: str) -> None:
    """Then others take the lease as one of a dead process; an error of the block is not hidden by another one."""
    lease = leases()
    connections[alias].cursor().execute("PRAGMA busy_timeout = 10")
    for another in (leases(), lease):
        lease.acquire()
        with locked(alias):
            lease.__exit__(None, None, None)
        assert not lease.held
        assert another.acquire(blocking=False)
        another.release()
    assert [bell for bell in Path(leases()._holder.rows.bells).rglob("*") if not bell.is_dir()] == []


def test_a_block_in_a_block(leases: Any, alias: str) -> None:
    """A second block of one object is refused, for its end would give up what the first one needs; not one after it."""
    lease = leases()
    with lease:
        with pytest.raises(RuntimeError, match="is in a with block already"), lease:
            pass
        assert lease.held
    with transaction.atomic(using=alias), pytest.raises(RuntimeError, match="inside transaction"), lease:
        pass
    with lease:
        assert lease.held


@pytest.mark.usefixtures("watchful")
def test_an_object_that_is_dropped(leases: Any, boot: BootClock, alias: str) -> None:
    """A lease whose object is dropped goes on to be held, for code may rely on it; a warning says so."""
    other = leases()
    for renewing, until in ((True, "this process ends"), (False, "its ttl is over")):
        lease = Lease("nightly", TTL, alias, renewing)
        holder = lease._holder
        lease.acquire()
        with pytest.warns(ResourceWarning, match=f"'nightly' is held, but was dropped.* until {until}"):
            del lease
        assert not other.acquire(blocking=False)
        for _ in range(4):
            boot.pass_by(TTL / 3)
            wait_until(lambda holder=holder, renewing=renewing: not renewing or holder.renews_in() > 0)
        assert other.acquire(blocking=False) is not renewing
        holder.release()
        other.release()


def test_inside_a_transaction(leases: Any, alias: str) -> None:
    """Inside transaction.atomic it is neither acquired nor renewed: nobody else would see it before the commit."""
    lease = leases()
    with transaction.atomic(using=alias), pytest.raises(RuntimeError, match="cannot be acquired inside transaction"):
        lease.acquire()
    lease.acquire()
    with transaction.atomic(using=alias), pytest.raises(RuntimeError, match="cannot be renewed inside transaction"):
        lease.renew()
    assert lease.held


@pytest.mark.django_db
def test_inside_a_test_case() -> None:
    """In a TestCase (a transaction around each test), and in memory, it works; no thread renews it there."""
    wait_until(lambda: not threads())  # that of another test
    first, second = Lease("x"), Lease("x")
    assert first.acquire()
    assert not second.acquire(blocking=False)
    assert threads() == []
    first.renew()
    first.release()
    with second:
        assert second.held
        with transaction.atomic(), pytest.raises(RuntimeError):
            second.renew()


@pytest.mark.django_db
def test_in_memory_outside_of_a_transaction(django_db_blocker: Any, tmp_path: Any) -> None:
    """The default database of these tests is in memory: what one thread sees is enough for one instance."""
    with Lease("x", ttl=5) as lease:
        assert lease.token == 1


def test_another_alias(leases: Any, alias: str, tmp_path: Any, empty_file: Any) -> None:
    """``using`` names the database: the same name in two databases is two leases."""
    shutil.copy(empty_file, tmp_path / "other.sqlite3")
    first = leases()
    first.acquire()
    connections.settings["second"] = {**connections.settings[alias], "NAME": str(tmp_path / "other.sqlite3")}
    try:
        second = Lease("nightly", using="second", renewing=False)
        assert second.acquire(blocking=False)
        second.release()
        connections["second"].close()
    finally:
        del connections["second"], connections.settings["second"]


def test_the_settings_choose_the_alias(leases: Any, alias: str) -> None:
    """Without ``using`` it is the database of the settings."""
    with leases(using=None):
        assert row(alias).state == "RUNNING"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": ""}, "The name is a text of 1 to 249 characters"),
        ({"name": 7}, "not 7"),
        ({"name": "x" * 250}, "1 to 249"),
        ({"name": "a\0b"}, "without NUL"),
        ({"ttl": 0}, "ttl is 0, but must be 0.1 seconds or more"),
        ({"ttl": 0.09}, "ttl is 0.09, but must be 0.1 seconds or more"),
        ({"ttl": 10**5000}, "ttl is a value of type int, but must be"),
        ({"ttl": 10**400}, r"ttl is 10{39} \.\.\. 0{15}, but must be"),
        ({"using": "nope"}, "There is no database 'nope'; DATABASES has default"),
        ({"ttl": -1}, "ttl is -1"),
        ({"ttl": "30"}, "ttl is '30'"),
        ({"ttl": True}, "ttl is True"),
        ({"ttl": float("nan")}, "ttl is nan"),
        ({"on_lost": 7}, "on_lost is 7, but must be a function"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], said: str) -> None:
    """What is not allowed is refused where the lease is made, with what is."""
    with pytest.raises(ValueError, match=said):
        Lease(**{"name": "x", **arguments})


@pytest.mark.parametrize("timeout", ["1", -1, float("nan"), float("inf"), True])
def test_a_bad_timeout(leases: Any, timeout: Any) -> None:
    """A timeout that is no number of seconds is refused, whether the lease is free or not."""
    with pytest.raises(ValueError, match=f"timeout is {timeout!r}, but must be a number of seconds"):
        leases().acquire(timeout=timeout)


@pytest.mark.parametrize("name", ["a:b", "lease:x", "näch tlich", "x" * 249, "%", "'; --"])
def test_any_name(leases: Any, name: str) -> None:
    """Any text is a name."""
    with leases(name):
        assert not leases(name).acquire(blocking=False)


def test_beside_an_open_cursor(leases: Any, alias: str) -> None:
    """It can be acquired, renewed and released while the caller reads through rows."""
    lease = leases()
    leases("other").acquire()
    cursor = connections[alias].cursor()
    cursor.execute("SELECT 1 UNION SELECT 2 UNION SELECT 3")
    cursor.fetchone()
    lease.acquire()
    lease.renew()
    lease.release()
    assert len(cursor.fetchall()) == 2


def test_threads_share_one(leases: Any) -> None:
    """Threads that acquire one object at once have one lease with one token, and its doorbell."""
    lease, tokens = leases(), []

    def acquire() -> None:
        lease.acquire()
        tokens.append(lease.token)
        connections.close_all()

    together = [threading.Thread(target=acquire) for _ in range(8)]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    assert set(tokens) == {1}
    assert not leases().acquire(blocking=False)


def test_a_connection_that_is_opened_anew(leases: Any, boot: BootClock, alias: str) -> None:
    """Who closes the connection between two tries, as each request does, takes a lease as soon as it has ended."""
    leases().acquire()
    waiting = leases()
    assert not waiting.acquire(blocking=False)
    connections[alias].close()
    boot.pass_by(TTL)
    assert waiting.acquire(blocking=False)


def test_without_a_thread_to_renew_it_is_given_back(leases: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may refuse one more thread: then acquire raises, and another instance can have it at once."""
    lease, start = leases(renewing=True), threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("lease "):
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            lease.acquire()
    assert not lease.held
    assert leases().acquire(blocking=False)


@pytest.mark.usefixtures("watchful")
def test_the_file_is_exchanged(leases: Any, boot: BootClock, alias: str, empty_file: Any) -> None:
    """When a backup takes the place of the database, the lease of the old one is lost, and can be acquired there."""
    lease = leases(renewing=True)
    lease.acquire()
    pass_by_renewals(lease, boot, 1)  # the thread has opened the old one
    path = connections[alias].settings_dict["NAME"]
    shutil.copy(empty_file, f"{path}.new")
    os.replace(f"{path}.new", path)
    boot.pass_by(TTL / 2)
    wait_until(lambda: lease._holder._renew_at > boot() or not threads())  # it has failed to renew it
    boot.pass_by(TTL / 2)
    wait_until(lambda: not threads())
    assert not lease.held
    connections[alias].close()
    for beside in ("-wal", "-shm"):
        if os.path.exists(path + beside):
            os.unlink(path + beside)
    assert lease.acquire(timeout=PATIENCE)
