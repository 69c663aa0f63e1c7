"""Limits in a storm of kills: never above, hardly ever below while work waits, and nothing parked for ever."""

import random
import time
from pathlib import Path

from django_vtqueue import Queue
from tests.project import limited

from ..conftest import ALIAS
from ..processes.database import Database
from ..processes.limits import Journal
from ..processes.running import Running, Start
from ..waiting import PATIENCE, wait_until
from .inside import give_options
from .scale import MINUTES, chosen_seed, each_engine, scaled

SECONDS = scaled(8.0, 60 * MINUTES)
LIMITS = {"tenant:1": 3, "tenant:2": 3, "two": 2, "queue": 3, "raw:9": 2}
ORDERS = {f"customer:{number}": 1 for number in range(3)}
QUEUES = {"narrow": {"concurrency": 3}, "raw": {"concurrency": 2, "handler": "tests.project.limited.handle"}}
PLACES = """
SELECT count(CASE WHEN worker_id <> '' THEN 1 END) AS held, count(CASE WHEN worker_id = '' THEN 1 END) AS waits
FROM vtqueue_job WHERE finished_at IS NULL AND (concurrency_key = ? OR queue_name = ?)"""
ASK = {
    "tenant:1": ("tenant:1", "-"),
    "tenant:2": ("tenant:2", "-"),
    "two": ("tests.project.limited.two", "-"),
    "queue": ("-", "narrow"),
    "raw:9": ("raw:9", "-"),
}
HOSTS = scaled((1, 30, 1000), (1, 100, 1000, 3000))  # how many keys a changed rate has
CHANGING, SOON = scaled(1.0, 60.0), scaled(10.0, 15.0)  # seconds
BOOKED = "SELECT count(*) AS jobs FROM vtqueue_job WHERE moved_from IS NOT NULL"


class Feeder:
    """Keeps some jobs of each kind waiting."""

    def __init__(self, database: Database, journal: Journal, seed: int) -> None:
        self.database, self.path = database, str(journal.path)
        self.chance = random.Random(seed)
        self.number = 0
        self.raw = Queue("raw", using=ALIAS)
        give_options(self.raw, database.backend)

    def feed(self) -> None:
        each = self.chance.choice([0.05, 0.2, 0.4])
        for tenant in (1, 2):
            self.more("tenant:" + str(tenant), limited.of_tenant, [(self.path, each, tenant)] * 10)
        self.more("two", limited.two, [(self.path, each)] * 10)
        self.more("queue", limited.in_queue.using(queue_name="narrow"), [(self.path, each)] * 10)
        if self.waiting("raw:9")[1] < 10:
            self.raw.publish_many([[self.path, "raw:9", each]] * 10, concurrency_key=lambda payload: payload[1])
        if self.database.unfinished() < 150:
            calls = [(self.path, 0.01, customer, self.number, True) for customer in range(3)]
            self.database.enqueue_many(limited.in_order, calls)
            self.number += 1

    def more(self, key: str, task: object, calls: list[tuple[object, ...]]) -> None:
        if self.waiting(key)[1] < 10:
            self.database.enqueue_many(task, calls)  # type: ignore[arg-type]

    def waiting(self, key: str) -> tuple[int, int]:
        """Return how many jobs of a limit are held, and how many wait."""
        [row] = self.database.rows(PLACES, *ASK[key])
        return row["held"], row["waits"]


@each_engine
def test_a_storm_of_kills(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """Four workers, of which one is killed or stopped every second or so; each count is that of the tasks themselves.

    What is sampled of the rows says how much of each limit is used while work waits: 95 % at least, in a long run.
    Beside the other tests of the suite it is less, for the workers that take the places of the killed ones are slow to
    start.
    """
    seed = chosen_seed()
    database.options |= {"queue_options": QUEUES, "max_attempts": 0}
    journal, chance = Journal(tmp_path / "journal"), random.Random(seed)
    feeder = Feeder(database, journal, seed)
    feeder.feed()
    workers: list[Running] = [start_worker("--threads", "16") for _ in range(4)]
    samples: dict[str, list[int]] = {key: [] for key in LIMITS}
    ends, next_kill = time.monotonic() + SECONDS, time.monotonic() + 2
    while time.monotonic() < ends:
        feeder.feed()
        for key, seen in samples.items():
            held, waits = feeder.waiting(key)
            if waits:
                seen.append(held)
        if time.monotonic() >= next_kill:
            next_kill = time.monotonic() + chance.uniform(0.5, 2)
            victim = workers.pop(chance.randrange(len(workers)))
            if chance.random() < 0.7:
                victim.process.kill()
                journal.killed(victim.pid)
            else:
                victim.process.terminate()
            workers.append(start_worker("--threads", "16", ready=False))
        time.sleep(0.03)
    wait_until(lambda: not database.unfinished(), 2 * PATIENCE)
    most = journal.most()
    assert {key: number for key, number in most.items() if number > (LIMITS | ORDERS | {"-": 0})[key]} == {}
    used = {key: round(sum(seen) / len(seen) / LIMITS[key], 3) for key, seen in samples.items() if seen}
    print(used, {key: len(journal.starts(key)) for key in most})
    assert not MINUTES or min(used.values()) >= 0.95, used
    for key in ORDERS:
        order = journal.order(key)
        assert order == sorted(order), f"{key}: {order}"


@each_engine
def test_rates_that_change(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """However many keys it has, and whoever is killed: what a rate has put off starts soon after it was changed."""
    database.options |= {"task_modules": ["tests.project.limited"]}
    path, chance = tmp_path / "journal", random.Random(chosen_seed())
    ends, hosts = time.monotonic() + CHANGING, list(HOSTS)
    while hosts or time.monotonic() < ends:
        number = hosts.pop() if hosts else chance.choice(HOSTS)
        slow = start_worker("--threads", "4", VTQUEUE_TEST_RATE="1/d")
        database.enqueue_many(limited.at_rate_of_host, [(str(path), host) for host in range(number)] * 2)
        wait_until(lambda: 0 < database.unfinished() == database.rows(BOOKED)[0]["jobs"], 2 * PATIENCE)
        if chance.random() < 0.5:
            slow.kill()
        else:
            slow.terminate()
        fast = start_worker("--threads", "4")
        started = time.monotonic()
        wait_until(lambda: not database.rows(BOOKED)[0]["jobs"], 2 * PATIENCE)
        took = time.monotonic() - started
        print(f"{number} keys: {took:.1f} s")
        assert took < SOON
        wait_until(lambda: not database.unfinished(), 2 * PATIENCE)
        fast.terminate()
