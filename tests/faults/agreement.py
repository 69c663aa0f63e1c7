"""A queue and its model side by side: what both know, and what must hold after each step."""

from collections.abc import Callable

from django.db import connections
from hypothesis.stateful import RuleBasedStateMachine, invariant

from django_vtqueue import ClaimedJob, LeaseLost, Queue
from tests.fake_clock import FakeClock

from . import stored
from .inside import Hands, Held, Settlement, may_become
from .model import DIAGRAM, Model, ModelJob, Row
from .words import DEAD, RUNNING

NAMES = ("a", "b")
LEASES, BUDGETS = {"a": 7, "b": 3}, {"a": 2, "b": 1}  # seconds and attempts, of the Queue objects


class Agreement(RuleBasedStateMachine):
    """A queue, a model of it, and all rights to settle that were ever given; the clock stands still."""

    def __init__(self, alias: str, clock: FakeClock) -> None:
        super().__init__()
        self.alias, self.clock, self.hands = alias, clock, Hands(alias)
        self.model = Model(by_id=connections[alias].vendor == "postgresql")
        self.queues = {
            name: Queue(name, alias, visibility_timeout=LEASES[name], max_attempts=BUDGETS[name]) for name in NAMES
        }
        self.workers = ["w0.1", "w1.1", "w2.1"]
        self.tokens: list[tuple[Held, ClaimedJob | None]] = []  # with what a Queue has given for it
        self.ahead: list[Held] = []  # claimed ahead, and not begun
        self.claimed: set[tuple[str, int]] = set()
        self.before: dict[str, str] = {}
        stored.clear(alias)

    # What holds then

    @invariant()
    def tables_and_model_agree(self) -> None:
        """No job is lost or invented, and of each everything is as it should be, its history too."""
        found = stored.rows(self.alias)
        assert found == self.model.rows()
        self.steps_are_in_the_diagram({job_id: row.state for job_id, row in found.items()})
        self.one_holder_at_a_time(found)
        self.clock.instant += 1  # no two steps at one instant

    def steps_are_in_the_diagram(self, now: dict[str, str]) -> None:
        """Each is in that of the model, and in that of the queue, to which the row of a dead letter is no job."""
        steps = {(self.before.get(job_id), now.get(job_id)) for job_id in {*self.before, *now}}
        changes = {step for step in steps if step[0] != step[1]}
        assert changes <= set(DIAGRAM)
        assert all(may_become(*(None if state == DEAD else state for state in step)) for step in changes)
        self.before = now

    def one_holder_at_a_time(self, rows: dict[str, Row]) -> None:
        """A right that a job's row grants is one that was given, and to one holder only."""
        all_held = [*self.ahead, *(held for held, _ in self.tokens)]
        granted = {(job_id, row.claims, row.worker) for job_id, row in rows.items() if row.state == RUNNING}
        valid = [held.id for held in all_held if (held.id, held.claims, held.worker_id) in granted]
        assert len(valid) == len(set(valid))

    # How it is done

    def hold(self, tokens: list[tuple[Held, ClaimedJob | None]]) -> None:
        """Keep what was claimed: no claim number of a job is ever given twice, whatever has become of it since."""
        keys = {held.key for held, _ in tokens}
        assert not keys & self.claimed
        self.claimed |= keys
        self.tokens += tokens

    def hold_ahead(self, jobs: list[Held]) -> None:
        self.hold([(job, None) for job in jobs])
        self.tokens = self.tokens[: len(self.tokens) - len(jobs)]
        self.ahead += jobs

    def token(self, which: int) -> tuple[Held, ClaimedJob | None]:
        """Return a right to settle, the latest for 0; most of the older ones are stale."""
        return self.tokens[-1 - which % len(self.tokens)]

    def settle(self, held: Held, settlement: Settlement) -> bool:
        return held.key not in self.hands.settle(settlement)

    def told(self, verb: Callable[[], None]) -> bool:
        """Return whether a verb of the primitive was accepted."""
        try:
            verb()
        except LeaseLost:
            return False
        return True

    def agree(self, held: Held, mine: bool, change: Callable[[ModelJob], None]) -> None:
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
