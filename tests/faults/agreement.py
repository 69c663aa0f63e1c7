"""A queue and its model side by side: what both know, and what must hold after each step."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db import connections
from hypothesis.stateful import RuleBasedStateMachine, invariant

from django_vtqueue import LeaseLost, Queue
from django_vtqueue.core import history, states
from django_vtqueue.core.grace import GRACE, GracePeriod
from django_vtqueue.core.job import ClaimKey, HeldJob, Scope
from django_vtqueue.core.settlement import Settlement
from django_vtqueue.engines import new_engine
from django_vtqueue.queue import queue
from django_vtqueue.queue.claims import Claims, collect
from django_vtqueue.queue.queue import ClaimedJob
from django_vtqueue.queue.settling import settle
from tests.fake_clock import FakeClock

from .model import DIAGRAM, Model, ModelJob

NAMES = ("a", "b")
LEASES, BUDGETS = {"a": 7, "b": 3}, {"a": 2, "b": 1}  # seconds and attempts, of the Queue objects
RUNNING = states.RUNNING
GRACE_PERIOD = GracePeriod(GRACE)  # of one that has noticed no standstill

TABLES = """
SELECT id, queue_name, task_path = '', priority, max_attempts, lease_us, state, claims, attempts, worker_id,
    lease_until, due_at, finished_at, kept_until, cancelled_at IS NOT NULL, unique_key, unique_until, start_by, history
FROM vtqueue_job
UNION ALL
SELECT id, queue_name, task_path = '', priority, max_attempts, lease_us, 'FAILED', claims, attempts, worker_id,
    NULL, died_at, died_at, kept_until, FALSE, unique_key, unique_until, NULL, history
FROM vtqueue_deadletter"""


class Agreement(RuleBasedStateMachine):
    """A queue, a model of it, and all rights to settle that were ever given; the clock stands still."""

    def __init__(self, alias: str, clock: FakeClock) -> None:
        super().__init__()
        self.alias, self.clock, self.engine = alias, clock, new_engine(alias, traced=False)
        self.model = Model(by_id=connections[alias].vendor == "postgresql")
        self.queues = {
            name: Queue(name, alias, visibility_timeout=LEASES[name], max_attempts=BUDGETS[name]) for name in NAMES
        }
        self.workers = ["w0.1", "w1.1", "w2.1"]
        self.tokens: list[tuple[HeldJob, ClaimedJob | None]] = []  # with what a Queue has given for it
        self.ahead: list[HeldJob] = []  # claimed ahead, and not begun
        self.claimed: set[ClaimKey] = set()
        self.before: dict[str, str] = {}
        queue._gap_watches.clear()
        for table in ("job", "deadletter"):
            self.run(f"DELETE FROM vtqueue_{table}")

    # What holds then

    @invariant()
    def tables_and_model_agree(self) -> None:
        """No job is lost or invented, and of each everything is as it should be, its history too."""
        found = {hexadecimal(row[0]): (*row[1:-1], kept(row[-1])) for row in self.run(TABLES)}
        assert found == self.model.rows()
        self.steps_are_in_the_diagram({job_id: row[5] for job_id, row in found.items()})
        self.one_holder_at_a_time({job_id: (row[5], row[6], row[8]) for job_id, row in found.items()})
        self.clock.instant += 1  # no two steps at one instant

    def steps_are_in_the_diagram(self, now: dict[str, str]) -> None:
        steps = {(self.before.get(job_id), now.get(job_id)) for job_id in {*self.before, *now}}
        assert {step for step in steps if step[0] != step[1]} <= set(DIAGRAM)
        self.before = now

    def one_holder_at_a_time(self, guards: dict[str, tuple[str, int, str]]) -> None:
        """A right that a job's row grants is one that was given, and to one holder only."""
        all_held = [*self.ahead, *(held for held, _ in self.tokens)]
        valid = [held.id for held in all_held if guards.get(held.id) == (RUNNING, held.claims, held.worker_id)]
        assert len(valid) == len(set(valid))

    # How it is done

    def taken(self, scopes: list[Scope], limit: int, worker: str, ahead: int = 0) -> list[HeldJob]:
        now = self.clock.instant
        with self.engine.transaction():
            taken = Claims(self.engine).claim(scopes, limit, worker, now, grace_period=GRACE_PERIOD, ahead=ahead)
        return collect(self.engine, taken)

    def hold(self, tokens: list[tuple[HeldJob, ClaimedJob | None]]) -> None:
        """Keep what was claimed: no claim number of a job is ever given twice, whatever has become of it since."""
        keys = {held.key for held, _ in tokens}
        assert not keys & self.claimed
        self.claimed |= keys
        self.tokens += tokens

    def hold_ahead(self, jobs: list[HeldJob]) -> None:
        self.hold([(job, None) for job in jobs])
        self.tokens = self.tokens[: len(self.tokens) - len(jobs)]
        self.ahead += jobs

    def token(self, which: int) -> tuple[HeldJob, ClaimedJob | None]:
        """Return a right to settle, the latest for 0; most of the older ones are stale."""
        return self.tokens[-1 - which % len(self.tokens)]

    def settle(self, held: HeldJob, settlement: Settlement) -> bool:
        with self.engine.transaction():
            return held.key not in settle(self.engine, [settlement])

    def told(self, verb: Callable[[], None]) -> bool:
        """Return whether a verb of the primitive was accepted."""
        try:
            verb()
        except LeaseLost:
            return False
        return True

    def agree(self, held: HeldJob, mine: bool, change: Callable[[ModelJob], None]) -> None:
        """Only the holder of a job may end its attempt; then the model changes too."""
        row = self.model.held(held)
        assert mine == (row is not None)
        if row:
            row.attempts = held.attempts  # of what was claimed ahead the row does not know them
            change(row)

    def some_job(self, which: int) -> list[ModelJob]:
        """Return one job, whatever its state; none if there is none."""
        rows = list(self.model.jobs.values())
        return rows[which % len(rows) :][:1] if rows else []

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        with connections[self.alias].cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall()) if cursor.description else []


def hexadecimal(job_id: str | UUID) -> str:
    """Return an id as the queue has it, whatever the database makes of it."""
    return job_id.hex if isinstance(job_id, UUID) else job_id


def kept(text: str) -> list[Any]:
    """Return what a history says of each attempt, in the words of the model."""
    return [
        item if "omitted" in item else (item["number"], item["outcome"], item["worker"]) for item in history.read(text)
    ]
