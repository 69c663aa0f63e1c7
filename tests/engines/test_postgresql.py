"""What only a database with many writers can get wrong, and a worker on it that is killed.

``VTQUEUE_RACES``: how often each race is run.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, connections, transaction
from django.db.backends.signals import connection_created
from pytest_django import DjangoDbBlocker, Settings

from django_vtqueue import Lease, LeaseLost, Queue, control
from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.conf import parse
from django_vtqueue.core import clock, history
from django_vtqueue.core.clock import LAST_INSTANT, SECOND, from_instant
from django_vtqueue.core.failures import recorded
from django_vtqueue.core.ids import new_id
from django_vtqueue.core.job import ClaimKey, HeldJob, NewJobs, Scope, StoredJob
from django_vtqueue.core.settlement import failed, succeeded, suspended
from django_vtqueue.core.steps import GATHER, Waiting
from django_vtqueue.engines import Engine, Trouble, engine_for, new_engine
from django_vtqueue.engines.postgresql import connection
from django_vtqueue.engines.postgresql.limits import UNPARK
from django_vtqueue.execution.transactional import NotBegun, settle_with
from django_vtqueue.inspection.overview import backlogs
from django_vtqueue.models import DeadLetter, Job, Schedule, WorkerProcess
from django_vtqueue.queue.claims import Claims, collect
from django_vtqueue.queue.limits import Limits
from django_vtqueue.queue.settling import settle
from django_vtqueue.recurrence.control import run_now
from django_vtqueue.recurrence.firing import note_ends
from django_vtqueue.tasks.ledger import Ledger
from django_vtqueue.worker.heartbeat import Heartbeat
from tests.conftest import reached
from tests.fake_clock import at
from tests.postgresql import Server
from tests.project import tasks
from tests.projects import Project
from tests.waiting import PATIENCE, PROMPT, wait_until

RACES = int(os.environ.get("VTQUEUE_RACES", "100"))
THREADS = 3
LONGEST_RUN = 86_400 * SECOND


@pytest.fixture
def engine(postgresql_database: str) -> Engine:
    return engine_for(postgresql_database)


@pytest.fixture
def isolated(migrated: dict[str, Any], postgresql_database: str) -> Iterator[Engine]:
    """Return the engine of a project that sets REPEATABLE READ, as its server does."""
    options = {"isolation_level": 3, "options": r"-c default_transaction_isolation=repeatable\ read"}
    with reached({**migrated, "OPTIONS": options}, "isolated") as alias:
        yield engine_for(alias)


@contextmanager
def threads(count: int = THREADS) -> Iterator[ThreadPoolExecutor]:
    """Yield threads whose connections are closed at the end."""
    with ThreadPoolExecutor(count) as pool:
        yield pool
        barrier = threading.Barrier(count)
        for each in [pool.submit(lambda: (barrier.wait(), connections.close_all())) for _ in range(count)]:
            each.result()


def at_once(pool: ThreadPoolExecutor, *calls: Callable[[], Any]) -> None:
    """Make calls in threads at the same moment."""
    barrier = threading.Barrier(len(calls))

    def call(each: Callable[[], Any]) -> None:
        barrier.wait()
        each()

    for future in [pool.submit(call, each) for each in calls]:
        future.result()


def publish(engine: Engine, count: int, task: str = "app.task", parent_id: str | None = None, **keys: Any) -> list[str]:
    ids = [new_id() for _ in range(count)]
    new = NewJobs("q", task, 0, 3, 60_000_000, at(0), at(0), [(job_id, "{}") for job_id in ids], parent_id=parent_id)
    for name, key in keys.items():
        setattr(new, name, key if name == "ordered" else [key] * count)
    (engine.insert_with_keys if new.has_options else engine.insert)(new)
    return ids


def claim(engine: Engine, limits: Limits, worker: str, limit: int = 2) -> list[HeldJob]:
    with engine.transaction():
        taken = Claims(engine, limits).claim([Scope(None, raw=False)], limit, worker, at(1))
    return collect(engine, taken)


def end(engine: Engine, job: HeldJob) -> None:
    with engine.transaction():
        assert settle(engine, [succeeded(job, "null", at(2), None)]) == set()


KEYS = {"concurrency": ({"concurrency": 2}, 2), "order": ({"order_key": str}, 1)}


@pytest.mark.parametrize("options", KEYS)
def test_claims_that_count_one_limit(engine: Engine, options: str) -> None:
    """Of a key no more jobs run at once than may, and none stays parked when the last holder of the key has ended.

    No look gives it back: what is parked while a holder ends is given back by that.
    """
    given, most = KEYS[options]
    limits = Limits(task_options={"app.task": given}.get)
    run(engine, limits, most, concurrency_keys="k", ordered=options == "order")


def test_a_worker_leaves_beside_a_lock_on_its_row(engine: Engine) -> None:
    """Its end does not wait for whoever has its row locked, an admin's open transaction, say."""
    backend = VTQueueBackend("default", {"QUEUES": [], "OPTIONS": {"database": engine.alias}})
    heartbeat, rows = Heartbeat(engine, backend, "w", [], 1, ""), WorkerProcess.objects.using(engine.alias)
    heartbeat.beat()
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic(using=engine.alias):
            rows.update(memory=1)
            held.set()
            over.wait(PATIENCE)

    with threads(1) as pool:
        holding = pool.submit(hold)
        assert held.wait(PATIENCE)
        assert not heartbeat.sign_off(0.1)
        assert not holding.done()
        over.set()
        holding.result()
    assert rows.exists()
    assert heartbeat.sign_off()
    assert not rows.exists()


