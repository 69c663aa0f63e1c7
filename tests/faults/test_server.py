"""PostgreSQL is stopped, restarted, cut off, full, or refuses to write, while real workers and publishers go on."""

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from .. import postgresql
from ..postgresql import Server
from ..waiting import wait_until
from .disks import SmallDisk, small_disk
from .proxy import AFTER, BEFORE, proxy
from .scale import HELD
from .site import GONE, Site, assert_said, assert_untroubled, site, times_said

SAFE = ("-c", "fsync=off")  # nothing that is committed is lost when the server is killed
SMALL = ("-c", "max_connections=12", "-c", "superuser_reserved_connections=0")
WRITTEN = "the database cannot be written"


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """Return a server of this module's own."""
    postgresql.require_server()
    with postgresql.running(*SAFE, *SMALL) as server:
        yield server


@pytest.fixture
def shop(own_server: Server, tmp_path: Path) -> Iterator[Site]:
    """Return a project on that server, which runs again if an earlier test has failed while it was stopped."""
    if not own_server.runs():
        own_server.start()
    with site(tmp_path / "shop", own_server) as shop:
        yield shop


def done(shop: Site, jobs: int) -> bool:
    return sum(shop.acknowledged().values()) >= jobs


@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_the_server_is_restarted_in_the_middle_of_work(shop: Site, mode: str) -> None:
    """Workers and publishers go on by themselves; a worker says once each time that the server cannot be reached."""
    workers = [shop.ready_worker("--threads", "2") for _ in range(2)]
    publisher = shop.publisher(200, 0.005)
    for times in (1, 2):
        wait_until(lambda: done(shop, 50 * times))  # noqa: B023
        shop.server.stop(mode)
        for worker in workers:
            wait_until(lambda: GONE in worker.log)  # noqa: B023
        # The other outage is the same one for a worker that has not reached the server in between.
        shop.server.start()
    shop.finish(publisher)
    for worker in workers:
        assert_said(worker, GONE, 2)


def test_commits_whose_end_is_unknown(shop: Site, own_server: Server) -> None:
    """Connections are cut at commits, before the server has heard of them or before its answer comes.

    The publisher's INSERT, and the worker's claims, settlements and renewals: nothing is lost or acknowledged twice.
    """
    with TemporaryDirectory(prefix="vtq-") as folder, proxy(Path(folder), own_server.folder) as between:
        way = {"SITE_DATABASE": f'{{"HOST": "{folder}"}}'}
        workers = [shop.ready_worker("--threads", "2", **way) for _ in range(2)]
        between.chance = 0.15
        publisher = shop.publisher(150, **way)
        wait_until(lambda: publisher.ended() and min(between.cuts[BEFORE], between.cuts[AFTER]) > 5)
        between.chance = 0.0
        shop.finish(publisher)
    for worker in workers:
        assert_untroubled(worker)
        assert times_said(worker, GONE) <= sum(between.cuts.values())


def test_a_transactional_task_whose_commit_is_not_answered(shop: Site, own_server: Server) -> None:
    """It is known as done when the server is reached again: it neither counts as failed nor as lost."""
    with TemporaryDirectory(prefix="vtq-") as folder, proxy(Path(folder), own_server.folder) as between:
        worker = shop.ready_worker(SITE_DATABASE=f'{{"HOST": "{folder}"}}')
        between.marked = b"INSERT INTO effect"
        assert shop.run("-c", COUNT).wait() == 0
        worker.wait_for("shop.tasks.count")
        assert [line.split()[0] for line in worker.lines("") if "shop.tasks.count" in line] == ["ok"]
        assert between.cuts == {AFTER: 1}
        assert shop.execute("SELECT count(*) FROM effect") == [(1,)]


def test_the_end_of_a_job_that_is_not_kept_is_not_answered(shop: Site, own_server: Server) -> None:
    """Its row went with the commit: it is known as done all the same, and neither runs again nor counts as lost."""
    with TemporaryDirectory(prefix="vtq-") as folder, proxy(Path(folder), own_server.folder) as between:
        worker = shop.ready_worker(SITE_DATABASE=f'{{"HOST": "{folder}"}}', SITE_OPTIONS='{"result_ttl": 0}')
        between.marked = b"kept_until = finished_at"
        assert shop.run("-c", COUNT.replace("count", "note")).wait() == 0
        worker.wait_for("shop.tasks.note")
        assert [line.split()[0] for line in worker.lines("") if "shop.tasks.note" in line] == ["ok"]
        assert between.cuts == {AFTER: 1}


