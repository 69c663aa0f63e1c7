"""Workers on several hosts that share nothing but the server: a host dies, or is cut off from it and comes back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..postgresql import Server
from ..processes.running import Running
from ..waiting import PROMPT, wait_until
from .hosts import Network, Shop, network, shop_on
from .site import GONE, LEASE, assert_said, assert_untroubled
from .wall_clock import WallClock


@pytest.fixture(scope="module")
def machines() -> Iterator[tuple[Server, Network]]:
    """Return a server, and two other hosts: one and other."""
    with network("one", "other") as made:
        yield made


@pytest.fixture
def shop(machines: tuple[Server, Network], tmp_path: Path) -> Iterator[Shop]:
    """Return a project on these hosts."""
    with shop_on(*machines, tmp_path / "shop") as shop:
        yield shop


def began(shop: Shop, name: str) -> list[str]:
    """Return the hosts on which a job has begun."""
    path = shop.site.folder / f"{name}-began"
    return path.read_text().split() if path.exists() else []


def hold(shop: Shop, name: str) -> None:
    """Have the only worker there is begin a job that runs until it may end."""
    assert shop.python("one", f"from shop.tasks import hold\nhold.enqueue({name!r})").wait() == 0
    wait_until(lambda: began(shop, name))


def end(shop: Shop, name: str) -> None:
    (shop.site.folder / f"{name}-go").touch()


def test_a_host_dies(shop: Shop) -> None:
    """What its workers held is taken by those of other hosts when the leases have ended; nothing is lost."""
    shop.worker("other", "--threads", "3")
    hold(shop, "a")
    shop.worker("one", "--threads", "3")
    publisher = shop.site.publisher(200, 0.01, SITE_DATABASE=f'{{"HOST": "{shop.site.server.folder}"}}')
    wait_until(lambda: sum(shop.site.acknowledged().values()) > 50)
    shop.hosts["other"].die()
    wait_until(lambda: began(shop, "a") == ["other", "one"])
    end(shop, "a")
    shop.site.finish(publisher)


def test_a_host_is_cut_off_for_longer_than_its_leases_and_comes_back(shop: Shop) -> None:
    """Its jobs run elsewhere; what it finished meanwhile is refused, and its log says so; then it works again."""
    other = shop.worker("other", "--threads", "2")
    hold(shop, "a")
    one = shop.worker("one", "--threads", "2")
    shop.hosts["other"].cut_off()
    wait_until(lambda: began(shop, "a") == ["other", "one"])
    other.wait_for(GONE)
    end(shop, "a")
    wait_until(lambda: shop.site.acknowledged())
    shop.hosts["other"].connect()
    other.wait_for("lost  shop.tasks.hold")
    assert set(shop.site.acknowledged().values()) == {1}
    assert shop.site.execute("SELECT result, claims FROM vtqueue_job") == [('"one"', 2)]
    one.terminate()
    hold(shop, "b")
    assert began(shop, "b") == ["other"]
    end(shop, "b")
    wait_until(lambda: len(shop.site.acknowledged()) == 2)
    assert_said(other, GONE)


LIMITED = """
from shop.tasks import compute, sleep_inside
compute.enqueue("a")
sleep_inside.enqueue("b", "SELECT {}")
"""


@pytest.mark.parametrize("hanging", ["1", "pg_sleep(1000)"], ids=["in Python", "in a statement"])
def test_time_limits_on_a_host_that_is_cut_off(shop: Shop, hanging: str) -> None:
    """A transaction that cannot be rolled back keeps no other task from its own limit."""
    shop.worker("other", SITE_DATABASE='{"OPTIONS": {}}')  # what the kernel waits is 15 minutes
    assert shop.python("one", LIMITED.format(hanging)).wait() == 0
    wait_until(lambda: began_all(shop, "a", "b"))
    shop.hosts["other"].cut_off()
    wait_until((shop.site.folder / "a-ended").exists)


def began_all(shop: Shop, *names: str) -> bool:
    return all((shop.site.folder / f"{name}-began").exists() for name in names)


LOCK = """
import time
from tests.faults.inside import begun_claim
with begun_claim("default", silent=2) as found:
    print("found", found, flush=True)
    time.sleep(1000)
