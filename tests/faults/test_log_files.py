"""The files of a SQLite database in use are copied by a process that uses them, or its log (WAL) is deleted."""

import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from tests.project import tasks

from ..processes.conftest import environment
from ..processes.database import Database, inode
from ..processes.held import begin
from ..processes.running import MANAGE, Start, python
from ..waiting import wait_until
from .exchange import move_over
from .inside import WITHOUT_LOCKS_OF_OPEN_FILES
from .scale import MINUTES, chosen_seed, scaled

pytestmark = pytest.mark.sqlite("its log is a file beside it")
DELETED = "the log of the database was deleted or exchanged while this process used it"
REFUSED = "unable to open database file"  # what SQLite says to who has that log

# A process of a site: it does what a line says, and answers with a line.
SITE = """
import atexit, os, sys, time
at_exit, reading = [], []
atexit.register(lambda: [act() for act in at_exit])
import django
django.setup()
from django.db import connection, connections, transaction
from django.db.backends.signals import connection_created
from django_vtqueue import Queue
from tests.project import tasks

def enqueue(path, text):
    try:
        return tasks.note.enqueue(path, text).id
    finally:
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()  # as at the end of a request

def enqueue_in_a_transaction(path, text):
    try:
        with transaction.atomic():
            return enqueue(path, text)
    finally:
        connection.close_if_unusable_or_obsolete()

def begin_to_read(rows):
    tasks.Effect.objects.bulk_create(tasks.Effect(name="read") for _ in range(int(rows)))
    reading.append(tasks.Effect.objects.iterator())
    return next(reading[0]).name

def enqueue_and_close(path, text):
    try:
        return enqueue(path, text)
    finally:
        connections.close_all()

def enqueue_at_exit(path, text):
    at_exit.append(lambda: print("at exit", enqueue(path, text), flush=True))

def receive():
    connection_created.connect(print_nothing)

def print_nothing(**kwargs):
    pass

def publish(queue_name, payload):
    return Queue(queue_name).publish(payload)

def write(name):
    try:
        tasks.Effect.objects.create(name=name)
    finally:
        connection.close_if_unusable_or_obsolete()  # as at the end of a request

def write_until(path):
    with transaction.atomic():
        tasks.Effect.objects.create(name="slow")
        print("writes", flush=True)
        while not os.path.exists(path):
            time.sleep(0.01)

def count():
    return tasks.Effect.objects.count()

def write_on(seconds):
    tasks.Effect.objects.count()
    print("writes", flush=True)
    while True:
        with transaction.atomic():
            tasks.Effect.objects.create(name="slow")
            time.sleep(float(seconds))

def open_and_close(path):
    open(path).close()

def copy_by_a_task(*given):
    return tasks.copy_files.enqueue(*given).id

def fork():
    connections.close_all()
    if os.fork():
        sys.exit()
    return os.getpid()

for line in sys.stdin:
    verb, *given = line.split()
    try:
        print(verb, globals()[verb](*given), flush=True)
    except Exception as error:
        print(verb, type(error).__name__, error, flush=True)
"""


class Site:
    """A process of a site."""

    def __init__(self, database: Database, **variables: str) -> None:
        self.process = subprocess.Popen(
            python("-c", SITE),
            env=environment(database, **variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, verb: str, *given: object) -> str:
        """Have it do something; return what it answers."""
        self.begin(verb, *given)
        return self.answer(verb)

    def begin(self, verb: str, *given: object) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{verb} {' '.join(map(str, given))}\n")
        self.process.stdin.flush()

    def answer(self, verb: str) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().removeprefix(f"{verb} ").rstrip("\n")

    def end(self) -> int:
        """Have it end as a process does that is told to; return its exit code."""
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(30)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()


@pytest.fixture
def site(database: Database) -> Iterator[Callable[..., Site]]:
    """Return a function that starts a process of a site on the database of the test."""
    sites: list[Site] = []

    def start(**variables: str) -> Site:
        sites.append(Site(database, **variables))
        return sites[-1]

    yield start
    for each in sites:
        each.kill()


def log_of(database: Database) -> Path:
    return Path(f"{database.path}-wal")


def come_and_go(database: Database) -> None:
    """Open the file in a process that ends at once, as a command does: it closes the last connection that it knows."""
    program = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM project_effect'); c.close()"
    )
    subprocess.run(python("-c", program, str(database.path)), check=True)