COUNT = """
import django
django.setup()
from shop.tasks import count
count.enqueue(1)
"""


@contextmanager
def terminating(shop: Site) -> Iterator[list[int]]:
    """End some other sessions at random moments during the block; yield their number, one for each time."""
    ended: list[int] = []
    over = threading.Event()

    def run() -> None:
        chance = random.Random(11)
        with shop.connect() as connection:
            while not over.wait(chance.random() * 0.3):
                ended.append(connection.execute(TERMINATE).rowcount)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield ended
    finally:
        over.set()
        thread.join()


TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND random() < 0.5"""


def test_sessions_that_are_ended_at_random_moments(shop: Site) -> None:
    """Whatever a session does when it is ended: nothing is lost or acknowledged twice, and no worker stops."""
    workers = [shop.ready_worker("--threads", "2") for _ in range(2)]
    publisher = shop.publisher(150, 0.01)
    with terminating(shop) as ended:
        wait_until(lambda: publisher.ended() and sum(ended) > 20)
    shop.finish(publisher)
    for worker in workers:
        assert_untroubled(worker)


def test_no_connection_is_free(shop: Site) -> None:
    """A worker that has lost its connection, and one that starts, wait for a free one, and say so once."""
    running, ended = shop.ready_worker(), 0
    with ExitStack() as stack:
        full = 0
        while (
            full < 10
        ):  # looks at which no place was free, and none was a worker's: a session that ends has its own yet
            try:
                taken = stack.enter_context(shop.connect())
                full = 0
            except psycopg.OperationalError:
                more = taken.execute(TERMINATE_WORKER).rowcount
                ended, full = ended + more, 0 if more else full + 1  # it may have connected again in between
                time.sleep(0.02)
        starting = shop.worker()
        for worker in (running, starting):
            worker.wait_for(GONE)
        time.sleep(HELD)
    publisher = shop.publisher(20)
    shop.finish(publisher)
    starting.wait_ready()
    assert_said(running, GONE, ended)
    assert_said(starting, GONE)


TERMINATE_WORKER = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND query LIKE '%vtqueue%' AND pid <> pg_backend_pid()"""


def test_the_server_refuses_to_write(shop: Site) -> None:
    """A server that may only be read is waited for: what has finished meanwhile is settled once it can be."""
    worker = shop.ready_worker()
    assert shop.run("-c", HOLD).wait() == 0
    wait_until((shop.folder / "a-began").exists)
    try:
        shop.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        shop.execute("SELECT pg_reload_conf()")
        (shop.folder / "a-go").touch()
        worker.wait_for(WRITTEN)
        time.sleep(HELD)
    finally:
        shop.execute("ALTER SYSTEM RESET default_transaction_read_only")
        shop.execute("SELECT pg_reload_conf()")
    shop.finish(shop.publisher(10))
    assert_said(worker, WRITTEN)
    assert (shop.folder / "a-began").read_text().count("\n") == 1


HOLD = """
import django
django.setup()
from shop.tasks import hold
hold.enqueue("a")
"""


@contextmanager
def on_a_small_disk() -> Iterator[tuple[Server, SmallDisk]]:
    """Start a server all of whose files are on a disk of its own, which can be filled."""
    postgresql.require_server()
    with TemporaryDirectory(prefix="vtq-", dir="/tmp") as name, small_disk(Path(name), 64) as disk:
        server = Server(Path(name), *SAFE, "-c", "max_wal_size=4MB", "-c", "shared_buffers=2MB")
        server.create("--wal-segsize=1")
        server.start()
        try:
            yield server, disk
        finally:
            disk.free()
            if server.runs():
                server.stop()


