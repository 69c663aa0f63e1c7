"""A queue with ``overflow``, in any course of events, against a model in plain Python."""

from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from django_vtqueue import Queue, control
from tests.fake_clock import FakeClock

from . import stored
from .inside import Hands, Held, Settlement, abandoned, failed, keeps_up, may_become, released, succeeded
from .scale import of_engine, scaled
from .words import (
    CANCELLED,
    DEAD,
    FAILED,
    GAVE_UP,
    QUEUED,
    READY,
    RUNNING,
    SCHEDULED,
    SECOND,
    SUCCESSFUL,
    WORKER_DIED,
)

LEASE = 5 * SECOND
COPIES = 2  # of a job that run at once, at the most

pick, workers = st.integers(0, 50), st.integers(0, 3)
delays = st.sampled_from([0, 0, 3])  # seconds


@dataclass
class ModelJob:
    """``copies``: the worker of each, by claim; ``ended``: how many attempts and copies have ended without success."""

    number: int
    max_attempts: int
    due_at: int
    state: str = READY
    claims: int = 0
    attempts: int = 0
    holder: str = ""
    lease_until: int = 0
    copies: dict[int, str] = field(default_factory=dict)
    asked: bool = False
    ended: int = 0

    def claim(self, worker: str, now: int) -> None:
        self.attempts += self.state == READY
        self.state, self.claims, self.holder, self.lease_until = RUNNING, self.claims + 1, worker, now + LEASE
        self.copies[self.claims] = worker

    def put_in_line(self, due_at: int, now: int) -> None:
        """Give it a place in the line, which it enters at that moment."""
        self.due_at, self.state = due_at, SCHEDULED if due_at > now else READY

    def end(self, claim: int, now: int, *, attempt: bool, final: bool = False, due_at: int = 0) -> None:
        """End a copy; ``attempt``: which used one up; ``final``: after which there shall be no other.

        ``due_at``: when there is one; 0: at its place in the line.
        """
        del self.copies[claim]
        self.ended += attempt
        if self.copies:
            self.holder, self.lease_until = self.copies[max(self.copies)], min(self.lease_until, now + LEASE)
            return
        self.attempts -= not attempt
        dies = self.asked or (attempt and (final or 0 < self.max_attempts <= self.attempts))
        if dies:
            self.state = DEAD
        else:
            self.holder = ""
            self.put_in_line(due_at or self.due_at, now)


