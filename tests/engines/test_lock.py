"""SQLite's write lock: taken fairly, on a connection that stays the user's own."""

import gc
import shutil
import sqlite3
import sys
import threading
import time as real_time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from queue import SimpleQueue
from random import random
from typing import Any
from uuid import uuid4

import pytest
from django.db import DatabaseError, OperationalError, ProgrammingError, connections

from django_vtqueue import LeaseLost, Queue
from django_vtqueue.core.job import NewJobs
from django_vtqueue.engines import Trouble, new_engine
from django_vtqueue.exceptions import TaskTimeout
from django_vtqueue.fields import StoredText
from django_vtqueue.models import DeadLetter, Job
from django_vtqueue.queue.dead_letters import requeue
from django_vtqueue.runtime.timeouts import raise_in

from ..conftest import claimed, reached
from ..waiting import PATIENCE, PROMPT


@contextmanager
def locked(alias: str, how: str = "IMMEDIATE") -> Iterator[None]:
    """Hold the write lock in another connection."""
    path = connections[alias].settings_dict["NAME"]
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(f"BEGIN {how}")
        yield
        other.execute("ROLLBACK")


def busy_timeout(alias: str) -> int:
    """Return the busy timeout of this thread's connection, in milliseconds."""
    with connections[alias].cursor() as cursor:
        return int(cursor.execute("PRAGMA busy_timeout").fetchone()[0])


def test_the_busy_timeout_is_as_the_user_set_it(queue: Queue, alias: str) -> None:
    """After every verb, whether it succeeded or not: it is the user's connection."""
    with connections[alias].cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 4321")

    def damaged() -> None:
        Job.objects.using(alias).filter(state="READY").update(payload=StoredText("{"))
        assert queue.claim() is None

    def refused() -> None:
        stale = claimed(queue)
        Job.objects.using(alias).filter(pk=stale.id).update(claims=9)
        with pytest.raises(LeaseLost):
            stale.ack()

    def unstorable() -> None:
        with pytest.raises(Exception, match="CHECK"):
            queue._engine.insert(new_jobs(priority=999))

    for act in (
        lambda: queue.publish("a"),
        lambda: queue.publish_many(["b", "c", "d", "e", "f"]),
        lambda: queue.claim().ack(),  # type: ignore[union-attr]
        lambda: queue.claim().nack(delay=100),  # type: ignore[union-attr]
        lambda: queue.claim().release(),  # type: ignore[union-attr]
        lambda: queue.claim().extend(),  # type: ignore[union-attr]
        refused,
        damaged,
        unstorable,
        queue.purge,
        queue.claim,
        lambda: requeue([letter.pk for letter in DeadLetter.objects.using(alias)], using=alias),
    ):
        act()
        assert busy_timeout(alias) == 4321


def new_jobs(priority: int) -> Any:
    return NewJobs("sensors", "", priority, 1, 1, 0, 0, [(uuid4().hex, "1")])


@contextmanager
def executed(alias: str) -> Iterator[list[str]]:
    """Give a list that grows by each statement that this thread's connection executes."""
    statements: list[str] = []
    raw = connections[alias].connection
    raw.set_trace_callback(statements.append)
    yield statements
    raw.set_trace_callback(None)


def test_a_publish_executes_one_statement_on_data(queue: Queue, alias: str) -> None:
    """In a transaction of its own, before which something is read; the user's timeout is not touched."""
    queue.publish("first")
    with executed(alias) as statements:
        queue.publish("x")
    assert [sql.split()[0] for sql in statements] == ["PRAGMA", "BEGIN", "INSERT", "COMMIT"]
    assert "busy_timeout" not in statements[0]


def test_a_publish_asks_for_the_lock_again_and_again(queue: Queue, alias: str) -> None:
    """SQLite's own handler would sleep for longer and longer inside of one BEGIN."""
    with connections[alias].cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 300")
    with locked(alias), executed(alias) as statements, pytest.raises(OperationalError, match="locked"):
        queue.publish("x")
    assert statements.count("BEGIN IMMEDIATE") > 10


def test_publishing_alone_keeps_the_log_short(queue: Queue, alias: str) -> None:
    """What a publish reads to be refused the lock at once must not keep SQLite from beginning its log anew."""
    with connections[alias].cursor() as cursor:
        cursor.execute("PRAGMA wal_autocheckpoint = 20")
    log = Path(f"{connections[alias].settings_dict['NAME']}-wal")
    queue.publish("first")
    largest = 0
    for number in range(200):
        queue.publish(f"{number}")
        largest = max(largest, log.stat().st_size)
    assert largest < 60 * 4120


