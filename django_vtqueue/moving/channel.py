"""One batch goes from a source to a target by outbox and inbox, so that it arrives once; see the package."""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

from ..core import clock, states
from ..core.ids import new_uuid
from ..core.links import page
from ..core.names import MOVES
from ..engines import engine_for
from ..fields import StoredText
from ..models import Job
from ..queue.doorbell import wake_workers
from .arrival import put, put_back
from .rows import Refusals, Tables

OUTBOX, INBOX = f"{MOVES}out", f"{MOVES}in"
EMPTY = StoredText("{}")


class MoveRefused(Exception):
    """The move cannot begin, or not go on; the text says why, and what to do."""


class Overtaken(Exception):
    """Another run has done this step."""


class Channel:
    """An outbox and an inbox with one id. The claim number of each is that of its last batch.

    ``attempts`` of the outbox: how many rows are in it.
    """

    def __init__(self, source: str, target: str) -> None:
        self.source, self.target = source, target
        self.id = new_uuid()

    def open(self) -> None:
        """Find the way of an earlier run, or make a new one; raise MoveRefused if there can be none."""
        under_way = self._find_earlier()
        if not under_way:  # with rows under way it goes on, also if a move back was cut off: else each awaits the other
            self._refuse_way_back()
        if under_way is None:
            self._create(self.target, INBOX)  # first: an outbox without an inbox is of another target
            if _boxes(self.source, INBOX).filter(pk=self.id).exists():
                _boxes(self.target, INBOX).filter(pk=self.id)._raw_delete(self.target)
                raise MoveRefused(
                    f"{self.source!r} and {self.target!r} are the same database: there is nothing to move."
                )
            self._create(self.source, OUTBOX)

    def _refuse_way_back(self) -> None:
        for job_id in _boxes(self.target, OUTBOX).filter(attempts__gt=0).values_list("pk", flat=True):
            if _boxes(self.source, INBOX).filter(pk=job_id).exists():
                raise MoveRefused(
                    f"A move in the other direction was interrupted, with a batch under way. Let it finish first: "
                    f"manage.py vtqueue move --from {self.target} --to {self.source}"
                )

    def _find_earlier(self) -> int | None:
        """Go on with the boxes that an earlier run has left; return how many rows are under way, None without any."""
        for job_id, rows in list(_boxes(self.source, OUTBOX).order_by("-attempts").values_list("pk", "attempts")):
            arrived = _boxes(self.target, INBOX).filter(pk=job_id).values_list("claims", flat=True).first()
            if arrived is not None:
                self.id = job_id
                # The source may be a backup: numbers go on behind those that have arrived.
                _boxes(self.source, OUTBOX).filter(pk=job_id, attempts=0, claims__lt=arrived).update(claims=arrived)
                return int(rows)
            if rows:
                raise MoveRefused(
                    f"A move from {self.source!r} to another database than {self.target!r} was interrupted, with "
                    f"{rows} rows under way. Let it finish first: run vtqueue move to that one again. If that one is "
                    f"gone for good: see {page('guides/moving')}"
                )
            _boxes(self.source, OUTBOX).filter(pk=job_id, attempts=0)._raw_delete(self.source)
        return None

    def _create(self, alias: str, name: str) -> None:
        now = engine_for(alias).now()
        given: dict[str, Any] = {"enqueued_at": now, "due_at": clock.LAST, "payload": EMPTY, "state": states.READY}
        Job(id=self.id, queue_name=name, max_attempts=0, lease_us=1, **given).save(using=alias, force_insert=True)

    def close(self) -> None:
        """Remove both boxes, if nothing is under way."""
        if _boxes(self.source, OUTBOX).filter(pk=self.id, attempts=0)._raw_delete(self.source):
            _boxes(self.target, INBOX).filter(pk=self.id)._raw_delete(self.target)

    def load(self, tables: Tables) -> None:
        """Put rows into the outbox, in the transaction that has deleted them; raise Overtaken if it is not empty."""
        rows = sum(map(len, tables.values()))
        outbox = _boxes(self.source, OUTBOX).filter(pk=self.id, attempts=0)
        number = outbox.values_list("claims", flat=True).first()
        text = StoredText(json.dumps(tables, separators=(",", ":")))
        if number is None or not outbox.filter(claims=number).update(claims=number + 1, attempts=rows, payload=text):
            raise Overtaken

    def deliver(self, arrived: Callable[[int], None]) -> Refusals:
        """Have what is in the outbox arrive; return what the target has refused, which is back in the source.

        ``arrived`` is called with the number of rows. Raise MoveRefused if another run has closed the way.
        """
        row = _boxes(self.source, OUTBOX).filter(pk=self.id).values_list("claims", "attempts", "payload").first()
        if row is None:
            raise MoveRefused("Another run of this move has ended meanwhile. Run it again if something is left.")
        number, rows, tables = row
        if not rows:
            return {}
        left, refusals = self._insert(number, tables)
        wake_workers(self.target)
        with engine_for(self.source).atomic():
            outbox = _boxes(self.source, OUTBOX).filter(pk=self.id, claims=number, attempts=rows)
            if outbox.update(attempts=0, payload=EMPTY):
                put_back(left, self.source)
                arrived(rows - sum(map(len, left.values())))
        return refusals

    def _insert(self, number: int, tables: Tables) -> tuple[Tables, Refusals]:
        """Insert a batch into the target, if it has not arrived before; return what it has refused."""
        with engine_for(self.target).atomic():
            inbox = _boxes(self.target, INBOX).filter(pk=self.id)
            if inbox.filter(claims__lt=number).update(claims=number):
                left, refusals = put(tables, self.target)
                inbox.update(payload=StoredText(json.dumps([left, refusals])))
                return left, refusals
            return inbox.filter(claims=number).values_list("payload", flat=True).first() or ({}, {})


def _boxes(alias: str, name: str) -> Any:
    return Job.objects.using(alias).filter(queue_name=name)


def under_way(alias: str) -> dict[UUID, int]:
    """Return the outboxes of a database in which a batch is, and how many rows these have."""
    return dict(_boxes(alias, OUTBOX).filter(attempts__gt=0).values_list("pk", "attempts"))
