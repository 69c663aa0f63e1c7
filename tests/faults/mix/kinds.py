"""The kinds of jobs of a mix, and what is to be known of each: plain values, for the tasks and the checker alike."""

from dataclasses import dataclass

LONG_LEASE = 12.0  # seconds: the visibility timeout of the settings
SHORT_LEASE = 3.0  # that of some tasks and queues: a standstill that ends these does not end the long ones
SHORTER, LONGER = 1.0, 20.0  # seconds for which a handler extends: both are less safe than to leave the lease alone
BACKOFF = 5.0  # seconds, shortened by chance by up to a fifth
LIMIT = 3.0  # seconds: the hard timeout of slow transactional tasks
SLOW = 2.0  # seconds that they take
TRANSACTION = 5.0  # seconds that any transaction gets
HURRY = 1.0  # seconds in which some tasks have to start
COUNTER = "counter"  # the row that transactional tasks increment
OTHER = "other"  # a database beside that of the queue
PARTS = 5  # children of a task
LISTED, ROWS = "listed", 700  # the name of rows that loops go through, and how many there are: more than one read takes
HANDLED, CONSUMED, QUICK, CLAIMED, ASIDE = "handled", "consumed", "quick", "claimed", "aside"  # queues
LIMITED, MAX_DEPTH = "limited", 30  # one more, and how many jobs may wait in it
SHARED, COPIES = "shared", 2  # a queue with overflow, and how many copies of its jobs run


@dataclass(frozen=True)
class Kind:
    """``lease``: its visibility timeout in seconds, None where each claim gives it its own.

    ``ends``: "succeeds", or the error of its dead letter. ``limit``: the seconds that an attempt may run at least
    before its time is up; None: it is never up. ``effects``: how many rows it leaves if it succeeds. ``expires``: the
    seconds in which it has to start; what has not is a dead letter. ``copies``: how many run at once. ``items``: the
    rows of its loop.
    """

    lease: float | None = LONG_LEASE
    max_attempts: int = 0
    ends: str = "succeeds"
    limit: float | None = None
    effects: int = 0
    expires: float | None = None
    copies: int = 1
    items: int = 0


TASKS = {
    "brief": Kind(),
    "later": Kind(),
    "backs_off": Kind(),
    "gives_up": Kind(max_attempts=5, ends="GiveUp"),
    "once": Kind(lease=SHORT_LEASE, max_attempts=1),
    "long": Kind(lease=SHORT_LEASE),
    "medium": Kind(),
    "waits": Kind(lease=SHORT_LEASE),
    "writes": Kind(limit=TRANSACTION, effects=1),
    "slow": Kind(limit=LIMIT, effects=1),
    "hangs": Kind(limit=TRANSACTION, effects=1),
    "keyed": Kind(),
    "hurried": Kind(expires=HURRY),
    "shared": Kind(copies=COPIES),
    "forks": Kind(),
    "pools": Kind(),
    "shells": Kind(),
    "strays": Kind(),
    "gathers": Kind(),
    "part": Kind(),
    "iterates": Kind(items=ROWS),
    "tick": Kind(),
    "unsafe": Kind(ends="StepError"),
}
# Payloads, of the queues that ``vtworker`` hands to a handler, that ``Queue.run`` serves, or a loop of ``Queue.claim``.
PAYLOADS = {
    "raw": Kind(),
    "extends_shorter": Kind(),
    "extends_longer": Kind(),
}
KINDS = TASKS | PAYLOADS
