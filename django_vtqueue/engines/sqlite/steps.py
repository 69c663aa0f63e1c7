"""Durable tasks on SQLite: the steps are a JSON object in the row; see core/steps.py.

A wait is settled by WAIT (settling.py), not by MAKE_READY: one UPDATE sees whether the event or the end of the last
child has come meanwhile, and the sender's one UPDATE sees whether the job waits. Whichever comes second finds the
other.
"""

import json
from collections.abc import Collection

from django.db.models import TextField
from django.db.models.expressions import RawSQL

from ...core.job import HeldJob
from ..contract_parts import DurableSteps, Noted
from .connection import SQLiteConnection, all_rows
from .statements import guard

HELD = "id = :id AND claims = :claims AND worker_id = :worker_id AND state = 'RUNNING'"
STEPS = f"SELECT steps, earlier_steps FROM vtqueue_job WHERE {HELD}"

# ``done`` is the holder's alone, so it is written as a whole. An event that it takes out has the index that the holder
# has read: senders only append. What has made a step has begun: it does not expire any more. The
# columns are returned as they are: ``cancelled_at IS NOT NULL`` is true for NULL there, for RETURNING (of SQLite 3.40)
# looks at another column if the table has a generated one.
#
# SQLite writes a row anew if its size has changed, else only those of its pages that have. So beside earlier steps,
# which are large, the text is filled with blanks up to whole pages: then an item of a loop writes some, not hundreds.
NEW_STEPS = "json_set(json_remove(coalesce(steps, '{}'), '$.waiting', :event), '$.done', json(:done))"
NOTE_STEPS = f"""
UPDATE vtqueue_job
SET steps = CASE WHEN earlier_steps IS NULL THEN {NEW_STEPS} ELSE (
        SELECT text || replace(hex(zeroblob(4096 - (length(CAST(text AS BLOB)) & 4095))), '00', ' ')
        FROM (SELECT {NEW_STEPS} AS text)
    ) END,
    start_by = NULL
WHERE {HELD}
RETURNING length(CAST(steps AS BLOB)) + coalesce(length(CAST(earlier_steps AS BLOB)), 0), cancelled_at, EXISTS (
    SELECT 1 FROM vtqueue_queuestate AS pause
    WHERE pause.queue_name = vtqueue_job.queue_name AND (paused_until IS NULL OR paused_until > :now)
)"""
NOTE_ALL_STEPS = NOTE_STEPS.replace("start_by = NULL", "start_by = NULL, earlier_steps = :earlier")

# Only a WAITING job is woken: one that woke and then failed, before it took the event, still has the wait in its steps.
WAITS_FOR_EVENT = """state = 'WAITING' AND json_extract(steps, '$.waiting.kind') = 'event'
            AND json_extract(steps, '$.waiting.name') = :name"""
SEND_EVENT = f"""
UPDATE vtqueue_job
SET steps = json_insert(
        CASE WHEN json_type(steps, '$.events') = 'array' THEN steps
            ELSE json_set(coalesce(steps, '{{{{}}}}'), '$.events', json_array()) END,
        '$.events[#]', json(:event)
    ),
    due_at = CASE WHEN {WAITS_FOR_EVENT} THEN min(due_at, :now) ELSE due_at END,
    wake_at = CASE WHEN {WAITS_FOR_EVENT} THEN NULL ELSE wake_at END,
    state = CASE WHEN {WAITS_FOR_EVENT} THEN 'READY' ELSE state END
WHERE {{}} AND NOT task_path = '' AND (steps IS NULL OR json_valid(steps))
RETURNING queue_name, length(CAST(steps AS BLOB)) + coalesce(length(CAST(earlier_steps AS BLOB)), 0)"""
EVENT_TO_ID = SEND_EVENT.format("id = :id AND +finished_at IS NULL")
EVENT_TO_KEY = SEND_EVENT.format(
    "queue_name = :queue_name AND unique_key = :unique_key "
    "AND finished_at IS NULL AND unique_key IS NOT NULL AND NOT unique_until = 'started'"
)

# One that the parent waits for: its last step names it. There may be others, of a step that is repeated, or that were
# requeued when the parent had gone on without them. LIMIT -1: the steps are parsed once, not for each child.
UNFINISHED_CHILD = """EXISTS (
    SELECT 1 FROM vtqueue_job AS child
    CROSS JOIN (SELECT value AS id FROM json_each(vtqueue_job.steps, '$.done[#-1].children') LIMIT -1) AS own
      ON own.id = child.id
    WHERE child.parent_id = vtqueue_job.id AND child.finished_at IS NULL
)"""

# CASE: what is damaged in one row must not fail the settlement of its children.
WAKE_PARENTS = f"""
UPDATE vtqueue_job SET state = 'READY', due_at = min(due_at, :now), wake_at = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = 'WAITING'
  AND CASE WHEN json_valid(steps) THEN
      json_extract(steps, '$.waiting.kind') = 'gather' AND NOT {UNFINISHED_CHILD}
  END"""


# A branch is evaluated for sound JSON only. A wait without an end has no ``until``. Columns have no table before them,
# for in a subquery that has another name.
WAITS = """
CASE WHEN state = 'WAITING' AND json_valid(steps) THEN
    CASE WHEN json_type(steps, '$.waiting') = 'object' THEN
        json_array(json_extract(steps, '$.waiting'), json_array_length(steps, '$.done[#-1].children'))
    END
END"""


class SQLiteSteps(SQLiteConnection, DurableSteps):
    """The part of an Engine that is for durable tasks."""

    def steps(self, job: HeldJob) -> tuple[str | None, str | None] | None:
        rows = self._rows(STEPS, dict(zip(("id", "claims", "worker_id"), guard(job), strict=True)))
        return (rows[0][0], rows[0][1]) if rows else None

    def write_steps(
        self, job: HeldJob, done: str, now: int, event: int | None = None, earlier: str | None = None
    ) -> Noted | None:
        path = "$.none" if event is None else f"$.events[{event}]"
        held = dict(zip(("id", "claims", "worker_id"), guard(job), strict=True))
        values = {**held, "done": done, "event": path, "now": now}
        if earlier is not None:
            values["earlier"] = earlier or None
        statement = NOTE_STEPS if earlier is None else NOTE_ALL_STEPS
        rows = self._write(self._connected(), statement, values, all_rows)
        return Noted(rows[0][0], rows[0][1] is not None or bool(rows[0][2])) if rows else None

    def send_event(
        self, name: str, event: str, now: int, *, job_id: str = "", queue_name: str = "", unique_key: str = ""
    ) -> tuple[str, int] | None:
        values = {"name": name, "event": event, "now": now}
        if job_id:
            rows = self._write(self._connected(), EVENT_TO_ID, {**values, "id": job_id}, all_rows)
        else:
            key = {"queue_name": queue_name, "unique_key": unique_key}
            rows = self._write(self._connected(), EVENT_TO_KEY, {**values, **key}, all_rows)
        return tuple(rows[0]) if rows else None

    def waits(self) -> RawSQL:
        return RawSQL(WAITS, (), TextField())

    def wake_parents(self, job_ids: Collection[str], now: int) -> None:
        self._run(WAKE_PARENTS, {"ids": json.dumps(list(job_ids)), "now": now})