def delete_log(database: Database) -> None:
    for suffix in ("-wal", "-shm"):
        Path(f"{database.path}{suffix}").unlink(missing_ok=True)


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def assert_sound(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


# -- the log stays -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [(), ("--processes", "2")], ids=["threads", "processes"])
def test_a_task_that_copies_the_files_costs_no_job(
    database: Database, start_worker: Start, site: Callable[..., Site], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """However often a task copies the files of the database, what is enqueued later is run, and the file is sound."""
    worker, done = start_worker(*arguments), tmp_path / "done"
    log, copies = inode(log_of(database)), tmp_path / "copies"
    copies.mkdir()
    for number in range(1, 4):
        first, second = site(), site()
        first("copy_by_a_task", database.path, copies, done)
        wait_until(lambda times=number: lines(done).count("copied") == times)
        assert first.end() == 0
        come_and_go(database)
        assert "Error" not in second("enqueue", done, f"later-{number}")
        assert second.end() == 0
        wait_until(lambda text=f"later-{number}": text in lines(done))
    assert inode(log_of(database)) == log
    assert worker.terminate() == 0
    assert_sound(database.path)


@pytest.mark.parametrize("age", ["0", "null"], ids=["closed", "persistent"])
@pytest.mark.parametrize("verb", ["enqueue", "write"])
def test_a_process_of_the_site_that_opens_the_file_loses_nothing(
    database: Database, site: Callable[..., Site], tmp_path: Path, verb: str, age: str
) -> None:
    """A view may open and close the file: what its process enqueues, and writes by the ORM, stays seen by others."""
    first = site(VTQUEUE_TEST_CONNECTION=f'{{"CONN_MAX_AGE": {age}}}')
    first("receive")  # many projects set their connections up so
    given = ("name",) if verb == "write" else (tmp_path / "done", "text")
    table = "project_effect" if verb == "write" else "vtqueue_job"
    for number in range(1, 4):
        assert "Error" not in first(verb, *given)
        first("open_and_close", database.path)
        come_and_go(database)
        assert "Error" not in first(verb, *given)
        assert database.rows(f"SELECT count(*) FROM {table}")[0][0] == 2 * number
    assert first.end() == 0
    assert_sound(database.path)


@pytest.mark.parametrize("verb", ["enqueue", "enqueue_and_close"])
def test_the_last_process_that_ends_leaves_the_file_alone(
    database: Database, start_worker: Start, site: Callable[..., Site], tmp_path: Path, verb: str
) -> None:
    """When all have ended in order, the one file is the whole database, and can be copied by itself."""
    worker, publisher = start_worker(), site()
    assert "Error" not in publisher(verb, tmp_path / "done", "text")
    publisher("open_and_close", database.path)
    wait_until(lambda: lines(tmp_path / "done"))
    assert worker.terminate() == 0
    assert log_of(database).exists()
    assert publisher.end() == 0
    assert not log_of(database).exists()
    assert database.rows("SELECT state FROM vtqueue_job")[0][0] == "SUCCESSFUL"


def test_a_forked_process_has_a_guard_of_its_own(database: Database, site: Callable[..., Site], tmp_path: Path) -> None:
    """Neither the end of its parent, nor a file that it opens itself, takes the log from it."""
    parent = site()
    assert "Error" not in parent("enqueue", tmp_path / "done", "first")
    assert int(parent("fork")) != parent.process.pid
    wait_until(lambda: parent.process.poll() is not None)
    for number in range(1, 4):
        assert "Error" not in parent("enqueue", tmp_path / "done", number)
        parent("open_and_close", database.path)
        come_and_go(database)
        assert database.rows("SELECT count(*) FROM vtqueue_job")[0][0] == 1 + number


@pytest.mark.parametrize("reads", [False, True], ids=["at-rest", "beside-an-open-cursor"])
def test_a_publisher_notices_another_file(
    database: Database, site: Callable[..., Site], empty_file: Path, tmp_path: Path, reads: bool
) -> None:
    """With a persistent connection, too, the next job is stored in the file that is there, once."""
    publisher = site(VTQUEUE_TEST_CONNECTION='{"CONN_MAX_AGE": null}')
    assert "Error" not in publisher("enqueue", tmp_path / "done", "first")
    if reads:
        assert publisher("begin_to_read", 3000) == "read"
        database.write("UPDATE project_effect SET value = 1")  # what that connection has not seen
    move_over(Path(shutil.copy(empty_file, tmp_path / "other")), database.path)
    assert "Error" not in publisher("enqueue", tmp_path / "done", "kept")
    assert database.rows("SELECT count(*) FROM vtqueue_job")[0][0] == 1


def test_a_transaction_over_an_exchange_of_the_file_fails_and_the_next_one_is_stored(
    database: Database, site: Callable[..., Site], empty_file: Path, tmp_path: Path
) -> None:
    """As of a view under ATOMIC_REQUESTS: what it has written before is in the old file. It is so once."""
    publisher = site(VTQUEUE_TEST_CONNECTION='{"CONN_MAX_AGE": null}')
    assert "Error" not in publisher("enqueue_in_a_transaction", tmp_path / "done", "first")
    move_over(Path(shutil.copy(empty_file, tmp_path / "other")), database.path)
    assert "FileExchanged" in publisher("enqueue_in_a_transaction", tmp_path / "done", "refused")
    for number in range(3):
        assert "Error" not in publisher("enqueue_in_a_transaction", tmp_path / "done", f"kept-{number}")
    assert database.rows("SELECT count(*) FROM vtqueue_job")[0][0] == 3


def test_an_index_that_is_older_than_its_log_hides_nothing(database: Database, site: Callable[..., Site]) -> None:
    """As after a loss of power, or in a copy of a disk: SQLite makes it again, before the process guards it."""
    insert, files = "INSERT INTO project_effect (name, value) VALUES ('x', 1)", dict[str, bytes]()
    with closing(sqlite3.connect(database.path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        for suffixes in ["-shm"], ["", "-wal"]:
            for _ in range(20):
                connection.execute(insert)
                connection.commit()
            files |= {suffix: Path(f"{database.path}{suffix}").read_bytes() for suffix in suffixes}
    for suffix, content in files.items():
        Path(f"{database.path}{suffix}").write_bytes(content)
    options = '{"CONN_MAX_AGE": null, "OPTIONS": {"transaction_mode": "IMMEDIATE"}}'  # the file says that it is in WAL
    first = site(VTQUEUE_TEST_CONNECTION=options)
    assert first("count") == "40"
    assert "Error" not in first("enqueue", "x", "y")
    assert database.rows("SELECT count(*) FROM project_effect")[0][0] == 40
    assert_sound(database.path)


def test_the_journal_mode_can_be_changed_when_all_have_ended(
    database: Database, site: Callable[..., Site], tmp_path: Path
) -> None:
    """Nothing is left of a guard when its process is gone, be it killed."""
    publisher = site()
    assert "Error" not in publisher("enqueue", tmp_path / "done", "first")
    publisher.kill()
    with closing(sqlite3.connect(database.path)) as connection:
        assert connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)


# -- the log is deleted ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [(), ("--processes", "2")], ids=["threads", "processes"])
def test_a_worker_ends_when_its_log_is_deleted(
    database: Database, start_worker: Start, site: Callable[..., Site], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """It says so in one line, and writes nothing more: what is enqueued after that is run by the next worker."""
    worker = start_worker(*arguments)
    done = tmp_path / "done"
    before = site()
    assert "Error" not in before("enqueue", done, "before")
    wait_until(lambda: lines(done))
    before.kill()
    delete_log(database)
    after = site()
    assert [("Error" in after("enqueue", done, f"after-{number}")) for number in range(5)] == [False] * 5
    assert worker.wait() == 1
    assert DELETED in worker.log
    assert "Traceback" not in worker.log
    assert len(worker.lines(DELETED)) <= 3  # each process says it once
    assert_sound(database.path)
    start_worker("--drain", ready=False)
    wait_until(lambda: {f"after-{number}" for number in range(5)} <= set(lines(done)))
    assert_sound(database.path)


@pytest.mark.parametrize("age", ["0", "null"], ids=["closed", "persistent"])
def test_the_log_alone_is_deleted(
    database: Database, start_worker: Start, site: Callable[..., Site], tmp_path: Path, age: str
) -> None:
    """When a process of the site has noticed it, the index goes, too: who starts then works, though that one lives."""
    worker, done = start_worker(), tmp_path / "done"
    first, idle = (site(VTQUEUE_TEST_CONNECTION=f'{{"CONN_MAX_AGE": {age}}}') for _ in range(2))
    for each in (first, idle):
        assert "Error" not in each("enqueue", done, "before")
    wait_until(lambda: lines(done).count("before") == 2)
    log_of(database).unlink()
    assert worker.wait() == 1
    assert DELETED in worker.log
    assert "LogDeleted" in first("enqueue", done, "lost")
    start_worker()
    assert "Error" not in site()("enqueue", done, "after")
    wait_until(lambda: "after" in lines(done))
    assert "LogDeleted" in first("enqueue", done, "lost")
    assert_sound(database.path)


@pytest.mark.parametrize("age", ["0", "null"], ids=["closed", "persistent"])
@pytest.mark.parametrize("deleted", [["-wal"], ["-shm"], ["-wal", "-shm"]], ids=" and ".join)
def test_who_has_noticed_nothing_writes_nothing_more_into_the_file(
    database: Database, start_worker: Start, site: Callable[..., Site], age: str, deleted: list[str]
) -> None:
    """A process of the site that only uses the ORM is refused from when a worker has noticed, which has ended since.

    Without persistent connections it uses the new log from its next request on. What others write is kept.
    """
    variables = {"VTQUEUE_TEST_CONNECTION": f'{{"CONN_MAX_AGE": {age}}}', "VTQUEUE_TEST_TIMEOUT": "1"}
    worker, first = start_worker(), site(**variables)
    for number in range(30):
        assert "Error" not in first("write", f"before-{number}")
    for suffix in deleted:
        Path(f"{database.path}{suffix}").unlink()
    while not worker.ended():
        first("write", "meanwhile")
    assert worker.wait() == 1
    assert DELETED in worker.log
    refused = [number for number in range(30) if REFUSED in first("write", f"after-{number}")]
    assert refused == (list(range(30)) if age == "null" else refused[:1])
    with closing(sqlite3.connect(database.path)) as second:
        for number in range(1500):  # more pages than SQLite leaves in a log
            second.execute("INSERT INTO project_effect (name, value) VALUES (?, 1)", [f"second-{number}"])
            second.commit()
            assert ("Error" in first("write", f"beside-{number}")) == (age == "null")
    assert first.end() == 0
    assert_sound(database.path)
    written = database.rows("SELECT sum(name LIKE 'second-%'), sum(name LIKE 'beside-%') FROM project_effect")
    assert tuple(written[0]) == (1500, 0 if age == "null" else 1500)


@pytest.mark.parametrize("whose", ["site", "task"])
def test_a_commit_that_is_under_way_comes_first(
    database: Database, start_worker: Start, site: Callable[..., Site], tmp_path: Path, whose: str
) -> None:
    """The worker that notices has ended by then, also where the transaction was that of its own task."""
    worker, first = start_worker(), site(VTQUEUE_TEST_CONNECTION='{"CONN_MAX_AGE": null}')
    assert "Error" not in first("write", "before")
    if whose == "site":
        first.begin("write_until", tmp_path / "over")
        assert first.answer("write_until") == "writes"
    else:
        database.enqueue(tasks.write_until, str(tmp_path / "begun"), str(tmp_path / "over"))
        wait_until((tmp_path / "begun").exists)
        database.leave()
    log_of(database).unlink()
    assert worker.wait() == 1
    assert DELETED in worker.log
    if whose == "site":
        (tmp_path / "over").touch()
        assert first.answer("write_until") == "None"
    wait_until(lambda: REFUSED in first("write", "refused"))
    start_worker()
    assert "Error" not in site()("enqueue", tmp_path / "done", "after")
    wait_until(lambda: "after" in lines(tmp_path / "done"))
    assert first.end() == 0
    assert_sound(database.path)


def test_a_busy_writer_keeps_nobody_from_being_refused(
    database: Database, start_worker: Start, site: Callable[..., Site]
) -> None:
    """However short the moments are in which nothing is written to the log that was deleted."""
    worker, writers = start_worker(), [site(VTQUEUE_TEST_CONNECTION='{"CONN_MAX_AGE": null}') for _ in range(3)]
    for writer in writers:
        writer.begin("write_on", 0.03)
        assert writer.answer("write_on") == "writes"
    log_of(database).unlink()
    assert worker.wait() == 1
    for writer in writers:
        assert REFUSED in writer.answer("write_on")
        assert writer.end() == 0
    assert_sound(database.path)


def test_a_process_that_ends_first_has_the_others_refused(database: Database, site: Callable[..., Site]) -> None:
    """At its end in good order it looks once more."""
    first, second = (site(VTQUEUE_TEST_CONNECTION='{"CONN_MAX_AGE": null}') for _ in range(2))
    for each in (first, second):
        assert "Error" not in each("write", "before")
    log_of(database).unlink()
    assert first.end() == 0
    assert REFUSED in second("write", "refused")
    assert second.end() == 0
    assert_sound(database.path)


def test_without_a_worker_an_enqueue_says_that_the_log_is_gone(
    database: Database, site: Callable[..., Site], tmp_path: Path
) -> None:
    """It is no error of the disk, though SQLite says so; and it lets others begin anew."""
    first = site(VTQUEUE_TEST_CONNECTION='{"CONN_MAX_AGE": 0}')
    assert "Error" not in first("enqueue", tmp_path / "done", "before")
    log_of(database).unlink()
    assert "LogDeleted" in first("enqueue", tmp_path / "done", "lost")
    assert "Error" not in site()("enqueue", tmp_path / "done", "after")
    assert "LogDeleted" in first("enqueue", tmp_path / "done", "lost")
    assert_sound(database.path)


def test_a_worker_ends_when_the_index_of_its_log_is_deleted(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """Without it nobody else would see its locks; all that is in the log is kept."""
    worker = start_worker()
    held = begin(database, tmp_path)
    Path(f"{database.path}-shm").unlink()
    assert worker.wait() == 1
    assert DELETED in worker.log
    database.leave()  # of this process SQLite refuses each connection while one is open that has the old index
    assert database.job(held)["state"] == "RUNNING"
    assert_sound(database.path)


@pytest.mark.parametrize("how", [Path.unlink, lambda path: path.rename(f"{path}-moved")], ids=["deleted", "moved"])
@pytest.mark.parametrize("notices", [True, False])
def test_a_process_that_has_an_index_that_is_gone_leaves_the_file_alone(
    database: Database, site: Callable[..., Site], tmp_path: Path, how: Callable[[Path], object], notices: bool
) -> None:
    """Whether it has noticed or not: what others write from then on is kept, when it ends in order, too."""
    first = site(VTQUEUE_TEST_CONNECTION='{"CONN_MAX_AGE": null}')
    assert "Error" not in first("enqueue", tmp_path / "done", "before")
    how(Path(f"{database.path}-shm"))
    if notices:
        assert "LogDeleted" in first("enqueue", tmp_path / "done", "refused")
    second = site()
    for number in range(50):
        assert "Error" not in second("enqueue", tmp_path / "done", number)
    assert second.end() == 0
    assert first.end() == 0
    assert_sound(database.path)
    assert database.rows("SELECT count(*) FROM vtqueue_job")[0][0] >= 51


def test_what_is_enqueued_while_a_process_ends_is_stored(
    database: Database, site: Callable[..., Site], tmp_path: Path
) -> None:
    """By ``atexit``, behind the end of the guard: nothing was deleted, so nothing is refused."""
    first = site(VTQUEUE_TEST_CONNECTION='{"CONN_MAX_AGE": 0}')
    assert "Error" not in first("enqueue", tmp_path / "done", "before")
    first("enqueue_at_exit", tmp_path / "done", "after")
    assert first.process.stdin
    first.process.stdin.close()
    assert first.process.stdout
    assert first.process.stdout.read().startswith("at exit ")
    assert first.process.wait(30) == 0
    assert database.rows("SELECT count(*) FROM vtqueue_job")[0][0] == 2
    assert_sound(database.path)


def test_without_locks_of_open_files_a_deleted_log_is_noticed_all_the_same(
    database: Database, start_worker: Start, site: Callable[..., Site], tmp_path: Path
) -> None:
    """Where the system has no such locks nothing prevents it; a worker ends all the same, and the file is sound."""
    worker = start_worker(constants=WITHOUT_LOCKS_OF_OPEN_FILES)
    first = site()
    assert "Error" not in first("enqueue", tmp_path / "done", "before")
    wait_until(lambda: lines(tmp_path / "done"))
    first.kill()
    delete_log(database)
    assert "Error" not in site()("enqueue", tmp_path / "done", "after")
    assert worker.wait() == 1
    assert DELETED in worker.log
    assert_sound(database.path)


def test_a_consumer_ends_when_its_log_is_deleted(
    database: Database, start: Start, site: Callable[..., Site], tmp_path: Path
) -> None:
    """``Queue.run`` raises LogDeleted: the process is its caller's to end."""
    consumer, publisher = start("-m", "tests.processes.consumer", str(tmp_path)), site()
    (tmp_path / "go").touch()
    assert "Error" not in publisher("publish", "raw", "job")
    wait_until((tmp_path / "job-1").exists)
    assert publisher.end() == 0
    delete_log(database)
    come_and_go(database)
    assert consumer.wait() == 1
    assert f"LogDeleted: {DELETED}" in consumer.log
    assert_sound(database.path)


def test_a_leader_ends_when_its_log_is_deleted(database: Database, start: Start) -> None:
    """So does its command; the next instance leads in the database that is there."""
    leader = start(MANAGE, "vtleader", "import", "--ttl", "2", "--", "sleep", "1000")
    leader.wait_for("runs sleep")
    delete_log(database)
    come_and_go(database)
    assert leader.wait() == 1
    assert DELETED in leader.log
    assert_sound(database.path)


@pytest.mark.parametrize("verb", ["enqueue", "enqueue_in_a_transaction"])
def test_a_publisher_is_told_that_its_log_was_deleted(
    database: Database, site: Callable[..., Site], tmp_path: Path, verb: str
) -> None:
    """``enqueue`` raises LogDeleted; the process writes nothing into the database any more, not even at its end."""
    publisher = site(VTQUEUE_TEST_CONNECTION='{"CONN_MAX_AGE": null}', VTQUEUE_TEST_TIMEOUT="1")
    assert "Error" not in publisher(verb, tmp_path / "done", "first")
    delete_log(database)
    other = site()
    assert "Error" not in other(verb, tmp_path / "done", "other")
    assert publisher(verb, tmp_path / "done", "lost").startswith(f"LogDeleted {DELETED}")
    again = publisher(verb, tmp_path / "done", "lost")
    assert again.startswith("LogDeleted") or (verb != "enqueue" and REFUSED in again)  # by BEGIN IMMEDIATE
    wait_until(lambda: publisher("write", "lost") == f"OperationalError {REFUSED}")
    assert "Error" not in other(verb, tmp_path / "done", "another")
    assert publisher.end() == 0
    assert database.rows("SELECT count(*) FROM vtqueue_job")[0][0] == 2
    assert "Error" not in other(verb, tmp_path / "done", "one-more")
    assert_sound(database.path)


# -- at random ---------------------------------------------------------------------------------------------------------


# A supervisor runs no task, so SQLite's locks of it stay, and keep the log for all: where it is, none is deleted.
ALONE = (("--threads", "3"), ("--threads", "2"))
WITH_CHILDREN = (("--threads", "3"), ("--processes", "2", "--threads", "2"))
STEPS = {"enqueue": 8, "copy": 3, "open": 3, "command": 2, "kill worker": 1, "kill site": 1}


class Load:
    """Sites that enqueue and open the file, workers that copy it, commands that come and go, and kills, by a seed."""

    def __init__(
        self,
        database: Database,
        site: Callable[..., Site],
        start_worker: Start,
        folder: Path,
        arguments: tuple[tuple[str, ...], ...],
    ) -> None:
        self.database, self.site, self.start_worker, self.arguments = database, site, start_worker, arguments
        self.done, self.copies = folder / "done", folder / "copies"
        self.copies.mkdir()
        self.returned: list[str] = []
        self.workers = [start_worker(*given) for given in arguments]
        self.sites = [site(), site(VTQUEUE_TEST_CONNECTION='{"CONN_MAX_AGE": null}')]

    def take_step(self, random: Random, *more: str) -> None:
        """Do something at random; ``more``: also one of these."""
        [step] = random.choices([*STEPS, *more], [*STEPS.values(), *[1] * len(more)])
        which = random.randrange(2)
        if step == "enqueue":
            self.enqueue(which, random.choice(["enqueue", "enqueue_in_a_transaction", "enqueue_and_close"]))
        elif step == "copy":
            # Not the index: who closes that amid a transaction of the same process loses commits (guides/backups.md).
            self.sites[which]("copy_by_a_task", self.database.path, self.copies, self.done, "-wal")
        elif step == "open":
            self.sites[which]("open_and_close", self.database.path)
        elif step == "command":
            come_and_go(self.database)
        elif step == "kill worker":
            self.workers[which].kill()
        elif step == "kill site":
            self.sites[which].kill()
        elif step == "delete":
            delete_log(self.database)
            self.returned.clear()
        self.replace()

    def enqueue(self, which: int, verb: str) -> None:
        text = f"job-{len(self.returned)}-{uuid4().hex}"
        said = self.sites[which](verb, self.done, text)
        if said.startswith("LogDeleted") or (verb == "enqueue_in_a_transaction" and REFUSED in said):  # by its BEGIN
            self.sites[which].kill()
        else:
            assert "Error" not in said
            self.returned.append(text)

    def replace(self) -> None:
        """Start again what has ended, as a process manager does; of workers alone, one always has the file open."""
        self.workers = [
            self.start_worker(*given, ready=self.arguments is ALONE) if worker.ended() else worker
            for worker, given in zip(self.workers, self.arguments, strict=True)
        ]
        self.sites = [self.site() if each.process.poll() is not None else each for each in self.sites]

    def finish(self) -> None:
        """Enqueue at least one, end all that runs, in order, and have a worker do the rest; fail if one is not run."""
        while not self.returned:
            self.enqueue(0, "enqueue")
            self.replace()
        for each in self.sites:
            each.end()
        for worker in self.workers:
            worker.terminate()
        last = self.start_worker()  # a drain would leave jobs whose workers were killed, until their leases end
        wait_until(lambda: set(self.returned) <= set(lines(self.done)))
        last.terminate()
        assert_sound(self.database.path)


SECONDS = scaled(15.0, 60 * MINUTES / 4)


def test_copies_downloads_and_kills_lose_nothing(
    database: Database, site: Callable[..., Site], start_worker: Start, tmp_path: Path
) -> None:
    """Each job whose enqueue has returned is run, and the file is sound, whoever opens it and whoever dies."""
    load, random = Load(database, site, start_worker, tmp_path, ALONE), Random(chosen_seed())
    until = time.monotonic() + SECONDS
    log = inode(log_of(database))
    while time.monotonic() < until:
        load.take_step(random)
    assert inode(log_of(database)) == log
    load.finish()


def test_after_the_log_was_deleted_nothing_more_is_lost(
    database: Database, site: Callable[..., Site], start_worker: Start, tmp_path: Path
) -> None:
    """Each job whose enqueue has returned after the last removal of the log is run, and the file is sound."""
    load, random = Load(database, site, start_worker, tmp_path, WITH_CHILDREN), Random(chosen_seed())
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        load.take_step(random, "delete")
    load.finish()


def test_a_worker_that_begins_with_the_index_of_a_deleted_log_waits_until_that_is_noticed(
    database: Database, start_worker: Start, site: Callable[..., Site], tmp_path: Path
) -> None:
    """It ends then, as those that had the log open: the one that is started in its place does the work."""
    first = site(VTQUEUE_TEST_CONNECTION='{"CONN_MAX_AGE": null}')
    assert "Error" not in first("enqueue", tmp_path / "done", "before")
    log_of(database).unlink()
    early = start_worker(ready=False)
    early.wait_for("disk I/O error")
    assert "LogDeleted" in first("enqueue", tmp_path / "done", "refused")
    assert early.wait() == 1
    assert DELETED in early.log
    start_worker()
    assert "Error" not in site()("enqueue", tmp_path / "done", "after")
    wait_until(lambda: "after" in lines(tmp_path / "done"))
    assert_sound(database.path)
