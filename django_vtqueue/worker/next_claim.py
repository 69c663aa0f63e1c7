"""The next moment at which a claim may find something, as far as a worker knows it without reading the database."""

import time
from collections.abc import Sequence

from ..core.clock import SECOND
from ..core.job import Scope
from ..engines import Engine
from ..queue.doorbell import LOOK
from ..queue.limits import NO_LIMITS, Limits

QUIET_BEFORE_RING = 0.01  # seconds without a ring, after which one is answered at once
NO_INSTANT = 1 << 62  # later than any instant


class NextClaim:
    """The earliest moment at which a claim may find something, as far as it is known.

    It is forgotten at a ring and at a commit of another connection. The write lock is not taken to find that nothing is
    due. ``without_look``: a job was published a moment ago, so a claim is made without a look.
    """

    def __init__(self, engine: Engine, scopes: Sequence[Scope], limits: Limits = NO_LIMITS) -> None:
        self.engine, self.scopes, self.limits = engine, scopes, limits
        self._next_at: int | None = None  # None: not known
        self._took_everything = False  # the last claim took all that could be taken
        self._in_vain = False  # such a claim left something that is due, and no claim since then has taken anything
        self.without_look = False
        self._owes_look = False  # for leases that have ended: the last claim was made at once
        self._rung_at = 0.0  # monotonic

    def forget(self) -> None:
        """Look again: a job may have been published."""
        self._next_at = None
        self._took_everything = False

    def note_ring(self) -> None:
        """Note a ring: something was published.

        After a quiet moment the next claim is made without a look, where a claim that finds nothing keeps no others
        waiting. Rings that follow each other, as those of many publishers do, are answered by looks, which cost less.
        So is the first ring after such a claim: otherwise a worker that is rung all the time would never look for
        ended leases.
        """
        self.forget()
        now = time.monotonic()
        paused = now >= self._rung_at + QUIET_BEFORE_RING and not self._owes_look
        self.without_look = self.without_look or (paused and not self.engine.looks_first)
        self._rung_at = now

    def expect(self, due_at: int) -> None:
        """Note that a job of ours becomes due: there is something to take again, whatever the last claim found."""
        self._took_everything = False
        if self._next_at is not None:
            self._next_at = min(self._next_at, due_at)

    def note_claim(self, everything: bool, *, took: bool = False) -> None:
        """Note that a claim was made, and whether it ``took`` something, and everything that could be taken.

        One ``without_look`` has not looked for leases that have ended.
        """
        self._took_everything = everything and not self.without_look
        self._in_vain = self._in_vain and not took
        self._owes_look, self.without_look = self.without_look, False
        if self._took_everything:
            self._next_at = None

    def due(self) -> bool:
        """Return whether a claim may find something; reads the database only if that is not known."""
        if self.without_look:
            return True
        now = self.engine.now()
        if self._next_at is None:
            first = self.limits.earliest(self.engine, self.scopes)
            self._owes_look = False
            self._next_at = NO_INSTANT if first is None else first
            early = self._took_everything and self._next_at <= now
            if early and self._in_vain:  # an ended lease, whose holder is given time
                self._next_at = now + round(LOOK * SECOND)
            self._in_vain = early  # at first it may have become due since the claim
        return self._next_at <= now

    def may_find(self, *, opened: bool) -> bool:
        """Return whether a claim may find something; see due.

        ``opened``: a transaction is opened in any case, so nothing is read to find it out.
        """
        if not opened:
            return self.due()
        return not self._took_everything if self._next_at is None else self._next_at <= self.engine.now()

    def seconds_to_sleep(self) -> float:
        """Return how long nothing will be due, as far as it is known."""
        if self._next_at is None:
            return 0.0
        return max((self._next_at - self.engine.now()) / SECOND, 0.0)

    def nothing_before(self, instant: int) -> bool:
        """Return whether nothing will be due until ``instant``, not even what may not be taken yet.

        It always reads: what a job has just published may not be known here yet, for its outcome is faster than the
        bell.
        """
        self.engine.search_all()
        first = self.limits.earliest(self.engine, self.scopes)
        return first is None or first > instant