def test_the_busy_timeout_is_restored_when_the_database_stays_locked(queue: Queue, alias: str) -> None:
    """A publish waits for as long as the user's timeout says, not longer, and raises what Django raises."""
    with connections[alias].cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 300")
    with locked(alias):
        began = real_time.monotonic()
        with pytest.raises(OperationalError, match="locked"):
            queue.publish("x")
        assert 0.29 <= real_time.monotonic() - began < PROMPT
    assert busy_timeout(alias) == 300
    queue.publish("x")


def without_wal(alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect anew to a file with a rollback journal, Django's default."""
    monkeypatch.setitem(connections[alias].settings_dict["OPTIONS"], "init_command", "PRAGMA journal_mode = DELETE")
    connections[alias].close()
    connections[alias].connect()


def test_without_wal_a_publish_waits_no_longer(queue: Queue, alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one connection commits no other may begin to read; the two waits count as one for the user."""
    without_wal(alias, monkeypatch)
    with connections[alias].cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 3000")
    with locked(alias, "EXCLUSIVE"):
        began = real_time.monotonic()
        with pytest.raises(OperationalError, match="locked"):
            queue.publish("x")
        assert 2.99 <= real_time.monotonic() - began < 5.9


# Python itself opens a folder and enters its ``with`` in two steps; what was opened in between is closed as garbage.
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
def test_a_timeout_in_the_midst_of_a_publish_leaves_nothing_open(queue: Queue, alias: str) -> None:
    """TaskTimeout is raised in a thread at any point. An open transaction would keep all others from writing."""
    queue.publish("first")
    raw, publisher = connections[alias].connection, threading.get_ident()
    asked: SimpleQueue[bool] = SimpleQueue()
    shot = threading.Event()

    def shoot() -> None:
        while asked.get():
            real_time.sleep(random() * 0.001)
            raise_in(publisher, TaskTimeout)
            shot.set()

    def publish() -> None:
        shot.clear()
        asked.put(True)
        while not shot.is_set():
            queue.publish("x")
        real_time.sleep(0)  # else it was raised in a doorbell, which ignores each OSError
        raise TaskTimeout

    shooter = threading.Thread(target=shoot)
    shooter.start()
    try:
        for _ in range(200):
            with pytest.raises(TaskTimeout):
                publish()
            assert not raw.in_transaction
            assert busy_timeout(alias) == 20_000
    finally:
        asked.put(False)
        shooter.join()


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage in the block: the callbacks of a collection are calls too, and not those of a publish."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("how", ["free", "locked"])
def test_a_timeout_at_any_call_of_a_publish_leaves_nothing_behind(queue: Queue, alias: str, how: str) -> None:
    """Neither a transaction, if it is raised a moment before the ROLLBACK, nor another busy timeout than the user's."""
    queue.publish("first")
    raw, left = connections[alias].connection, 0
    with connections[alias].cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 2")

    def interrupt(frame: Any, event: str, argument: object) -> None:
        nonlocal left
        left -= event == "call"
        if not left:
            sys.setprofile(None)
            raise TaskTimeout

    struck = []
    with locked(alias) if how == "locked" else nullcontext(), uncollected():
        for number in range(1, 200):
            left = number
            sys.setprofile(interrupt)
            try:
                queue.publish("x")
            except OperationalError:
                assert how == "locked"
            except TaskTimeout:
                struck.append(number)
            finally:
                sys.setprofile(None)
            assert not raw.in_transaction
            assert busy_timeout(alias) == 2
    assert 30 < len(struck) < 199


def test_nothing_is_executed_on_the_connection_of_another_thread(queue: Queue, alias: str) -> None:
    """Who shares it by mistake is refused, as by Django, before what its owner does at that moment is disturbed."""
    queue.publish("first")
    owned, refused = connections[alias], []

    def publish() -> None:
        connections[alias] = owned
        with pytest.raises(DatabaseError, match="created in a thread"):
            queue.publish("x")
        refused.append(True)

    with executed(alias) as statements:
        thread = threading.Thread(target=publish)
        thread.start()
        thread.join()
    assert refused
    assert statements == []


@pytest.mark.parametrize("when", ["before", "inside"])
def test_a_connection_that_is_closed_is_an_error_of_djangos(queue: Queue, alias: str, when: str) -> None:
    """Whenever the driver's connection is closed by other code, the error can be caught as that of any query."""
    queue.publish("first")
    connection, engine = connections[alias], queue._engine
    if when == "before":
        connection.connection.close()
    with pytest.raises(ProgrammingError, match="closed"), engine.transaction():
        connection.connection.close()
    with pytest.raises(ProgrammingError, match="closed"):
        queue.publish("x")
    connection.close()
    queue.publish("x")


def test_a_transaction_of_the_user_is_not_ended(queue: Queue, alias: str) -> None:
    """Neither Django nor the queue knows of a BEGIN by hand; it is left to the code that has executed it."""
    queue.publish("first")
    raw = connections[alias].connection
    raw.execute("BEGIN")
    with pytest.raises(OperationalError, match="within a transaction"):
        queue.publish("x")
    assert raw.in_transaction
    raw.execute("ROLLBACK")
    queue.publish("x")


def test_a_timeout_of_0_does_not_wait(queue: Queue, alias: str) -> None:
    """A connection with timeout 0 is answered at once."""
    with connections[alias].cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 0")
    with locked(alias), pytest.raises(OperationalError, match="locked"):
        queue.publish("x")
    assert busy_timeout(alias) == 0


def test_a_publish_that_waits_for_a_reader_keeps_its_place(
    queue: Queue, alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without WAL a commit waits for who reads; others who come to read wait behind it, or it would never have an end.

    It had no turn if new readers were let in for as long as it waits.
    """
    path = connections[alias].settings_dict["NAME"]
    without_wal(alias, monkeypatch)

    def publish() -> None:
        queue.publish("x")
        connections.close_all()

    with closing(sqlite3.connect(path, isolation_level=None)) as reader, closing(sqlite3.connect(path)) as late:
        late.execute("PRAGMA busy_timeout = 0")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM vtqueue_job").fetchall()
        publisher = threading.Thread(target=publish)
        publisher.start()
        refused, deadline = 0, real_time.monotonic() + PATIENCE
        while refused < 50 and real_time.monotonic() < deadline:
            try:
                late.execute("SELECT * FROM vtqueue_job").fetchall()
                refused = 0
            except sqlite3.OperationalError:
                refused += 1
            real_time.sleep(0.0005)
        reader.execute("COMMIT")
        publisher.join()
    assert refused == 50
    assert len(queue) == 1


def test_a_worker_does_not_wait_in_the_database(queue: Queue, alias: str) -> None:
    """Its control loop gets the error of a locked database at once, whatever the timeout, and knows that it passes."""
    engine = new_engine(alias, traced=False)
    began = real_time.monotonic()
    with locked(alias), engine.without_lock_waits(), pytest.raises(OperationalError) as caught, engine.transaction():
        pytest.fail("no other connection holds the lock")
    assert engine.trouble(caught.value) is Trouble.BUSY
    assert real_time.monotonic() - began < PROMPT
    assert busy_timeout(alias) == 20_000


def test_without_wal_the_commit_of_a_worker_waits_for_a_look(
    queue: Queue, alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads for a moment does not make a turn fail whose work is done; who reads for long does, after a second."""
    without_wal(alias, monkeypatch)
    engine = new_engine(alias, traced=False)

    def turn() -> None:
        with engine.transaction():
            Job.objects.using(alias).update(priority=1)

    queue.publish("x")
    path = connections[alias].settings_dict["NAME"]
    with (
        engine.without_lock_waits(),
        closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as reader,
    ):
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM vtqueue_job").fetchall()
        timer = threading.Timer(0.2, reader.execute, ["COMMIT"])
        timer.start()
        turn()
        timer.join()
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM vtqueue_job").fetchall()
        with pytest.raises(OperationalError) as caught:
            turn()
        assert engine.trouble(caught.value) is Trouble.BUSY
    assert Job.objects.using(alias).get().priority == 1


def test_an_empty_queue_is_found_empty_without_the_write_lock(queue: Queue, alias: str) -> None:
    """A claim that finds nothing neither disturbs other connections nor is disturbed by them."""
    queue.publish("later", delay=1000)
    with connections[alias].cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 0")
    with locked(alias):
        assert queue.claim() is None
        assert len(queue) == 1


def test_a_claim_looks_once(queue: Queue, alias: str) -> None:
    """What is due is found by a read, and leased under a lock that is refused if another connection has written."""
    queue.publish_many(["first", "x", "y"])
    claimed(queue)
    with executed(alias) as statements:
        claimed(queue)
    assert [sql.split()[0] for sql in statements] == [
        "PRAGMA",
        "SELECT",
        "SELECT",
        "SELECT",
        "SELECT",
        "BEGIN",
        "UPDATE",
        "COMMIT",
        "SELECT",
    ]
    assert "busy_timeout" not in statements[0]


@pytest.mark.parametrize("wal", [True, False])
def test_the_look_is_repeated_if_another_connection_has_written_since(
    queue: Queue, alias: str, monkeypatch: pytest.MonkeyPatch, wal: bool
) -> None:
    """As if it had been looked for under the lock: a queue that was paused a moment before the lock yields nothing."""
    if not wal:
        without_wal(alias, monkeypatch)
    queue.publish("x")
    engine, path = queue._engine, connections[alias].settings_dict["NAME"]
    answers = iter([["old"], ["new"]])
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other:

        def look(waited: float) -> list[str]:
            found = next(answers)
            if found == ["old"] and wal:
                other.execute("DELETE FROM vtqueue_job")
            elif found == ["old"]:  # who reads keeps others from writing
                with pytest.raises(sqlite3.OperationalError, match="locked"):
                    other.execute("DELETE FROM vtqueue_job")
            return found

        with engine.transaction_if(look) as found:
            assert found == (["new"] if wal else ["old"])
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("BEGIN IMMEDIATE")
        other.execute("BEGIN IMMEDIATE")
    assert busy_timeout(alias) == 20_000


def test_what_is_gone_when_it_is_looked_for_again_locks_nothing_for_long(queue: Queue, alias: str) -> None:
    """The transaction that was begun for it ends, and the next claim is as any other."""
    queue.publish("x")
    raw, path = connections[alias].connection, connections[alias].settings_dict["NAME"]
    answers = iter([["old"], []])
    with closing(sqlite3.connect(path, isolation_level=None)) as other:

        def look(waited: float) -> list[str]:
            found = next(answers)
            if found:
                other.execute("UPDATE vtqueue_job SET priority = 1")
            return found

        with queue._engine.transaction_if(look) as found:
            assert found == []
    assert not raw.in_transaction
    assert claimed(queue).priority == 1


def nothing(waited: float) -> list[str]:
    return []


def test_who_finds_nothing_is_in_no_transaction(queue: Queue, alias: str) -> None:
    """Nor does an error while looking leave one open; the user's own one is left to the user."""
    queue.publish("first")
    engine, raw = queue._engine, connections[alias].connection
    with locked(alias), engine.transaction_if(nothing) as found:
        assert found == []
        assert not raw.in_transaction
    with pytest.raises(ZeroDivisionError), engine.transaction_if(lambda waited: 1 / 0):
        pytest.fail("it did not look")
    assert not raw.in_transaction
    raw.execute("BEGIN")
    with engine.transaction_if(nothing):
        pass
    assert raw.in_transaction
    raw.execute("ROLLBACK")


def test_a_claim_that_waited_for_the_lock_takes_what_is_first_then(queue: Queue, alias: str) -> None:
    """Not what was first when it began to wait."""
    queue.publish("low")
    path = connections[alias].settings_dict["NAME"]
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE vtqueue_job SET payload = '\"changed\"', priority = 7")
        timer = threading.Timer(0.3, other.execute, ["COMMIT"])
        timer.start()
        job = claimed(queue)
        timer.join()  # whoever closes a connection amid its COMMIT ends the process
    assert (job.payload, job.priority) == ("changed", 7)


def test_a_transaction_of_django_waits_as_fairly(alias: str) -> None:
    """It asks for the lock as our own do, not by SQLite's busy handler, whatever the transaction mode is.

    Beside writers that follow each other closely that handler got the lock after 10 s, or not at all (measured).
    """
    engine, connection = new_engine(alias), connections[alias]
    connection.ensure_connection()
    for mode in ("IMMEDIATE", None):
        said: list[str] = []
        usual, connection.transaction_mode = connection.transaction_mode, mode  # type: ignore[attr-defined]
        connection.connection.set_trace_callback(said.append)
        try:
            with engine.atomic():
                began = said.copy()
        finally:
            connection.connection.set_trace_callback(None)
            connection.transaction_mode = usual  # type: ignore[attr-defined]
        begin = max(index for index, statement in enumerate(began) if statement.startswith("BEGIN"))
        assert began[begin] == "BEGIN IMMEDIATE"
        assert began[begin - 1] == "PRAGMA busy_timeout = 0"
        assert began[begin + 1].startswith("PRAGMA busy_timeout = ")


def test_control_loops_leave_the_switch_interval_as_it_was(alias: str, empty_file: Path, tmp_path: Path) -> None:
    """That of a worker and that of a leader, say, of which the first to begin is the first to end."""
    usual = sys.getswitchinterval()
    other = {"NAME": shutil.copy(empty_file, tmp_path / "other")}
    with reached(other, "other") as other_alias, ExitStack() as stack:
        transactions = []
        for engine in map(new_engine, (alias, other_alias)):
            stack.enter_context(engine.without_lock_waits())
            transactions.append(engine.transaction())
            transactions[-1].__enter__()
            assert sys.getswitchinterval() < usual
        for transaction in transactions:
            transaction.__exit__(None, None, None)
        assert sys.getswitchinterval() == usual