def test_a_transactional_step_at_repeatable_read(isolated: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal that the worker commits as the step begins is waited out: it costs the task no attempt."""
    publish(isolated, 1)
    [job] = claim(isolated, Limits(), "w", 1)
    renew, raced = type(isolated).renew, threading.Event()

    def beside(*given: Any) -> set[ClaimKey]:
        if not raced.is_set():
            raced.set()
            with threads(1) as pool:
                assert pool.submit(renew, *given).result() == set()
        return renew(*given)

    monkeypatch.setattr(type(isolated), "renew", beside)
    with Ledger(job=job, database=isolated.alias).one_transaction():
        assert raced.is_set()


def test_claims_at_repeatable_read(isolated: Engine) -> None:
    """No claim and no settlement is refused because another one has changed a row of the same key."""
    run(isolated, Limits(task_options={"app.task": {"concurrency": 2}}.get), 2, concurrency_keys="k")


def test_claims_that_count_one_queue(engine: Engine) -> None:
    """Of a queue no more jobs run at once than may."""
    limits = Limits(parse({"OPTIONS": {"queue_options": {"q": {"concurrency": 2}}}}), {"app.task": {}}.get)
    run(engine, limits, 2)


def test_what_ends_holders_of_many_keys_is_not_compiled(engine: Engine) -> None:
    """To compile the look for parked jobs of 500 keys took 1.5 s, with their locks held; the look takes 9 ms."""
    said = list[str]()

    def explained(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql is UNPARK:
            said.extend(row[0] for row in execute(f"EXPLAIN {sql}", params, many, context).fetchall())
        return execute(sql, params, many, context)

    with connections[engine.alias].execute_wrapper(explained):
        engine.unpark({f"k{number}": 1 for number in range(500)})
    assert said
    assert "JIT:" not in said


@pytest.mark.parametrize("usual", ["on", "off"])
def test_a_transaction_of_the_project_goes_on_to_compile(engine: Engine, usual: str) -> None:
    """What ends holders of many keys, and what counts what is due, leave its settings as they were."""
    with transaction.atomic(using=engine.alias), connections[engine.alias].cursor() as cursor:
        cursor.execute(f"SET LOCAL jit = {usual}")
        engine.unpark({f"k{number}": 1 for number in range(500)})
        cursor.execute("SHOW jit")
        assert cursor.fetchone() == (usual,)
        with engine.snapshot() as now:
            backlogs(engine.alias, ["default"], now, 10)
        cursor.execute("SHOW jit")
        assert cursor.fetchone() == (usual,)


def run(engine: Engine, limits: Limits, most: int, **keys: Any) -> None:
    publish(engine, RACES, **keys)
    running, highest, done, lock = 0, 0, 0, threading.Lock()
    deadline = time.monotonic() + 60 + RACES / 20

    def work(worker: str) -> None:
        nonlocal running, highest, done
        while done < RACES and time.monotonic() < deadline:
            jobs = claim(engine, limits, worker)
            with lock:
                running += len(jobs)
                highest = max(highest, running)
            for job in jobs:
                with lock:
                    running -= 1
                end(engine, job)
                done += 1

    with threads() as pool:
        at_once(pool, *(lambda worker=f"w{n}": work(worker) for n in range(THREADS)))
    parked = Job.objects.using(engine.alias).filter(state="BLOCKED").count()
    assert (done, highest <= most, parked) == (RACES, True, 0)


def parent_of(engine: Engine, count: int) -> tuple[HeldJob, list[HeldJob]]:
    """Return a parent that is about to wait for so many children, and these; all are held."""
    publish(engine, 1, "app.parent")
    [parent] = claim(engine, Limits(), "p")
    note_children(engine, parent, publish(engine, count, parent_id=parent.id))
    return parent, claim(engine, Limits(), "c")


def note_children(engine: Engine, parent: HeldJob, children: list[str]) -> None:
    """Store for which children a parent is about to wait."""
    assert engine.write_steps(parent, json.dumps([{"kind": GATHER, "name": "all", "children": children}]), at(1))


def wait(engine: Engine, parent: HeldJob) -> None:
    with engine.transaction():
        assert settle(engine, [suspended(parent, Waiting(GATHER, "all", LAST_INSTANT, at(1)))]) == set()


def is_due(engine: Engine, parent: HeldJob) -> bool:
    job = engine.find(parent.id)
    return job is not None and job.state == "READY"


def test_two_last_children_of_one_parent(engine: Engine) -> None:
    """Whichever ends last wakes the parent, also if each has not seen the other's end when it began."""
    with threads(2) as pool:
        for _ in range(RACES):
            parent, (one, other) = parent_of(engine, 2)
            wait(engine, parent)
            at_once(pool, lambda: end(engine, one), lambda: end(engine, other))  # noqa: B023
            assert is_due(engine, parent)
            end(engine, claim(engine, Limits(), "p")[0])


def test_the_last_child_ends_while_the_parent_begins_to_wait(engine: Engine) -> None:
    """The parent is due in any case."""
    with threads(2) as pool:
        for _ in range(RACES):
            parent, [child] = parent_of(engine, 1)
            at_once(pool, lambda: end(engine, child), lambda: wait(engine, parent))  # noqa: B023
            assert is_due(engine, parent)
            end(engine, claim(engine, Limits(), "p")[0])


@pytest.mark.parametrize("name", ["engine", "isolated"])
def test_one_key_of_many_publishers(request: pytest.FixtureRequest, name: str) -> None:
    """Publishers of one unique key at the same moment make one job, and none is refused, at any isolation level."""
    engine = request.getfixturevalue(name)
    with threads() as pool:
        for number in range(RACES):
            at_once(pool, *[lambda: publish(engine, 1, unique_keys=f"k{number}")] * THREADS)  # noqa: B023
    assert Job.objects.using(engine.alias).count() == RACES


def test_two_copies_of_a_job_that_fail_at_once(engine: Engine) -> None:
    """Neither overwrites what the other has written: both failures are kept, and the last one ends the job."""
    overflow = {"q": (LONGEST_RUN, 2)}

    def copy(worker: str, now: int) -> HeldJob:
        with engine.transaction():
            taken = Claims(engine, overflow=overflow).claim([Scope(None, True, worker)], 1, worker, now)
        [job] = collect(engine, taken)
        return job

    def fail(job: HeldJob) -> None:
        with engine.transaction():
            told = recorded(ValueError, "no luck")
            assert not settle(engine, [failed(job, history.FAILED, told, engine.now(), None)])

    with threads(2) as pool:
        for number in range(max(RACES // 3, 30)):
            Queue("q", engine.alias, max_attempts=1, visibility_timeout=60).publish(number)
            began = engine.now()
            both = copy("w1", began), copy("w2", began + 61 * SECOND)
            assert both[0].id == both[1].id
            at_once(pool, *(partial(fail, job) for job in both))
            row = engine.find(both[0].id)
            assert row is not None
            assert (row.state, [entry.get("worker") for entry in sorted_by_worker(row)]) == ("FAILED", ["w1", "w2"])


def sorted_by_worker(row: StoredJob) -> list[history.Entry]:
    return sorted(history.read(row.history), key=lambda entry: str(entry.get("worker")))


CROSSING = [[f"k{number:03}" for number in order] for order in (range(300), range(299, -1, -1))]


def test_bulks_of_the_same_keys_in_opposite_orders(postgresql_database: str) -> None:
    """They wait for each other, and are not refused as a deadlock; each gets its ids in the order that it has given."""
    queue, got = Queue("q", postgresql_database), {}

    def publish_all(keys: list[str], on_duplicate: Any) -> None:
        got[keys[0]] = queue.publish_many(keys, unique_key=keys, on_duplicate=on_duplicate)

    with threads(2) as pool:
        for number in range(max(RACES // 10, 10)):
            Job.objects.using(postgresql_database).all().delete()
            kind = "replace" if number % 2 else "keep"
            at_once(pool, *(partial(publish_all, keys, kind) for keys in CROSSING))
            known = dict(Job.objects.using(postgresql_database).values_list("unique_key", "pk"))
            assert [got[keys[0]] for keys in CROSSING] == [[known[key] for key in keys] for keys in CROSSING]


def test_a_parent_that_is_cancelled_while_its_children_end(engine: Engine) -> None:
    """They wait for each other, and are not refused as a deadlock: all children end, or are asked to stop."""

    def end_all(children: list[HeldJob]) -> None:
        for child in children:
            end(engine, child)

    with threads(3) as pool:
        for _ in range(max(RACES // 10, 10)):
            Job.objects.using(engine.alias).all().delete()
            [parent] = publish(engine, 1)
            publish(engine, 60, parent_id=parent)
            _, *children = claim(engine, Limits(parse({})), "w", 61)
            ends = [partial(end_all, some) for some in (children[:30], children[30:])]
            at_once(pool, *ends, partial(control.cancel, [parent], using=engine.alias))
            assert Job.objects.using(engine.alias).filter(state="SUCCESSFUL").count() == 60
            assert Job.objects.using(engine.alias).get(pk=parent).cancelled_at


def test_requeues_of_the_same_keys_in_opposite_orders(engine: Engine) -> None:
    """They wait for each other, too, and for a bulk of these keys: of a key one comes back, the others stay letters."""
    letters, jobs = (model.objects.using(engine.alias) for model in (DeadLetter, Job))
    with threads(3) as pool:
        for _ in range(max(RACES // 10, 10)):
            jobs.all().delete()
            letters.all().delete()
            given = [new_letters(engine, *keys) for keys in CROSSING]
            bulk = partial(Queue("q", engine.alias).publish_many, CROSSING[0], unique_key=CROSSING[0])
            at_once(pool, *(partial(engine.requeue, ids, at(1)) for ids in given), bulk)
            assert (jobs.count(), letters.count()) == (300, 600 - jobs.exclude(claims=0).count())


def test_a_letter_that_is_discarded_while_it_is_requeued(engine: Engine) -> None:
    """Whoever has the letter first has it: what is gone when the requeue comes to it does not run."""
    [letter_id] = new_letters(engine, "k")
    with threads(1) as pool, while_locked(engine, DeadLetter.objects.using(engine.alias).delete):
        requeued = pool.submit(engine.requeue, [letter_id], at(1))
    assert (requeued.result(), Job.objects.using(engine.alias).count()) == (set(), 0)


def test_a_job_of_a_schedule_while_the_end_of_another_is_noted(engine: Engine) -> None:
    """Neither is lost in the row of the schedule."""
    schedules = Schedule.objects.using(engine.alias)
    old, new = ({"id": new_id(), "at": tick} for tick in (1, 2))
    schedules.create(name="s", task_path="x", expression="every 60", payload={"args": [], "kwargs": {}}, recent=[old])
    with threads(1) as pool, while_locked(engine, lambda: schedules.update(recent=[new, old])):
        noted = pool.submit(note_ends, engine, "s", at(1))
    assert not noted.result()
    assert [run["id"] for run in schedules.get().recent] == [new["id"], old["id"]]


def test_two_that_run_a_schedule_at_once(engine: Engine, settings: Settings) -> None:
    """The row of the schedule has both jobs."""
    backend = {"BACKEND": "django_vtqueue.backend.VTQueueBackend", "QUEUES": [], "OPTIONS": {"database": engine.alias}}
    settings.TASKS = {"default": backend}
    payload = {"args": [1, 2], "kwargs": {}}
    row = Schedule(name="s", task_path=tasks.add.module_path, expression="every 60", payload=payload, overlap=True)
    row.save(using=engine.alias)
    with threads(2) as pool:
        for _ in range(10):
            at_once(pool, *[lambda: run_now(row, engine.alias)] * 2)
    assert len(Schedule.objects.using(engine.alias).get().recent) == 20


@contextmanager
def while_locked(engine: Engine, write: Callable[[], Any]) -> Iterator[None]:
    """Write in a transaction that is committed when another connection, which the block sets to work, waits for it."""
    with transaction.atomic(using=engine.alias), connections[engine.alias].cursor() as cursor:
        write()
        yield

        def waits() -> bool:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            return bool(cursor.fetchone()[0])

        wait_until(waits)


def new_letters(engine: Engine, *keys: str) -> list[str]:
    values = {"queue_name": "q", "task_path": "", "max_attempts": 1, "lease_us": SECOND, "claims": 1}
    values |= {"enqueued_at": from_instant(at(0)), "died_at": from_instant(at(0))}
    letters = [DeadLetter(id=UUID(new_id()), unique_key=key, **values) for key in keys]
    return [letter.pk.hex for letter in DeadLetter.objects.using(engine.alias).bulk_create(letters)]


def test_one_leader(postgresql_database: str) -> None:
    """Instances that ask at the same moment never lead at once, and each term has a token of its own."""
    leading, tokens, lock = [0], [], threading.Lock()

    def lead() -> None:
        for _ in range(max(RACES // 10, 3)):
            lease = Lease("nightly", ttl=30, using=postgresql_database, renewing=False)
            while not lease.acquire(blocking=False):
                time.sleep(0)
            with lock:
                leading[0] += 1
                assert leading[0] == 1
                tokens.append(lease.token)
            with lock:
                leading[0] -= 1
            lease.release()

    with threads() as pool:
        at_once(pool, *[lead] * THREADS)
    assert len({*tokens}) == len(tokens)


def test_a_lock_keeps_no_lease_waiting(postgresql_database: str) -> None:
    """While its row is locked: on_lost is called when the lease ends, ``renew`` raises by then, and who may not wait
    does not acquire it.
    """
    lost = threading.Event()
    kept, mine, free, asking = (
        Lease(name, ttl=1, using=postgresql_database, renewing=name == "kept", on_lost=lost.set)
        for name in ("kept", "mine", "free", "free")
    )
    free.acquire()
    free.release()
    rows = Job.objects.using(postgresql_database).filter(queue_name__startswith="lease:").select_for_update()
    with threads() as pool:
        assert kept.acquire()
        assert mine.acquire()
        with transaction.atomic(using=postgresql_database):
            assert len(rows) == 3
            renewal = pool.submit(mine.renew)
            assert not pool.submit(asking.acquire, timeout=0).result(PROMPT)
            assert not pool.submit(asking.acquire, blocking=False).result(PROMPT)
            assert isinstance(renewal.exception(PROMPT), LeaseLost)
            assert lost.wait(PROMPT)
    for lease in (kept, mine):
        lease.release()


def test_a_wait_for_locks_within_another_one(postgresql_database: str) -> None:
    """A block of ``lock_timeout`` in another one, as of a lease that a signal handler renews, ends only itself."""
    engine = engine_for(postgresql_database)

    def setting() -> str:
        with engine.transaction(), connections[postgresql_database].cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            return str(cursor.fetchone()[0])

    with engine.lock_timeout(float("inf")):
        with engine.lock_timeout(0):
            assert setting() == "1ms"
        assert setting() == "1d"
    assert setting() == "0"


def test_the_projects_own_lock_timeout(postgresql_database: str) -> None:
    """One that is shorter than the queue's stays as it is."""
    engine = engine_for(postgresql_database)
    with transaction.atomic(using=postgresql_database), connections[postgresql_database].cursor() as cursor:
        for own, expected in (("1500ms", "1500ms"), ("5min", "1min")):
            cursor.execute(f"SET LOCAL lock_timeout = '{own}'")
            engine.set_lock_timeout(60)  # type: ignore[attr-defined]
            cursor.execute("SHOW lock_timeout")
            assert cursor.fetchone()[0] == expected


def test_the_time_of_connecting_is_no_error_of_the_clock(
    postgresql_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has just started stamps its first job with the server's time, however long it takes to connect."""
    monkeypatch.setattr("django_vtqueue.engines.postgresql.connection._measured", {})
    connections[postgresql_database].close()

    def slow(connection: Any, **_: Any) -> None:
        time.sleep(1)

    connection_created.connect(slow)
    try:
        engine = engine_for(postgresql_database)
        began, first, between, second, ended = clock.now(), engine.now(), clock.now(), engine.now(), clock.now()
    finally:
        connection_created.disconnect(slow)
    doubt = SECOND / 4
    assert began + SECOND - doubt < first < between + doubt
    assert between - doubt < second < ended + doubt


def test_a_worker_that_is_killed(tmp_path: Path, migrated: dict[str, Any], postgresql_database: str) -> None:
    """Real workers work a queue; what one that is killed held another one runs again, and all jobs end."""
    project = Project(tmp_path, f"DATABASES = {{'default': {migrated!r}}}")
    project.write("shop/tasks.py", """
        import time
        from django_vtqueue import task

        @task(visibility_timeout=2)
        def slow(number):
            time.sleep(0.05 if number else 2)
            return number
    """)  # fmt: skip
    assert project.python("from shop.tasks import slow\nfor number in range(40): slow.enqueue(number)") == "exit 0\n"
    jobs = Job.objects.using(postgresql_database)
    first = worker(project)
    try:
        wait_until(lambda: jobs.filter(state="SUCCESSFUL").count() > 3)
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert jobs.filter(state="RUNNING").exists()
        second = worker(project, "--drain")
        assert second.wait(PATIENCE) == 0
    finally:
        first.kill()
    ends = [(job.state, job.result) for job in jobs.order_by("enqueued_at", "id")]
    assert ends == [("SUCCESSFUL", number) for number in range(40)]


def worker(project: Project, *options: str) -> "subprocess.Popen[bytes]":
    path = os.pathsep.join([str(project.folder), str(Path(__file__).parents[2])])
    variables = {"DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": path}
    return subprocess.Popen(
        [sys.executable, "-m", "django", "vtworker", *options], cwd=project.folder, env={**os.environ, **variables}
    )


@pytest.mark.parametrize("late", [1, 2], ids=["first", "next"])
def test_an_answer_that_comes_late(engine: Engine, monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    """The time by which leases are given is that of the server, whichever reading of its clock took a second."""
    monkeypatch.setattr(connection, "_measured", {})
    monkeypatch.setattr(connection, "LOOK_OF_OTHERS", 0.0)
    readings = 0

    def answer(execute: Callable[..., Any], *given: Any) -> Any:
        nonlocal readings
        answered = execute(*given)
        readings += 1
        if readings == (1 if late == 1 else connection.FIRST_READINGS + 1):
            time.sleep(1)
        return answered

    with connections[engine.alias].execute_wrapper(answer):
        for _ in range(late):
            found = engine.now()
    assert abs(found - round(time.time() * SECOND)) < SECOND / 4
    assert readings == connection.FIRST_READINGS + late - 1


END_WAITING = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND datname = current_database()"""


@pytest.mark.parametrize("seconds", [0.2, 100])
def test_a_transactional_task_that_does_not_get_its_row(engine: Engine, seconds: float) -> None:
    """While another transaction has the job's row its time does not begin, and if it waits for too long, or in vain
    because its session is ended, it has not begun either.
    """
    publish(engine, 1)
    [job] = claim(engine, Limits(parse({})), "w", 1)
    other = connections[engine.alias].copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor, connections[engine.alias].cursor() as looks, threads(1) as pool:
            cursor.execute("SELECT 1 FROM vtqueue_job WHERE id = %s FOR UPDATE", [job.id])
            never = partial(pytest.fail, "it has begun")
            transaction = pool.submit(settle_with, engine, job, seconds, never, never)
            if seconds > 1:
                wait_until(lambda: any(looks.execute(END_WAITING).fetchall()))
            futures.wait([transaction], PROMPT)
            other.rollback()  # on a busy machine the cancellation may have come to nothing
            with pytest.raises(NotBegun):
                transaction.result(PATIENCE)
    finally:
        other.close()


def test_a_server_that_gives_no_answer_is_seldom_asked_for_its_clock(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A control loop needs the instant dozens of times a turn, and each try to connect takes seconds."""
    engine.now()
    known = connection._measured[engine.alias]
    monkeypatch.setitem(connection._measured, engine.alias, known._replace(at=known.at - 2 * connection.LOOK_OF_WORKER))
    with TemporaryDirectory(prefix="vtq-") as folder, socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(Path(folder) / ".s.PGSQL.5432"))
        silent.listen()
        silent.settimeout(0.1)
        dead = {**connections[engine.alias].settings_dict, "HOST": folder, "OPTIONS": {"connect_timeout": 2}}
        with reached(dead, "silent"):
            cut_off = new_engine("silent", traced=False)
            monkeypatch.setitem(connection._measured, "silent", connection._measured[engine.alias])
            instants = [cut_off.now() for _ in range(3)]
        silent.accept()[0].close()
        with pytest.raises(TimeoutError):
            silent.accept()
    assert instants[-1] - instants[0] < SECOND


def test_each_check_of_a_job_says_something(engine: Engine) -> None:
    """The server reads and plans all of them anew for each statement that writes; none is there for SQLite alone."""
    with connections[engine.alias].cursor() as cursor:
        cursor.execute("SELECT conkey FROM pg_constraint WHERE contype = 'c' AND conrelid = 'vtqueue_job'::regclass")
        assert all(columns for (columns,) in cursor.fetchall())


@pytest.mark.parametrize("block", [nullcontext, lambda: transaction.atomic("bare")], ids=["alone", "in-a-transaction"])
def test_a_publish_without_tables(server: Server, django_db_blocker: DjangoDbBlocker, block: Any) -> None:
    """Its error says which command makes the tables, also where it has broken a transaction."""
    told = r'relation "vtqueue_job" does not exist: .* run: python manage.py migrate vtqueue --database bare\n'
    with django_db_blocker.unblock(), reached(server.settings("template1"), "bare"):
        with pytest.raises(DatabaseError, match=told) as caught, block():
            Queue("sensors", using="bare").publish(1)
        assert engine_for("bare").trouble(caught.value) is Trouble.SCHEMA
