"""Settling on SQLite: what is done, what waits again, and what is moved to the dead letters.

A statement is given its settlements as one JSON argument, an array of values for each. ``Values`` names them once:
``{DONE.attempts}`` in a statement is the SQL that reads the attempts.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from ...core import states
from ...core.job import ClaimKey
from ...core.settlement import Settlement
from ..contract_parts import Settling
from .connection import SQLiteConnection
from .statements import GUARD, GUARD_OF_BURIAL, NOT_HELD, guard
from .steps import UNFINISHED_CHILD


class Values:
    """What a statement is given of each settlement, in this order: attributes, such as ``state`` or ``job.claims``.

    ``of`` returns the values of a settlement; each other name stands for the SQL that reads the value of that name.
    """

    def __init__(self, *paths: str) -> None:
        self.of = attrgetter(*paths)
        self._positions = {path.rpartition(".")[2]: position for position, path in enumerate(paths)}

    def __getattr__(self, name: str) -> str:
        return f"json_extract(mine.value, '$[{self._positions[name]}]')"


GUARDED = ("job.id", "job.claims", "job.worker_id")  # in the order of GUARD
DONE = Values("job.claims", "attempts", "finished_at", "kept_until", "result", "job.started_at")
SETTLED = Values(
    *(*GUARDED, "attempts", "due_at", "history", "job.started_at", "held_until", "job.moved_from", "wake_at", "state"),
)
FAILURE = ("failure.exception_class", "failure.message", "failure.fingerprint")
BURIED = Values(*GUARDED, "finished_at", "kept_until", "history", *FAILURE, "attempts", "job.started_at")
WAITING = ("waiting.kind", "waiting.name", "waiting.until", "waiting.since", "waiting.text")
WAITS = Values(*GUARDED, "attempts", "job.started_at", *WAITING, "state")

# Before WAIT and MAKE_READY. OR IGNORE: another job may have the key by now. A durable task that has begun does not
# start anew, so it must not stand for what is published from now on.
TAKE_KEYS_BACK = f"""
UPDATE OR IGNORE vtqueue_job SET unique_until = 'start'
FROM json_each(:held) AS mine
WHERE {GUARD} AND unique_until = 'started' AND steps IS NULL AND cancelled_at IS NULL"""

LARGE = 20_000  # characters: a longer result is an argument of its own, for ACK parses ``:done`` for each column

# Most jobs end by this statement. Each json_extract parses its value again, so the values are small: the id is the key,
# and ``:worker_id`` is given once for all; the guard is that of GUARD. The row of a job that was claimed ahead may not
# have its attempt and its start yet; its holder gives both.
ACK = f"""
UPDATE vtqueue_job
SET state = 'SUCCESSFUL', attempts = {DONE.attempts}, finished_at = {DONE.finished_at},
    kept_until = {DONE.kept_until}, result = coalesce(:result, {DONE.result}), started_at = {DONE.started_at},
    lease_until = NULL
FROM json_each(:done) AS mine
WHERE vtqueue_job.id = mine.key AND vtqueue_job.claims = {DONE.claims}
  AND +vtqueue_job.worker_id = :worker_id AND +vtqueue_job.state = 'RUNNING'"""

# For nack and release; without a new time the job keeps its place in the line. A cancelled job does not wait again. One
# that has used an attempt has started, so it cannot expire any more.
MAKE_READY = f"""
UPDATE vtqueue_job
SET state = CASE WHEN {SETTLED.held_until} IS NULL THEN {SETTLED.state} ELSE 'RUNNING' END, worker_id = '',
    copies = NULL, lease_until = {SETTLED.held_until}, wake_at = {SETTLED.wake_at},
    attempts = {SETTLED.attempts}, due_at = coalesce({SETTLED.due_at}, due_at),
    history = coalesce({SETTLED.history}, history), started_at = {SETTLED.started_at},
    moved_from = CASE WHEN {SETTLED.due_at} IS NULL THEN {SETTLED.moved_from} END,
    start_by = CASE {SETTLED.attempts} WHEN 0 THEN start_by END
FROM json_each(:settlements) AS mine WHERE {GUARD} AND cancelled_at IS NULL"""

# A durable task that waits, or a job that is put off, uses no attempt, and a task that waits does not expire. What it
# waits for may have come since its code looked; see steps.py.
HAS_COME = f"""CASE {WAITS.kind}
        WHEN 'event' THEN EXISTS (
            SELECT 1 FROM json_each(steps, '$.events') AS event WHERE json_extract(event.value, '$.name') = {WAITS.name}
        )
        WHEN 'gather' THEN NOT {UNFINISHED_CHILD}
    END"""
WAIT = f"""
UPDATE vtqueue_job
SET state = CASE WHEN {HAS_COME} THEN 'READY' ELSE {WAITS.state} END,
    due_at = CASE WHEN {HAS_COME} THEN min({WAITS.since}, {WAITS.until}) ELSE {WAITS.until} END,
    wake_at = CASE WHEN {HAS_COME} THEN NULL ELSE {WAITS.until} END,
    worker_id = '', copies = NULL, lease_until = NULL, attempts = {WAITS.attempts}, started_at = {WAITS.started_at},
    start_by = CASE WHEN {WAITS.kind} = 'snooze' AND {WAITS.attempts} = 0 THEN start_by END,
    steps = CASE {WAITS.kind} WHEN 'snooze' THEN steps
        ELSE json_set(coalesce(steps, '{{}}'), '$.waiting', json({WAITS.text})) END
