"""Settling on PostgreSQL: what is done, what waits again, and what is moved to the dead letters."""

from collections.abc import Sequence
from contextlib import suppress

from django.db.utils import IntegrityError

from ...core import states
from ...core.job import ClaimKey, HeldJob
from ...core.settlement import Settlement
from ..contract_parts import Settling
from .connection import PostgreSQLConnection
from .statements import GUARD, GUARD_OF_BURIAL, HELD, NOT_HELD, Values, uuids
from .steps import EVENTS, LOCK_ROWS, UNFINISHED_CHILD, with_steps

GUARDED = ("job.id uuid", "job.claims bigint", "job.worker_id text")
DONE = Values(*GUARDED, "attempts bigint", "finished_at bigint", "kept_until bigint", "result text",
              "job.started_at bigint")  # fmt: skip
SETTLED = Values(*GUARDED, "attempts bigint", "due_at bigint", "history text", "job.started_at bigint",
                 "held_until bigint", "job.moved_from bigint", "wake_at bigint", "state text")  # fmt: skip
BURIED = Values(
    *(*GUARDED, "finished_at bigint", "kept_until bigint", "history text", "failure.exception_class text"),
    *("failure.message text", "failure.fingerprint text", "attempts bigint", "job.started_at bigint"),
)
WAITS = Values(
    *(*GUARDED, "attempts bigint", "job.started_at bigint", "waiting.kind text", "waiting.name text"),
    *("waiting.until bigint", "waiting.since bigint", "waiting.text text", "state text"),
)

# Before WAIT and MAKE_READY. A key that another job has by now is not taken back, and of two jobs of one key only one
# takes it. A durable task that has begun does not start anew, so it must not stand for what is published from now on.
TAKE_KEYS_BACK = f"""
UPDATE vtqueue_job AS back SET unique_until = 'start'
FROM (
    SELECT DISTINCT ON (job.queue_name, job.unique_key) job.id FROM {HELD.mine}, vtqueue_job AS job
    WHERE {GUARD} AND job.unique_until = 'started' AND job.steps IS NULL AND job.cancelled_at IS NULL
    ORDER BY job.queue_name, job.unique_key, job.id
) AS first
WHERE back.id = first.id AND NOT EXISTS (
    SELECT 1 FROM vtqueue_job AS other
    WHERE other.queue_name = back.queue_name AND other.unique_key = back.unique_key
      AND other.finished_at IS NULL AND other.unique_key IS NOT NULL AND NOT other.unique_until = 'started'
)"""

# Most jobs end by this statement. The row of a job that was claimed ahead may not have its attempt and its start yet;
# its holder gives both.
ACK = f"""
UPDATE vtqueue_job AS job
SET state = 'SUCCESSFUL', attempts = mine.attempts, finished_at = mine.finished_at, kept_until = mine.kept_until,
    result = mine.result, started_at = mine.started_at, lease_until = NULL
FROM {DONE.mine} WHERE {GUARD}"""

# For nack and release; without a new time the job keeps its place in the line. A cancelled job does not wait again. One
# that has used an attempt has started, so it cannot expire any more.
MAKE_READY = f"""
UPDATE vtqueue_job AS job
SET state = CASE WHEN mine.held_until IS NULL THEN mine.state ELSE 'RUNNING' END, worker_id = '', copies = NULL,
    lease_until = mine.held_until, wake_at = mine.wake_at, attempts = mine.attempts,
    due_at = coalesce(mine.due_at, job.due_at),
    history = coalesce(mine.history, job.history), started_at = mine.started_at,
    moved_from = CASE WHEN mine.due_at IS NULL THEN mine.moved_from END,
    start_by = CASE mine.attempts WHEN 0 THEN job.start_by END
FROM {SETTLED.mine} WHERE {GUARD} AND job.cancelled_at IS NULL"""

# A durable task that waits, or a job that is put off, uses no attempt, and a task that waits does not expire. What it
# waits for may have come since its code looked; see steps.py.
HAS_COME = f"""CASE mine.kind
        WHEN 'event' THEN EXISTS (
            SELECT 1 FROM json_array_elements({EVENTS}) AS event(value) WHERE event.value ->> 'name' = mine.name
        )
        WHEN 'gather' THEN NOT {UNFINISHED_CHILD}
    END"""
