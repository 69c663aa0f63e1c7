"""The statements that find and repair rows which the clock of a server has stamped that was ahead.

What proves it is said in engines/sqlite/clock_repair.py. Of a history only the end of its last entry is read, as text:
it may be damaged.
"""

from ...core.clock import LAST_INSTANT
from .statements import hexed

# Each part is one seek: ids are in time order, and workers write heartbeats and counts.
CLOCK_WAS_AHEAD = """
SELECT coalesce((SELECT id FROM vtqueue_job ORDER BY id DESC LIMIT 1) > %(first_id)s, false)
    OR EXISTS (SELECT 1 FROM vtqueue_workerprocess WHERE heartbeat_at > %(now)s + 1000000)
    OR coalesce((
        SELECT starts_at FROM vtqueue_throughput ORDER BY starts_at DESC LIMIT 1
    ) > %(now)s + 1000000, false)"""

LEASE_AHEAD = """(state = 'RUNNING' AND lease_until > %(now)s + lease_us + 1000000 AND (
        started_at > %(now)s + 1000000
        OR worker_id IN (SELECT worker_id FROM vtqueue_workerprocess WHERE heartbeat_at > %(now)s + 1000000)
    ))"""
LAST_ENDED_AT = """substring(history from '.*"ended": ?([0-9]+)')::bigint"""
LAST_OUTCOME = """substring(history from '.*"outcome": ?"([a-z ]+)"')"""
DUE_AHEAD = f"""(finished_at IS NULL AND coalesce(moved_from, due_at) > %(now)s + 1000000
    AND coalesce(moved_from, due_at) < {LAST_INSTANT} AND CASE
        WHEN enqueued_at > %(now)s + 1000000 AND coalesce(moved_from, due_at) = enqueued_at THEN true
        WHEN claims = 0 THEN false
        ELSE coalesce(
            {LAST_ENDED_AT} > %(now)s + 1000000 AND {LAST_OUTCOME} NOT IN ('released', 'lease expired'),
            history <> '[]' AND started_at > %(now)s + 1000000
        )
    END)"""
IS_AHEAD = f"coalesce({LEASE_AHEAD} OR state = 'READY' AND lease_until > %(now)s + 2000000 OR {DUE_AHEAD}, false)"

STAMPED_AHEAD = f"""
SELECT {hexed("id")}, {IS_AHEAD} FROM vtqueue_job WHERE id > %(after)s ORDER BY id LIMIT %(limit)s"""

REPAIR_STAMPS = f"""
UPDATE vtqueue_job
SET due_at = CASE WHEN {DUE_AHEAD} AND (moved_from IS NULL OR due_at < {LAST_INSTANT}) THEN %(now)s ELSE due_at END,
    moved_from = CASE WHEN {DUE_AHEAD} THEN CASE WHEN due_at = {LAST_INSTANT} THEN least(moved_from, %(now)s) END
        ELSE moved_from END,
    lease_until = CASE WHEN {LEASE_AHEAD} THEN %(now)s + lease_us WHEN state = 'RUNNING' THEN lease_until END,
    enqueued_at = least(enqueued_at, %(now)s)
WHERE id = ANY(%(ids)s::uuid[]) AND {IS_AHEAD}"""
