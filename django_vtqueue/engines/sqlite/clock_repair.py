"""The statements that find and repair rows which a clock has stamped that was ahead; see queue/clock_repair.py."""

from ...core.clock import LAST_INSTANT

# Whether a clock was ahead of :now, by more than a second, when something was written. Each part is one seek: ids are
# in time order, and workers write heartbeats and counts.
CLOCK_WAS_AHEAD = """
SELECT EXISTS (SELECT 1 FROM vtqueue_job WHERE id > :first_id)
    OR EXISTS (SELECT 1 FROM vtqueue_workerprocess WHERE heartbeat_at > :now + 1000000)
    OR EXISTS (SELECT 1 FROM vtqueue_throughput WHERE starts_at > :now + 1000000)"""

# Rows with stamps of a clock that was ahead of :now. What proves it is a stamp of the past that is later than :now:
# - of a lease: the start of the attempt, or the heartbeat of the holder;
# - of a job that was due at once: when it was published;
# - of a retry: the end of the last attempt, also while the row is held. A release and an expiry do not change
#   ``due_at``, so their entries in the history prove nothing;
# - of a released row: that it is hidden for longer than the second for which a release may hide it.
# A ``due_at`` that the publisher has chosen is kept. Of a job that a limit has moved its place in the line counts: one
# that is parked stays so.
LEASE_AHEAD = """(state = 'RUNNING' AND lease_until > :now + lease_us + 1000000 AND (
        started_at > :now + 1000000
        OR worker_id IN (SELECT worker_id FROM vtqueue_workerprocess WHERE heartbeat_at > :now + 1000000)
    ))"""
DUE_AHEAD = f"""(finished_at IS NULL AND coalesce(moved_from, due_at) > :now + 1000000
    AND coalesce(moved_from, due_at) < {LAST_INSTANT} AND CASE
        WHEN enqueued_at > :now + 1000000 AND coalesce(moved_from, due_at) = enqueued_at THEN 1
        WHEN claims = 0 THEN 0
        WHEN NOT json_valid(history) THEN started_at > :now + 1000000
        ELSE json_extract(history, '$[#-1].ended') > :now + 1000000
            AND json_extract(history, '$[#-1].outcome') NOT IN ('released', 'lease expired')
    END)"""
IS_AHEAD = f"({LEASE_AHEAD} OR state = 'READY' AND lease_until > :now + 2000000 OR {DUE_AHEAD})"

STAMPED_AHEAD = f"""
SELECT json_group_array(json_array(rowid, ahead)) FROM (
    SELECT rowid, {IS_AHEAD} AS ahead FROM vtqueue_job NOT INDEXED WHERE rowid > :after ORDER BY rowid LIMIT :limit
)"""

# This clock may be ahead too, so that a second repair follows. It finds a job that was never claimed only if ``due_at``
# and ``enqueued_at`` are equal, so both are set.
REPAIR_STAMPS = f"""
UPDATE vtqueue_job
SET due_at = CASE WHEN {DUE_AHEAD} AND (moved_from IS NULL OR due_at < {LAST_INSTANT}) THEN :now ELSE due_at END,
    moved_from = CASE WHEN NOT {DUE_AHEAD} THEN moved_from WHEN due_at = {LAST_INSTANT} THEN min(moved_from, :now) END,
    lease_until = CASE WHEN {LEASE_AHEAD} THEN :now + lease_us WHEN state = 'RUNNING' THEN lease_until END,
    enqueued_at = min(enqueued_at, :now)
WHERE rowid IN (SELECT value FROM json_each(:rowids)) AND {IS_AHEAD}"""
