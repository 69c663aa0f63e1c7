"""The states of a job, as stored and as shown to people.

READY ──claim──► RUNNING ──ack──► SUCCESSFUL
  ▲                │ nack, release, lease ended
  └────────────────┘ … or, with no attempt left, the row moves to the dead letters (FAILED).
"""

READY = "READY"  # may be claimed from its due_at on: waiting, scheduled or to be retried
RUNNING = "RUNNING"  # held by worker_id until lease_until; then it is claimable again, and shown as "expired"
SUCCESSFUL = "SUCCESSFUL"  # acknowledged; it stays until kept_until
FAILED = "FAILED"  # never a stored state of a job: what a dead letter is to Django's Tasks framework

WORDS = ("due", "scheduled", "retrying", "waiting", "blocked", "running", "expired", "done", "dead")


def word(state: str, visible_at: int, attempts: int, now: int) -> str:
    """Return the word shown to people for a row of ``state``; instants in microseconds.

    Which of those that are due later wait for something, or are blocked, inspection/state.py tells.
    """
    if state == RUNNING:
        return "running" if visible_at > now else "expired"
    if state == READY:
        if visible_at <= now:
            return "due"
        return "retrying" if attempts else "scheduled"
    return "done" if state == SUCCESSFUL else "dead"