FROM json_each(:settlements) AS mine WHERE {GUARD} AND cancelled_at IS NULL"""

REMOVE_UNKEPT = """
DELETE FROM vtqueue_job
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'SUCCESSFUL' AND kept_until = finished_at"""

# OR REPLACE: there is a letter of that id already only if its job was copied into the queue by hand.
BURY = f"""
INSERT OR REPLACE INTO vtqueue_deadletter (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, unique_key, unique_until,
    concurrency_key, ordered, rate_key, parent_id, enqueued_at, started_at, kept_until, died_at, exception_class,
    message, fingerprint, metadata, payload, history, steps, earlier_steps
) SELECT
    vtqueue_job.id, queue_name, task_path, priority, claims, {BURIED.attempts}, max_attempts, worker_id,
    lease_us, unique_key, unique_until, concurrency_key, ordered, rate_key, parent_id, enqueued_at, {BURIED.started_at},
    {BURIED.kept_until}, {BURIED.finished_at}, {BURIED.exception_class}, {BURIED.message}, {BURIED.fingerprint},
    metadata, payload, {BURIED.history}, steps, earlier_steps
FROM json_each(:settlements) AS mine CROSS JOIN vtqueue_job WHERE {GUARD_OF_BURIAL}"""

REMOVE_BURIED = f"""
DELETE FROM vtqueue_job WHERE rowid IN (
    SELECT vtqueue_job.rowid FROM json_each(:settlements) AS mine CROSS JOIN vtqueue_job WHERE {GUARD_OF_BURIAL}
)"""
_encode = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would make an encoder for each call


def _json(settlements: Sequence[Settlement], values: Values) -> str:
    """Return the argument of the statements that read these values."""
    return _encode([values.of(settlement) for settlement in settlements])


class SQLiteSettling(SQLiteConnection, Settling):
    """The part of an Engine that settles."""

    def settle(self, settlements: Sequence[Settlement]) -> set[ClaimKey]:
        dying = [item for item in settlements if item.state == states.FAILED]
        done = [item for item in settlements if item.state == states.SUCCESSFUL]
        unfinished = [item for item in settlements if item.goes_on]
        large = [item for item in done if len(item.result or "") > LARGE]
        small = [item for item in done if len(item.result or "") <= LARGE] if large else done
        lost = self._bury(dying) if dying else set()
        if unfinished:
            lost |= self._end_unfinished(unfinished)
        if small:
            lost |= self._ack(small)
        for item in large:
            lost |= self._ack([replace(item, result=None)], item.result)
        return lost

    def _end_unfinished(self, unfinished: Sequence[Settlement]) -> set[ClaimKey]:
        if back := [guard(item.job) for item in unfinished if item.as_before]:
            self._run(TAKE_KEYS_BACK, {"held": json.dumps(back)})
        ready, waiting = [s for s in unfinished if not s.waiting], [s for s in unfinished if s.waiting]
        lost = self._make_ready(ready) if ready else set()
        if waiting:
            lost |= self._wait(waiting)
        return lost

    def _make_ready(self, ready: Sequence[Settlement]) -> set[ClaimKey]:
        released = [guard(s.job) for s in ready if s.due_at is None and s.history is None]
        refused = self._keys(NOT_HELD, {"held": json.dumps(released)}) if released else set()
        if self._run(MAKE_READY, {"settlements": _json(ready, SETTLED)}) == len(ready):
            return set()
        return refused | self.not_carried_out(ready)

    def _wait(self, waits: Sequence[Settlement]) -> set[ClaimKey]:
        changed = self._run(WAIT, {"settlements": _json(waits, WAITS)})
        return set() if changed == len(waits) else self.not_carried_out(waits)

    def _ack(self, done: Sequence[Settlement], result: str | None = None) -> set[ClaimKey]:
        """Acknowledge jobs; ``result``: that of a single one."""
        ended = {settlement.job.id: DONE.of(settlement) for settlement in done}
        worker_id, *others = {s.job.worker_id for s in done}
        if others or len(ended) < len(done):  # a job that was lost and claimed again is there twice
            return set().union(*(self._ack([settlement]) for settlement in done))
        values = {"done": _encode(ended), "worker_id": worker_id, "result": result}
        lost = set() if self._run(ACK, values) == len(done) else self.not_carried_out(done)
        if unkept := [s.job.id for s in done if s.unkept]:
            self._run(REMOVE_UNKEPT, {"ids": json.dumps(unkept)})
        return lost

    def _bury(self, settlements: Sequence[Settlement]) -> set[ClaimKey]:
        rows = _json(settlements, BURIED)
        buried = self._run(BURY, {"settlements": rows})
        self._run(REMOVE_BURIED, {"settlements": rows})
        return set() if buried == len(settlements) else self.not_carried_out(settlements)
