"""The wait before another try: pure arithmetic; jitter is passed in as a number from 0 to 1."""

from collections.abc import Sequence
from math import inf, ldexp

IN_DANGER = 0.5  # seconds before the end of a lease
LARGEST_EXPONENT = 40  # 2**40 s is longer than any cap; beyond it floats would overflow

LONGEST_REST = 0.02  # seconds


def backoff_delay(backoff: float | Sequence[float], cap: float, attempt: int, jitter: float) -> float:
    """Return the seconds to wait after the ``attempt``-th failed attempt (counted from 1).

    A number doubles with each attempt (2, 4, 8 …); a sequence gives each attempt's own, its last value repeated. Never
    more than ``cap`` seconds. It is up to a fifth less, by ``jitter``: jobs that failed together do not come back
    together ("Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
    """
    if isinstance(backoff, Sequence):
        delay = float(backoff[min(attempt, len(backoff)) - 1]) if backoff else 0.0
    else:
        delay = ldexp(backoff, min(attempt - 1, LARGEST_EXPONENT))
    return min(delay, cap) * (1 - 0.2 * jitter)


def busy_pause(waited: float, jitter: float, left: float = inf) -> float:
    """Return the seconds until the next try for SQLite's write lock, after ``waited`` seconds of trying.

    About a millisecond; after a second two, and after ten, when something very long holds the lock (a backup, a
    migration), five. Never longer: between two transactional tasks the lock is free for some 10 ms. With
    pauses that grew a connection did not get it once in 25 s (measured).
    ``left``: the seconds that are left of a lease to renew, less than 0 if it has ended. From shortly before its end
    on, when other workers may take what it holds, it stays a millisecond: the holder must get the lock first.
    """
    return (0.0005 + 0.001 * jitter) * (1 if waited < 1 or left < IN_DANGER else 2 if waited < 10 else 5)


def long_hold_pause(waited: float, jitter: float) -> float:
    """Return what busy_pause does, for who will hold the lock for long: the transaction of a task.

    A hundredth of what it has waited, up to 12 ms: what holds the lock briefly (a publish, a settlement, a renewal)
    gets it first after one that was held for long.
    """
    return (0.5 + jitter) * min(max(0.001, 0.01 * waited), 0.012)


def rest_after(held: float) -> float:
    """Return the seconds for which a task leaves SQLite's write lock to others when it has held it for so long.

    A fiftieth of that, up to 20 ms: a connection that waits for the lock asks for it again meanwhile.
    """
    return min(max(0.02 * held, 0.0), LONGEST_REST)


def trouble_pause(tries: int, lease: float = inf) -> float:
    """Return the seconds to wait after the ``tries``-th failure in a row of the database itself: 0.1 s to 2.5 s.

    ``lease``: the seconds of the shortest lease that is held. It may have ended when the database is back; the claims
    of others leave its holder a third of it, at most 5 s, to renew it (grace.py): twice this pause. So of leases
    below 0.6 s it is less than 0.1 s, but never less than 0.02 s.
    """
    return max(min(ldexp(0.1, min(tries - 1, 10)), 2.5, lease / 6), 0.02)
