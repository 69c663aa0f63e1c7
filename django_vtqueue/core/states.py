"""The states of a job, as stored and as shown to people.

A claim takes READY rows only. A SCHEDULED or WAITING job waits for the moment ``wake_at``; then the next claim of its
queue makes it READY.
"""

SCHEDULED = "SCHEDULED"  # due later: a delay, the pause before a retry, a snooze, a moment that a rate has reserved
READY = "READY"  # in the line, by priority, then by due_at
BLOCKED = "BLOCKED"  # held back until a place of its concurrency key is free
WAITING = "WAITING"  # its task waits: for an event, for children, for the end of a sleep
RUNNING = "RUNNING"  # held by worker_id until lease_until; given back, and held by no one for a moment, if that is ""
SUCCESSFUL = "SUCCESSFUL"  # acknowledged; it stays until kept_until
FAILED = "FAILED"  # never a stored state of a job: what a dead letter is to Django's Tasks framework

ASIDE = BLOCKED, SCHEDULED, WAITING  # of rows with a wake_at; BLOCKED ones wake by nothing but a free place
QUEUED = READY, *ASIDE  # unfinished, and held by no one

# From each state to which a statement may move a job: None is the end of its row, as a dead letter or deleted. A move
# to another database copies rows as they are.
MOVES: dict[str | None, tuple[str | None, ...]] = {
    None: (READY, SCHEDULED),
    SCHEDULED: (READY, SCHEDULED, RUNNING, None),
    READY: (RUNNING, BLOCKED, SCHEDULED, READY, None),
    BLOCKED: (READY, SCHEDULED, None),
    WAITING: (READY, WAITING, None),
    RUNNING: (READY, SCHEDULED, WAITING, RUNNING, SUCCESSFUL, None),
    SUCCESSFUL: (None,),
}

WORDS = ("due", "scheduled", "retrying", "waiting", "blocked", "running", "expired", "done", "dead")


def of_task(state: str) -> str:
    """Return what Django's Tasks framework calls a state: it has one for all that is in no worker's hands."""
    return READY if state in QUEUED else state


def word(state: str, moment: int, attempts: int, now: int) -> str:
    """Return the word shown to people for a row of ``state``.

    ``moment``: the instant at which its lease or its wait ends, or from which it is due; all in microseconds.
    """
    if state == RUNNING:
        return "running" if moment > now else "expired"
    if state == SUCCESSFUL:
        return "done"
    if state == BLOCKED:
        return "blocked"
    if state not in QUEUED:
        return "dead"
    if moment <= now:
        return "due"
    return "waiting" if state == WAITING else "retrying" if attempts else "scheduled"
