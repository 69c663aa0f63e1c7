"""Durable tasks on PostgreSQL: the steps are a JSON object in the row; see core/steps.py.

They are put together from their parts, as ``json``: unlike ``jsonb`` that keeps the texts of all values as they are.

A wait is settled by WAIT, not by MAKE_READY: one UPDATE sees whether the event or the end of the last child has come
meanwhile, and the sender's one UPDATE sees whether the job waits. Whichever comes second finds the other. The children
of a job are other rows than its own, so a transaction that counts them locks the parent's row by a statement before.
Then the count sees what all that had the lock before have committed. The settlement of the children locks that row, see
settling.py.
"""

from collections.abc import Collection

from django.db.models import TextField
from django.db.models.expressions import RawSQL

from ...core.clock import LAST_INSTANT
from ...core.job import HeldJob
from ..contract_parts import DurableSteps, Noted
from .connection import PostgreSQLConnection
from .statements import guard, hexed, hidden

HOLDS = f"""job.id = %(id)s AND job.claims = %(claims)s AND job.worker_id = %(worker_id)s
    AND {hidden("job.state = 'RUNNING'")}"""
STEPS = f"SELECT job.steps, job.earlier_steps FROM vtqueue_job AS job WHERE {HOLDS}"
LOCK_ROWS = "SELECT 1 FROM vtqueue_job WHERE id = ANY(%(ids)s::uuid[]) ORDER BY id FOR UPDATE"

# A hundred generations at the most, whatever was written into rows by hand.
LOCK_FAMILIES = """
WITH RECURSIVE family(id, depth) AS (
    SELECT id, 0 FROM unnest(%(ids)s::uuid[]) AS id
    UNION ALL
    SELECT child.id, family.depth + 1 FROM family JOIN vtqueue_job AS child ON child.parent_id = family.id
    WHERE child.finished_at IS NULL AND family.depth < 100
)
SELECT 1 FROM family JOIN vtqueue_job AS job ON job.id = family.id
ORDER BY family.depth DESC, job.id FOR UPDATE OF job"""

EVENTS = """(CASE json_typeof(job.steps::json -> 'events') WHEN 'array' THEN job.steps::json -> 'events'
    ELSE '[]'::json END)"""


def with_steps(
    done: str = "coalesce(job.steps::json -> 'done', '[]'::json)::text", events: str = EVENTS, waiting: str = "NULL"
) -> str:
    """Return the SQL of the steps of ``job`` with these parts instead of its own."""
    return f"""(
        '{{"done":' || {done} || coalesce(',"events":' || nullif({events}::text, '[]'), '')
        || coalesce(',"waiting":' || nullif({waiting}, 'null'), '') || '}}'
    )"""


# ``done`` is the holder's alone, so it is written as a whole. An event that it takes out has the place that the holder
# has read: senders only append. What has made a step has begun: it does not expire any more.
TAKEN_OUT = f"""(
    SELECT coalesce(json_agg(event.value ORDER BY event.place), '[]'::json)
    FROM json_array_elements({EVENTS}) WITH ORDINALITY AS event(value, place) WHERE event.place <> %(event)s
)"""
SIZE = "octet_length(job.steps) + coalesce(octet_length(job.earlier_steps), 0)"
NOTE_STEPS = f"""
UPDATE vtqueue_job AS job SET steps = {with_steps("%(done)s", TAKEN_OUT)}, start_by = NULL
WHERE {HOLDS}
RETURNING {SIZE}, job.cancelled_at IS NOT NULL OR EXISTS (
    SELECT 1 FROM vtqueue_queuestate AS pause
    WHERE pause.queue_name = job.queue_name AND (paused_until IS NULL OR paused_until > %(now)s)
)"""
NOTE_ALL_STEPS = NOTE_STEPS.replace("start_by = NULL", "start_by = NULL, earlier_steps = %(earlier)s")

# Only a WAITING job is woken: one that woke and then failed, before it took the event, still has the wait in its steps.
WAITS_FOR_EVENT = """job.state = 'WAITING' AND job.steps::json -> 'waiting' ->> 'kind' = 'event'
            AND job.steps::json -> 'waiting' ->> 'name' = %(name)s"""
APPENDED = f"""(
    SELECT json_agg(event.value ORDER BY event.place) FROM (
        SELECT value, place FROM json_array_elements({EVENTS}) WITH ORDINALITY AS old(value, place)
        UNION ALL SELECT %(event)s::json, {LAST_INSTANT}
    ) AS event
)"""


