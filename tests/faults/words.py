"""The words and the moments that the tables have, written down here a second time: no part of the queue is asked."""

import time
from datetime import UTC, datetime, timedelta

SECOND = 1_000_000  # microseconds, in which the tables count
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# States of a job, as stored.
SCHEDULED = "SCHEDULED"
READY = "READY"
BLOCKED = "BLOCKED"
WAITING = "WAITING"
RUNNING = "RUNNING"
SUCCESSFUL = "SUCCESSFUL"
DEAD = "FAILED"  # that of a dead letter
QUEUED = (SCHEDULED, READY, BLOCKED, WAITING)  # unfinished, and held by no one

# Outcomes in a history.
LEASE_EXPIRED = "lease expired"
WORKER_DIED = "worker died"
FAILED = "failed"
RETRY = "retry"
GAVE_UP = "gave up"
RELEASED = "released"
TIMED_OUT = "timed out"
CANCELLED = "cancelled"
EXPIRED = "expired"
REQUEUED = "requeued"

# Until when a job has its unique key; STARTED: it had it until its start.
DONE = "done"
START = "start"
STARTED = "started"

# What becomes of a job whose key another one has.
KEEP = "keep"
REPLACE = "replace"
ERROR = "error"


def now() -> int:
    """Return what this machine's clock says."""
    return time.time_ns() // 1000


def instant(moment: datetime) -> int:
    """Return an aware datetime as the tables have it."""
    return (moment - EPOCH) // timedelta(microseconds=1)
