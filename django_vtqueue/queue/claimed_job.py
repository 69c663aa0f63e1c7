"""A job that was claimed: its payload, and the right to settle it."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ..conf import Options
from ..core import clock, history
from ..core.encoding import decode, encode_result
from ..core.failures import MAX_MESSAGE, Failure, describe
from ..core.ids import parse_id
from ..core.job import HeldJob
from ..core.masks import Mask, replaced
from ..core.settlement import Settlement, failed, released, snoozed, succeeded
from ..core.text import shorten, shown, storable
from ..engines import Engine, engine_for, mask_words
from ..exceptions import LeaseLost
from .doorbell import wake_workers
from .settling import settle


class ClaimedJob:
    """A job that was claimed, and the right to settle it once, as long as no other claim has taken it.

    ``database``: the alias of its table; ``options``: those of its queue; ``kept_up``: whether its lease is renewed
    while it is handled.
    """

    def __init__(self, held: HeldJob, database: str, options: Options, *, kept_up: bool = False) -> None:
        self._held, self._options, self._kept_up = held, options, kept_up
        self.database = database
        self.id = UUID(held.id)
        self.payload: Any = decode(held.payload)
        self.priority = held.priority
        self.attempt = held.attempts
        self.claim_number = held.claims
        self.visible_at = clock.from_instant(held.visible_at)
        self.enqueued_at = clock.from_instant(held.enqueued_at)

    def __repr__(self) -> str:
        return f"<ClaimedJob {self.id} of {self._held.queue_name!r}, claim {self.claim_number}>"

    @property
    def _engine(self) -> Engine:
        return engine_for(self.database)

    def _hidden_until(self, instant: int) -> None:
        """Note the end of a renewed lease, or of an extended one."""
        held = self._held
        held.visible_at = max(held.visible_at, instant) if self._kept_up else instant
        self.visible_at = clock.from_instant(held.visible_at)

    def ack(self, result: Any = None) -> None:
        """End the job for good: it is done. ``result``: any JSON value, kept for ``result_ttl``.

        Raises LeaseLost, and changes nothing, if another claim has taken the job since; TypeError if the result is not
        JSON, PayloadTooLarge if it has more than 16,000,000 bytes on PostgreSQL.
        """
        ttl = clock.microseconds_or_none(self._options.policy(self._held.queue_name).result_ttl)
        text = encode_result(result, self._engine.largest_result)
        self._settle(succeeded(self._held, text, self._engine.now(), ttl))

    def nack(self, delay: float | timedelta = 0, error: BaseException | str | None = None) -> None:
        """End an attempt that failed: visible again after ``delay`` seconds, or a dead letter if it was the last one.

        ``error``: an exception or a text for the job's history; values of the payload that ``mask`` hides are hidden in
        it. Raises LeaseLost like ack.
        """
        queue_name = self._held.queue_name
        secrets = Mask(mask_words(queue_name, self.database)).texts(self._held.payload) if error is not None else []
        failure = (
            describe(error, secrets)
            if isinstance(error, BaseException)
            else Failure("nack", storable(shorten(replaced(str(error or ""), secrets), MAX_MESSAGE)), "", "nack")
        )
        wait = max(clock.microseconds(delay), 0)
        self._settle(failed(self._held, history.FAILED, failure, self._engine.now(), wait))

    def release(self, until: float | timedelta | datetime | None = None) -> None:
        """Give the job back as if it had not been claimed: no attempt used, and at its place in the line.

        ``until``: put off by so many seconds (or a timedelta), or to this moment, as ``raise Snooze(until)`` does.
        Raises LeaseLost like ack.
        """
        self._settle(released(self._held) if until is None else snoozed(self._held, until, self._engine.now()))

    def extend(self, seconds: float | timedelta | None = None) -> None:
        """Keep the job hidden until now + ``seconds`` (default: its visibility timeout); it is not added up.

        In a handler of ``Queue.run`` or of a worker, where the lease is kept up, it is only ever made longer. The
        visibility timeout of later claims does not change. Raises LeaseLost if the lease has ended, ValueError if
        ``seconds`` is not above 0.
        """
        held = self._held
        lease = held.lease_us if seconds is None else clock.microseconds(seconds)
        if lease <= 0:
            raise ValueError(f"extend takes seconds above 0, not {seconds!r}.")
        now = self._engine.now()
        if not self._engine.extend(held, now, now + lease, lengthen=self._kept_up):
            raise LeaseLost(
                f"Job {self.id} is not held under claim {self.claim_number} any more, or its lease has ended."
            )
        self._hidden_until(now + lease)

    def _settle(self, settlement: Settlement) -> None:
        engine = self._engine
        with engine.transaction():
            lost = settle(engine, [settlement])
        if lost:
            held = settlement.job
            raise LeaseLost(
                f"Job {parse_id(held.id)} is not held under claim {held.claims} any more: its lease ended and another "
                "claim took it, or it was settled before, by another copy of it perhaps. Nothing was changed."
            )
        if settlement.due_again(now := engine.now()) or settlement.others_due(now):
            wake_workers(self.database)


def checked_claim(job: ClaimedJob, verb: str) -> ClaimedJob:
    """Return a job that was claimed; raise TypeError, which begins with ``verb``, for what is none."""
    if not isinstance(job, ClaimedJob):
        raise TypeError(f"{verb} takes a job that claim has returned, not {shown(job)}.")
    return job