def event_to(job: str) -> str:
    """Return the statement that adds an event to the steps of a job."""
    return f"""
UPDATE vtqueue_job AS job
SET steps = {with_steps(events=APPENDED, waiting="(job.steps::json -> 'waiting')::text")},
    due_at = CASE WHEN {WAITS_FOR_EVENT} THEN least(job.due_at, %(now)s) ELSE job.due_at END,
    wake_at = CASE WHEN {WAITS_FOR_EVENT} THEN NULL ELSE job.wake_at END,
    state = CASE WHEN {WAITS_FOR_EVENT} THEN 'READY' ELSE job.state END
WHERE {job} AND NOT job.task_path = ''
RETURNING job.queue_name, {SIZE}"""


EVENT_TO_ID = event_to("job.id = %(id)s AND job.finished_at IS NULL")
EVENT_TO_KEY = event_to(
    "job.queue_name = %(queue_name)s AND job.unique_key = %(unique_key)s "
    "AND job.finished_at IS NULL AND job.unique_key IS NOT NULL AND NOT job.unique_until = 'started'"
)

# One that the parent waits for: its last step names it. There may be others, of a step that is repeated, or that were
# requeued when the parent had gone on without them. What is damaged in one row must not fail the settlement of its
# children.
OWN = "job.steps::json #> '{done,-1,children}'"
UNFINISHED_CHILD = f"""EXISTS (
    SELECT 1 FROM json_array_elements_text(CASE json_typeof({OWN}) WHEN 'array' THEN {OWN} END) AS own(id)
    JOIN vtqueue_job AS child ON {hexed("child.id")} = own.id
    WHERE child.parent_id = job.id AND child.finished_at IS NULL
)"""
WAKE_PARENTS = f"""
UPDATE vtqueue_job AS job SET state = 'READY', due_at = least(job.due_at, %(now)s), wake_at = NULL
WHERE job.id = ANY(%(ids)s::uuid[]) AND job.state = 'WAITING'
  AND job.steps::json -> 'waiting' ->> 'kind' = 'gather'
  AND NOT {UNFINISHED_CHILD}"""


# A wait without an end has no ``until``. Columns have no table before them, for in a subquery that has another name.
WAITING, CHILDREN = "steps::json -> 'waiting'", "steps::json -> 'done' -> -1 -> 'children'"
WAITS = f"""
CASE WHEN state = 'WAITING' AND json_typeof({WAITING}) = 'object' THEN json_build_array(
    {WAITING}, CASE json_typeof({CHILDREN}) WHEN 'array' THEN json_array_length({CHILDREN}) END
)::text END"""


class PostgreSQLSteps(PostgreSQLConnection, DurableSteps):
    """The part of an Engine that is for durable tasks."""

    def steps(self, job: HeldJob) -> tuple[str | None, str | None] | None:
        rows = self._rows(STEPS, guard(job))
        return (rows[0][0], rows[0][1]) if rows else None

    def write_steps(
        self, job: HeldJob, done: str, now: int, event: int | None = None, earlier: str | None = None
    ) -> Noted | None:
        place = 0 if event is None else event + 1
        values = {**guard(job), "done": done, "event": place, "now": now}
        if earlier is not None:
            values["earlier"] = earlier or None
        rows = self._rows(NOTE_STEPS if earlier is None else NOTE_ALL_STEPS, values)
        return Noted(*rows[0]) if rows else None

    def send_event(
        self, name: str, event: str, now: int, *, job_id: str = "", queue_name: str = "", unique_key: str = ""
    ) -> tuple[str, int] | None:
        values = {"name": name, "event": event, "now": now}
        if job_id:
            rows = self._rows(EVENT_TO_ID, {**values, "id": job_id})
        else:
            rows = self._rows(EVENT_TO_KEY, {**values, "queue_name": queue_name, "unique_key": unique_key})
        return (rows[0][0], rows[0][1]) if rows else None

    def waits(self) -> RawSQL:
        return RawSQL(WAITS, (), TextField())

    def lock_families(self, job_ids: Collection[str]) -> None:
        self._rows(LOCK_FAMILIES, {"ids": sorted(job_ids)})

    def wake_parents(self, job_ids: Collection[str], now: int) -> None:
        self._run(WAKE_PARENTS, {"ids": sorted(job_ids), "now": now})
