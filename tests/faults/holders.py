"""Leases and time slots against a model: instances that take, renew, give back and die, by clocks that do anything."""

from dataclasses import dataclass

from django.db import connections
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from django_vtqueue import Lease, LeaseLost
from django_vtqueue.core import states
from django_vtqueue.models import Job
from django_vtqueue.patterns.holder import Holder
from django_vtqueue.patterns.slot_cycle import SlotHolder
from django_vtqueue.patterns.slot_rows import CYCLE, Cycle
from tests.fake_clock import START, FakeClock

from ..patterns.conftest import BootClock

TTL, PERIOD, MARGIN = 30.0, 30.0, 1.0  # seconds; the lease of a slot is two periods
LEASE, SLOTS = "lease:x", "slots:x"
KINDS = [LEASE, LEASE, LEASE, SLOTS, SLOTS, SLOTS]  # of the instances

instances = st.integers(0, len(KINDS) - 1)
passes = st.sampled_from([29.5, 0.5, 14, 28.5, 31, 59.5, 61])  # seconds
steps = st.sampled_from([3600.4321, 0, -86400.1234, -29.77777])


@dataclass
class ModelRow:
    """``holder``: None: it is free. ``changes``: how often it was taken or renewed; ``seen``: those by ``since``."""

    ttl: float
    holder: "ModelInstance | None" = None
    claims: int = 0
    changes: int = 0
    seen: int = 0
    since: float = 0.0


@dataclass(eq=False)
class ModelInstance:
    """``row``, ``token``: what it has taken, and not given back; ``until``: when its belief ends; ``dead``: proven."""

    kind: str
    row: ModelRow | None = None
    token: int = 0
    until: float = 0.0
    dead: bool = False


class HoldersAgainstModel(RuleBasedStateMachine):
    """Three instances of a lease, and three of a cycle of two slots."""

    def __init__(self, alias: str, boot: BootClock, wall: FakeClock) -> None:
        super().__init__()
        self.alias, self.boot, self.wall = alias, boot, wall
        Job.objects.using(alias).all().delete()
        boot.now, wall.instant = 1000.0, START  # the steps of many courses of events would lead out of all calendars
        self.rows = {LEASE: {"leader": ModelRow(TTL)}, SLOTS: {"0": ModelRow(2 * PERIOD), "1": ModelRow(2 * PERIOD)}}
        self.crashed: list[Holder] = []
        self.models = [ModelInstance(kind) for kind in KINDS]
        self.holders = [self.new(kind) for kind in KINDS]

    def new(self, kind: str) -> Holder:
        if kind == LEASE:
            return Lease("x", TTL, self.alias, renewing=False)._holder
        holder = SlotHolder("x", SLOTS, Cycle(2, PERIOD, 0.0), self.alias)
        holder.renewing = False
        return holder

    @invariant()
    def rows_and_model_agree(self) -> None:
        """Each row is held, free, and claimed as often as the model says; each instance believes what it should."""
        jobs = Job.objects.using(self.alias).exclude(unique_key=CYCLE).filter(due_at__lt=1 << 60)
        rows = jobs.values_list("queue_name", "unique_key", "state", "claims")
        found = {(kind, key): (state == states.RUNNING, claims) for kind, key, state, claims in rows}
        expected = {
            (kind, key): (row.holder is not None, row.claims)
            for kind in self.rows
            for key, row in self.rows[kind].items()
        }
        assert found.items() <= expected.items()
        assert all(found.get(key) or state == (False, 0) for key, state in expected.items())
        assert [holder.held for holder in self.holders] == [model.until > self.boot.now for model in self.models]

    @invariant()
    def one_holder_at_a_time(self) -> None:
        """No two instances believe to hold one row."""
        held = [
            (kind, holder.job and holder.job.id)
            for kind, holder in zip(KINDS, self.holders, strict=True)
            if holder.held
        ]
        assert len(held) == len(set(held))

    @rule(number=instances)
    def acquire(self, number: int) -> None:
        """It has the first row that is free, or whose holder is gone, under a token that is greater than all before."""
        model, holder = self.models[number], self.holders[number]
        if model.until <= self.boot.now:
            self.give_back(model)
            self.take(model)
        assert holder.acquire(blocking=False) == (model.until > self.boot.now)
        if holder.job and model.row:
            assert (holder.job.claims, holder.held) == (model.token, True)

    def take(self, model: ModelInstance) -> None:
        now, rows = self.boot.now, self.rows[model.kind].values()
        for row in rows:
            if row.holder and row.seen != row.changes:
                row.seen, row.since = row.changes, now
            if row.holder and (row.holder is model or row.holder.dead or now - row.since >= row.ttl):
                row.holder = None
        for row in [row for row in rows if row.holder is None][:1]:
            row.holder, row.claims = model, row.claims + 1
            model.row, model.token = row, row.claims
            self.renewed(model, row)

    def renewed(self, model: ModelInstance, row: ModelRow) -> None:
        row.changes, model.until = row.changes + 1, self.boot.now + row.ttl - MARGIN

    def give_back(self, model: ModelInstance) -> None:
        if (row := model.row) and row.holder is model and row.claims == model.token:
            row.holder = None
        model.row, model.until = None, 0.0

    @rule(number=instances)
    def renew(self, number: int) -> None:
        """It is held for one more lease, if it is held."""
        model = self.models[number]
        try:
            self.holders[number].renew()
        except LeaseLost:
            assert model.until <= self.boot.now
            model.row = None  # it is not given back
        else:
            assert model.row
            assert model.until > self.boot.now
            self.renewed(model, model.row)

    @rule(number=instances)
    def release(self, number: int) -> None:
        self.holders[number].release()
        self.give_back(self.models[number])

    @rule(number=instances, proven=st.booleans())
    def crash(self, number: int, proven: bool) -> None:
        """It is gone; another one begins. Its doorbell proves its death, or not."""
        bell, kind = self.holders[number]._bell, KINDS[number]
        if bell and proven:
            bell.let_go()
            self.models[number].dead = True
        self.crashed.append(self.holders[number])
        self.holders[number], self.models[number] = self.new(kind), ModelInstance(kind)

    @rule(seconds=passes, stands=st.booleans())
    def time_passes(self, seconds: float, stands: bool = False) -> None:
        """Time passes; the wall clock goes on, or stands still."""
        self.boot.pass_by(seconds)
        self.wall.advance(0 if stands else seconds)

    @rule(
        kind=st.sampled_from([LEASE, SLOTS]),
        seconds=passes,
        step=steps,
        renewing=st.booleans(),
        again=passes,
        stands=st.booleans(),
    )
    def all_try(self, kind: str, seconds: float, step: float, renewing: bool, again: float, stands: bool) -> None:
        """All instances of a kind try, before and after a time in which one of them may renew what it holds."""
        mine = [number for number, each in enumerate(KINDS) if each == kind]
        for acts in (self.acquire, self.acquire, self.renew if renewing else self.acquire, self.acquire):
            for number in mine:
                acts(number)
                self.rows_and_model_agree()
                self.one_holder_at_a_time()
            self.time_passes(seconds, stands)
            self.the_wall_clock_steps(step)
            seconds = again

    @rule(seconds=steps)
    def the_wall_clock_steps(self, seconds: float) -> None:
        self.wall.advance(seconds)

    def teardown(self) -> None:
        for holder in (*self.holders, *self.crashed):
            holder.release()
        connections[self.alias].close()