class Overflow(RuleBasedStateMachine):
    """Workers that keep the lease of the last copy up, crash, and are found dead; and people who cancel."""

    def __init__(self, alias: str, clock: FakeClock) -> None:
        super().__init__()
        self.alias, self.clock, self.hands = alias, clock, Hands(alias)
        self.queue = Queue("q", alias, visibility_timeout=5)
        self.workers = [f"w{number}.1" for number in range(4)]
        self.jobs: dict[str, ModelJob] = {}
        self.tokens: list[Held] = []
        self.won: set[str] = set()
        self.before: dict[str, str | None] = {}
        stored.clear(alias)

    @invariant()
    def rows_and_model_agree(self) -> None:
        """No job is lost, each is where it should be, by a step that there is, and no more copies run than may."""
        found, copies = {}, stored.copies(self.alias)
        for job_id, row in stored.rows(self.alias).items():
            worker = "" if row.state == DEAD else row.worker
            ended = [outcome for _, outcome, _ in row.history if row.state != DEAD or outcome != CANCELLED]
            found[job_id] = (row.state, row.claims, row.attempts, worker, len(ended), copies.get(job_id, {}))
        for job_id, job in self.jobs.items():
            over = job.state in (DEAD, *QUEUED)
            known = (job.state, job.claims, job.attempts, "" if over else job.holder, job.ended, job.copies)
            assert found.pop(job_id) == known
            assert job.state != RUNNING or len(self.alive(job_id)) <= COPIES
        assert not found
        states = {job_id: None if job.state == DEAD else job.state for job_id, job in self.jobs.items()}
        assert all(may_become(self.before.get(job_id), state) for job_id, state in states.items())
        self.before = states
        self.clock.instant += 1

    def alive(self, job_id: str) -> list[Held]:
        """Return what the workers that live hold of a job, and may settle."""
        return [token for token in self.tokens if token.id == job_id and self.valid(token)]

    def valid(self, token: Held) -> bool:
        job = self.jobs[token.id]
        return job.state == RUNNING and token.claims in job.copies

    @rule(max_attempts=st.sampled_from([1, 2, 0]), delay=delays)
    def publish(self, max_attempts: int, delay: int) -> None:
        job_id, now = self.queue.publish(None, delay=delay, max_attempts=max_attempts).hex, self.clock.instant
        self.jobs[job_id] = ModelJob(len(self.jobs), max_attempts, now)
        self.jobs[job_id].put_in_line(now + delay * SECOND, now)

    @rule(which=workers, limit=st.integers(1, 3))
    def claim(self, which: int, limit: int) -> None:
        now, worker = self.clock.instant, self.workers[which]
        held = self.hands.claim_copies("q", limit, worker, now, COPIES)
        for job in self.jobs.values():
            gone = job.asked or len(job.copies) >= 2 * COPIES
            if job.state == RUNNING and gone and job.lease_until <= now:
                job.copies = {job.claims: job.holder}
                job.end(job.claims, now, attempt=True, final=job.asked)
                job.copies = {}
        for job in self.jobs.values():
            if job.state == SCHEDULED:
                job.put_in_line(job.due_at, now)
        due = [(job, job_id) for job_id, job in self.jobs.items() if self.takes(job, worker, now)]
        due = sorted(due, key=lambda item: (item[0].due_at, item[0].number))[:limit]
        assert [token.id for token in held] == [job_id for _, job_id in due]
        for job, _ in due:
            job.claim(worker, now)
        self.tokens += held

    def takes(self, job: ModelJob, worker: str, now: int) -> bool:
        reappears = job.state == RUNNING and job.lease_until <= now and worker not in job.copies.values()
        return job.state == READY or (reappears and not job.asked)

    @precondition(lambda self: self.tokens)
    @rule(which=pick, end=st.sampled_from(["succeed", "succeed", "fail", "give up", "release"]), delay=delays)
    def settle(self, which: int, end: str, delay: int) -> None:
        now, token = self.clock.instant, self.tokens[which % len(self.tokens)]
        settlement = {
            "succeed": lambda: succeeded(token, "1", now, None),
            "fail": lambda: failed(token, FAILED, now, delay * SECOND),
            "give up": lambda: failed(token, GAVE_UP, now, None),
            "release": lambda: released(token),
        }[end]()
        valid, job = self.valid(token), self.jobs[token.id]
        assert self.settled(settlement) == valid
        if not valid:
            return
        if end == "succeed":
            assert token.id not in self.won
            self.won.add(token.id)
            job.state, job.holder = SUCCESSFUL, token.worker_id
        else:
            due_at = now + delay * SECOND if end == "fail" else 0
            job.end(token.claims, now, attempt=end != "release", final=end == "give up", due_at=due_at)

    def settled(self, settlement: Settlement) -> bool:
        return not self.hands.settle(settlement)

    @rule(seconds=st.sampled_from([6, 2, 20]))
    def time_passes(self, seconds: int) -> None:
        """Workers look at their copies, and keep up the lease of the last one that may run."""
        for _ in range(seconds):
            self.clock.advance(1)
            known = self.hands.look_at_copies(self.tokens)
            for token in self.tokens:
                assert (token.key in known) == self.valid(token)
            renewing = [token for token in self.tokens if keeps_up(token, COPIES)]
            self.hands.renew(self.clock.instant, *renewing)
            for token in renewing:
                job = self.jobs[token.id]
                if self.valid(token) and token.claims == job.claims:
                    job.lease_until = max(job.lease_until, self.clock.instant + LEASE)

    @rule(which=workers, found=st.booleans())
    def die(self, which: int, found: bool) -> None:
        """A worker is gone; others may learn of that, or see nothing but that its leases end."""
        dead, now = self.workers[which], self.clock.instant
        held = self.hands.held_by(dead) if found else []
        assert not found or {job.key for job in held} == {t.key for t in self.tokens if t.worker_id == dead} & {
            t.key for t in self.tokens if self.valid(t)
        }
        for job in held:
            assert self.settled(abandoned(job, WORKER_DIED, now))
            self.jobs[job.id].end(job.claims, now, attempt=True)
        self.tokens = [token for token in self.tokens if token.worker_id != dead]
        self.workers[which] = f"w{which}.{int(dead.partition('.')[2]) + 1}"

    @precondition(lambda self: self.jobs)
    @rule(which=pick)
    def cancel(self, which: int) -> None:
        job_id, job = list(self.jobs.items())[which % len(self.jobs)]
        control.cancel([job_id], using=self.alias)
        if job.state in QUEUED:
            job.state = DEAD
        job.asked = job.asked or job.state == RUNNING


def test_any_course_of_events(alias: str, time: FakeClock) -> None:
    """Whichever copies end in whatever order: each job is acknowledged once or dead, by the rules; none is lost, and
    no more copies run than may, as long as workers that are not known to be dead keep the last one up.
    """
    steady = settings(max_examples=scaled(30, 500), stateful_step_count=60, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(lambda: Overflow(alias, time), settings=of_engine(alias, steady))
