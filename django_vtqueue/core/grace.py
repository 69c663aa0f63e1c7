"""When a claim may take a job whose lease has ended, although nothing proves that its holder is dead.

The condition itself is SQL: ``ENDED`` in engines/sqlite/due.py; ``core/gaps.py`` measures what it is given.

A holder renews its lease each third of its time, and tries again every few milliseconds if something prevents it. So an
ended lease means that its holder is gone, unless something has stopped all holders alike: a lock of the database, a
suspended machine, a step of the clock. Such a time is a *gap*; each process that claims measures its own. How long a
claim waits depends on the length of the row's own lease:

- A claim may take the job when a tenth of the lease (0.5 s at the most) has passed since the end of the lease. This
  process must also have had the write lock after that end, and 0.1 s must have passed since it had it: a living holder
  would have got the lock in that time, and renewed.
- After a gap of more than half of the lease a claim may take the job only when a third of the lease (5 s at the most)
  has passed since the gap. The holder uses this time to renew.

A job that a process has claimed by ``Queue.claim`` can be extended by that process alone, so the process itself may
claim it again at once.
"""

from typing import NamedTuple

from .clock import SECOND

RENEWED_AFTER = 1 / 3  # of a lease, since it was given: then its holder renews it
RENEWED_BY = 1 / 2  # then a supervisor does, if the holder has not
GRACE = SECOND // 2  # microseconds after the end of a lease, at the most
GRACE_DIVISOR = 10  # a tenth of the lease, if that is less
REST = 5 * SECOND  # microseconds after a gap, at the most
REST_DIVISOR = 3  # a third of the lease, if that is less
GAP_DIVISOR = 2  # a gap matters to a lease if it was longer than half of it


class GracePeriod(NamedTuple):
    """The time that a claim leaves to holders that are not proven dead, in microseconds.

    ``grace``: the time after the end of a lease, of which no more than a tenth of the lease counts. ``free``: how long
    ago the write lock was free, so that the holder could have taken it. ``gaps``: JSON, for each gap how long ago it
    ended, and its length. ``own``: the name of a holder that gets no such time.
    """

    grace: int = 0
    free: int = 0
    gaps: str = "[]"
    own: str = ""