"""


def test_a_host_dies_in_the_middle_of_a_claim(shop: Shop) -> None:
    """What its transaction has locked is free again after a moment, though nothing has told the server of its death."""
    publisher = shop.python(
        "one", "from shop.tasks import note\nfor number in range(3): print(note.enqueue(number).id)"
    )
    publisher.wait()
    claim = shop.python("other", LOCK)
    claim.wait_for("found 3")
    shop.hosts["other"].die()
    shop.worker("one")
    shop.site.finish(publisher)


LEAD = """
import time
from django_vtqueue import Lease

def say(what):
    print(what, time.clock_gettime(time.CLOCK_BOOTTIME), flush=True)

lease = Lease("nightly", ttl=3, on_lost=lambda: say("lost"))
lease.acquire()
say("leads")
while lease.held:
    time.sleep(0.005)
say("ends")
time.sleep(1000)
"""


def said(process: Running, what: str) -> float:
    """Wait until a process has said something; return when that was."""
    process.wait_for(f"{what} ")
    [line] = process.lines(f"{what} ")
    return float(line.split()[1])


def test_a_leader_is_cut_off(shop: Shop) -> None:
    """It does not believe in its lease any more when another host leads, and its ``on_lost`` is called soon."""
    other = shop.python("other", LEAD)
    said(other, "leads")
    one = shop.python("one", LEAD)
    shop.hosts["other"].cut_off()
    assert said(other, "ends") < said(one, "leads")
    assert said(other, "lost") - said(other, "ends") < PROMPT


def test_the_clocks_of_the_hosts_are_hours_apart(shop: Shop, tmp_path: Path) -> None:
    """Leases, delays and retries are by the server's clock: no job is taken from its holder, none comes late."""
    clocks = {}
    for host, offset in (("one", -3600), ("other", 3600)):
        (tmp_path / host).mkdir()
        clocks[host] = WallClock(tmp_path / host)
        clocks[host].set(offset)
    other = shop.worker("other", "--threads", "1", **clocks["other"].variables)
    hold(shop, "a")
    one = shop.worker("one", **clocks["one"].variables)
    publisher = shop.python("other", LATER, **clocks["other"].variables)
    wait_until(lambda: shop.site.acknowledged())
    shop.site.execute("SELECT pg_sleep(%s)", LEASE + 1.0)
    end(shop, "a")
    shop.site.finish(publisher)
    claims = dict(shop.site.execute("SELECT task_path, claims FROM vtqueue_job"))
    assert claims == {"shop.tasks.hold": 1, "shop.tasks.note": 1, "shop.tasks.fail_once": 2}
    assert began(shop, "a") == ["other"]
    [retry] = [*one.lines("retry"), *other.lines("retry")]
    assert "next in 0." in retry
    for worker in (one, other):
        assert_untroubled(worker)
        assert not worker.lines("lost")


LATER = """
from datetime import timedelta
from shop.tasks import fail_once, note
print(note.using(run_after=timedelta(seconds=0.5)).enqueue(1).id, fail_once.enqueue("b").id)
"""


def test_people_ask_from_another_host(shop: Shop) -> None:
    """A job is cancelled, and a worker stopped, by commands on another host, also while no slot is free."""
    other = shop.worker("other", "--threads", "1")
    asked = shop.python("one", "from shop.tasks import steer\nprint(steer.enqueue('a').id)")
    asked.wait()
    wait_until(lambda: began(shop, "a"))
    assert shop.run("one", "-m", "django", "vtqueue", "cancel", asked.log.strip()).wait() == 0
    wait_until(lambda: shop.site.execute("SELECT 1 FROM vtqueue_deadletter"))
    assert shop.python("one", STOP).wait() == 0
    assert other.wait() == 0


STOP = """
from django_vtqueue import control
from django_vtqueue.models import WorkerProcess
assert control.stop_workers(WorkerProcess.objects.values_list("pk", flat=True))
"""