def test_the_disk_of_the_server_is_full(tmp_path: Path) -> None:
    """The server refuses, or ends itself, and is started again when there is room: workers and publishers go on."""
    with on_a_small_disk() as (server, disk), site(tmp_path / "shop", server) as shop:
        worker = shop.ready_worker()
        assert shop.run("-c", HOLD.replace("hold", "large")).wait() == 0
        wait_until((shop.folder / "a-began").exists)
        publisher = shop.publisher(100, 0.01)
        wait_until(lambda: done(shop, 20))
        disk.fill()
        (shop.folder / "a-go").touch()
        wait_until(lambda: WRITTEN in worker.log or GONE in worker.log)
        time.sleep(HELD)
        disk.free()
        if not server.runs():
            server.start()
        shop.finish(publisher)
        assert_untroubled(worker)
        assert (shop.folder / "a-began").read_text().count("\n") == 1


def test_a_standby_takes_over(own_server: Server, tmp_path: Path) -> None:
    """The server dies and its standby is promoted: all that was committed is there, workers and publishers go on."""
    with TemporaryDirectory(prefix="vtq-pg-", dir="/tmp") as name, site(tmp_path / "shop", own_server) as shop:
        standby = Server(Path(name), *SAFE, *SMALL)
        standby.follow(own_server)
        standby.start()
        shop.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        shop.execute("SELECT pg_reload_conf()")
        both = {"HOST": f"{own_server.folder},{name}", "OPTIONS": {"target_session_attrs": "read-write"}}
        way = {"SITE_DATABASE": json.dumps(both)}
        try:
            workers = [shop.ready_worker("--threads", "2", **way) for _ in range(2)]
            publisher = shop.publisher(150, 0.01, **way)
            wait_until(lambda: done(shop, 30))
            own_server.stop("immediate")
            for worker in workers:
                worker.wait_for(GONE)
            standby.promote()
            shop.server = standby
            shop.finish(publisher)
            for worker in workers:
                assert_said(worker, GONE)
        finally:
            shop.clean_up()
            standby.stop()
            own_server.start()
            shop.server = own_server
            shop.execute("ALTER SYSTEM RESET synchronous_standby_names")
            shop.execute("SELECT pg_reload_conf()")


RECEIVES = """
import django
django.setup()
from django.core.management import execute_from_command_line
from django.db import connection
from tests.faults.inside import task_finished, task_started

def receive(task_result, **given):
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO effect VALUES (%s)", task_result.args)

task_started.connect(receive)
task_finished.connect(receive)
execute_from_command_line(["manage.py", "vtworker", "--threads", "1"])
"""


NOTE = """
import sys
import django
django.setup()
from shop.tasks import note
note.enqueue(int(sys.argv[1]))
"""


@pytest.mark.parametrize("max_age", ["0", "null"])
def test_receivers_write_after_a_restart(shop: Site, max_age: str) -> None:
    """Each signal finds a connection that works, for however long connections are kept."""
    worker = shop.run("-c", RECEIVES, SITE_DATABASE=f'{{"CONN_MAX_AGE": {max_age}}}')
    worker.wait_ready()
    for number in range(4):
        if number:
            shop.server.stop()
            wait_until(lambda: worker.log.count(GONE) >= number)  # noqa: B023
            shop.server.start()
        assert shop.run("-c", NOTE, str(number)).wait() == 0
        received = f"SELECT count(*) FROM effect WHERE number = {number}"
        wait_until(lambda: shop.execute(received) == [(2,)])  # noqa: B023


LONG_OUTAGE = """
import django
django.setup()
from django.core.management import execute_from_command_line
from tests.faults.inside import ask_the_server_for_its_time
ask_the_server_for_its_time()
execute_from_command_line(["manage.py", "vtworker"])
"""


def test_a_job_that_ends_in_a_long_outage(shop: Site) -> None:
    """Its outcome is kept until the server is back, also when the server's clock was last read long ago."""
    worker = shop.run("-c", LONG_OUTAGE)
    worker.wait_ready()
    assert shop.run("-c", HOLD).wait() == 0
    wait_until((shop.folder / "a-began").exists)
    shop.server.stop()
    worker.wait_for(GONE)
    (shop.folder / "a-go").touch()
    time.sleep(HELD)
    shop.server.start()
    wait_until(lambda: set(shop.acknowledged().values()) == {1})
    assert shop.execute("SELECT claims, attempts FROM vtqueue_job") == [(1, 1)]
    assert_said(worker, GONE)