WAIT = f"""
UPDATE vtqueue_job AS job
SET state = CASE WHEN {HAS_COME} THEN 'READY' ELSE mine.state END,
    due_at = CASE WHEN {HAS_COME} THEN least(mine.since, mine.until) ELSE mine.until END,
    wake_at = CASE WHEN {HAS_COME} THEN NULL ELSE mine.until END,
    worker_id = '', copies = NULL, lease_until = NULL, attempts = mine.attempts, started_at = mine.started_at,
    start_by = CASE WHEN mine.kind = 'snooze' AND mine.attempts = 0 THEN job.start_by END,
    steps = CASE mine.kind WHEN 'snooze' THEN job.steps
        ELSE {with_steps(waiting="mine.text")} END
FROM {WAITS.mine} WHERE {GUARD} AND job.cancelled_at IS NULL"""

REMOVE_UNKEPT = """
DELETE FROM vtqueue_job WHERE id = ANY(%(ids)s::uuid[]) AND state = 'SUCCESSFUL' AND kept_until = finished_at"""

# One statement moves the row. There is a letter of that id already only if its job was copied into the queue by hand.
LETTER = (
    *("id", "queue_name", "task_path", "priority", "claims", "attempts", "max_attempts", "worker_id", "lease_us"),
    *("unique_key", "unique_until", "concurrency_key", "ordered", "rate_key", "parent_id", "enqueued_at"),
    *("started_at", "kept_until", "died_at", "exception_class", "message", "fingerprint", "metadata"),
    *("payload", "history", "steps", "earlier_steps"),
)
OF_SETTLEMENT = {name: f"mine.{name}" for name in ("attempts", "started_at", "kept_until", "history")}
OF_SETTLEMENT |= {"died_at": "mine.finished_at", "exception_class": "mine.exception_class"}
OF_SETTLEMENT |= {"message": "mine.message", "fingerprint": "mine.fingerprint"}
BURY = f"""
WITH gone AS (
    DELETE FROM vtqueue_job AS job USING {BURIED.mine} WHERE {GUARD_OF_BURIAL}
    RETURNING {", ".join(f"{OF_SETTLEMENT.get(name, f'job.{name}')} AS {name}" for name in LETTER)}
)
INSERT INTO vtqueue_deadletter ({", ".join(LETTER)}) SELECT {", ".join(LETTER)} FROM gone
ON CONFLICT (id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in LETTER[1:])}"""


class PostgreSQLSettling(PostgreSQLConnection, Settling):
    """The part of an Engine that settles."""

    def settle(self, settlements: Sequence[Settlement]) -> set[ClaimKey]:
        dying = [item for item in settlements if item.state == states.FAILED]
        done = [item for item in settlements if item.state == states.SUCCESSFUL]
        again = [item for item in settlements if item.goes_on]
        lost = self._bury(dying) if dying else set()
        if back := [item.job for item in again if item.as_before]:
            self._take_keys_back(back)
        if done:
            lost |= self._ack(done)
        if at_once := [item for item in again if not item.waiting]:
            lost |= self._make_ready(at_once)
        waits = [item for item in again if item.waiting]
        parents = {item.job.parent_id for item in settlements if item.job.parent_id and not item.goes_on}
        if parents or waits:  # those that wait may be parents, too: in one order, else two turns wait for each other
            self._rows(LOCK_ROWS, {"ids": uuids(parents.union(item.job.id for item in waits))})
        return lost | self._wait(waits) if waits else lost

    def _take_keys_back(self, jobs: Sequence[HeldJob]) -> None:
        """Run TAKE_KEYS_BACK, which does not see a key that another transaction is just taking, and is refused then.

        After that each job takes its own, and one that is refused goes without.
        """
        with suppress(IntegrityError), self.atomic():
            self._run(TAKE_KEYS_BACK, HELD.given(jobs))
            return
        for job in jobs if len(jobs) > 1 else ():
            self._take_keys_back([job])

    def _make_ready(self, again: Sequence[Settlement]) -> set[ClaimKey]:
        released = [s.job for s in again if s.due_at is None and s.history is None]
        refused = self._keys(NOT_HELD, HELD.given(released)) if released else set()
        if self._run(MAKE_READY, SETTLED.given(again)) == len(again):
            return set()
        return refused | self.not_carried_out(again)

    def _wait(self, waits: Sequence[Settlement]) -> set[ClaimKey]:
        return set() if self._run(WAIT, WAITS.given(waits)) == len(waits) else self.not_carried_out(waits)

    def _ack(self, done: Sequence[Settlement]) -> set[ClaimKey]:
        lost = set() if self._run(ACK, DONE.given(done)) == len(done) else self.not_carried_out(done)
        if unkept := [s.job.id for s in done if s.unkept]:
            self._run(REMOVE_UNKEPT, {"ids": unkept})
        return lost

    def _bury(self, settlements: Sequence[Settlement]) -> set[ClaimKey]:
        buried = self._run(BURY, BURIED.given(settlements))
        return set() if buried == len(settlements) else self.not_carried_out(settlements)
