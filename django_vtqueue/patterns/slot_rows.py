"""The rows of a cycle of time slots: one for each slot, and one that says which cycle it is.

The cycle is changed only while no slot is held, and while a change is asked for none is taken: all that are held are
of one cycle, so none of their turns overlap. No holder has to answer: one that does not let go is waited for until its
lease ends.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..core import clock
from ..core.encoding import dumps
from ..core.ids import new_ids
from ..core.job import NewJobs
from ..slots import check
from .reserved import FOREVER, ReservedRows

MOST_SLOTS = 1000  # slots: each instance that waits for one reads the rows of all that are held

CYCLE = "cycle"  # the unique key of the row of the cycle; that of a slot is its number
NEVER_TAKEN = FOREVER + 1  # the due time of rows that no instance takes


class Cycle(NamedTuple):
    """See ``slots.next_turn``; seconds."""

    slots: int
    period: float
    guard: float


class Stored(NamedTuple):
    """What the row of a cycle says: the cycle in force, and the one that is asked for in its place."""

    cycle: Cycle | None = None
    wanted: Cycle | None = None


class SlotRows(ReservedRows):
    """The rows of one cycle, as one instance sees them.

    ``wanted``: the cycle that it asks for when it joins. ``cycle``: the one in force when it took its slot; no other
    is as long as it holds that.
    """

    def __init__(self, queue_name: str, database: str, wanted: Cycle, ttl: float) -> None:
        super().__init__(queue_name, database, frozenset(map(str, range(MOST_SLOTS))))
        self.cycle, self._wanted, self._ttl = wanted, wanted, ttl
        self._joined = False

    def stored(self) -> Stored:
        """Read the row of the cycle; where none is to be read, the cycle of this instance is asked for."""
        now = stored(self._payload())
        return now if now != Stored() else Stored(wanted=self._wanted)

    def changing(self) -> bool:
        """Return whether another cycle is in force or asked for than the one of this instance's slot."""
        return self.stored() != (self.cycle, None)

    def create(self, ttl: float) -> None:
        """Ask for the cycle of this instance, when it joins."""
        if not self._joined and self._asks(self.stored()):
            with self.transaction():
                if self._asks(now := self.stored()):
                    self._store(Stored(now.cycle, None if now.cycle == self._wanted else self._wanted))
        self._joined = True

    def _asks(self, now: Stored) -> bool:
        return now.cycle is None or self._wanted != (now.wanted or now.cycle)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the right to write, and the row of the cycle."""
        with self.engine.atomic():  # not engine.transaction(): rows are published in it
            self._put([CYCLE], ["null"], NEVER_TAKEN, replace=False)  # first: on any database it locks the row
            yield

    def any_free(self, worker_id: str) -> bool:
        """Return whether a slot can be taken; while the cycle is to be changed, whether none is held any more."""
        if self.stored().wanted is None:
            return super().any_free(worker_id)
        held = self._free_and_held()[1]
        return len(self._ended(held, worker_id)) == len(held)

    def prepare(self, held: int) -> None:
        """Put the cycle in force that is asked for, once no slot is held; note which one is in force."""
        now = self.stored()
        if now.wanted and not held:
            self._change(now.wanted, before=now.cycle.slots if now.cycle else 0)
            now = Stored(now.wanted)
        self.cycle = now.cycle or self.cycle

    def admits(self) -> bool:
        """Return whether a slot may be taken: not while another cycle is asked for."""
        return self.stored().wanted is None

    def _change(self, cycle: Cycle, before: int) -> None:
        """Have a row for each slot of a cycle, and leave none of the cycle before to be taken."""
        self._put_slots(range(cycle.slots), 0)
        self._put_slots(range(cycle.slots, before), NEVER_TAKEN)
        self._store(Stored(cycle))

    def _put_slots(self, numbers: Sequence[int], due_at: int) -> None:
        if numbers:
            self._put([str(number) for number in numbers], list(map(dumps, numbers)), due_at)

    def _store(self, new: Stored) -> None:
        wanted = new.wanted and new.wanted._asdict()
        self._put([CYCLE], [dumps({**(new.cycle._asdict() if new.cycle else {}), "wanted": wanted})], NEVER_TAKEN)

    def _put(self, keys: Sequence[str], payloads: Sequence[str], due_at: int, *, replace: bool = True) -> None:
        """Store rows; each takes the place of one with its key."""
        jobs = list(zip(new_ids(len(keys)), payloads, strict=True))
        lease_us = clock.microseconds(self._ttl)
        new = NewJobs(self.queue_name, "", 0, 0, lease_us, self.engine.now(), due_at, jobs, replace=replace)
        new.unique_keys = list(keys)
        self.engine.insert_with_keys(new)

    def _payload(self) -> Any:
        from ..models import Job  # this module is imported before the apps are ready
        from ..models.jobs import HAS_KEY

        rows = Job.objects.using(self.database).filter(HAS_KEY, queue_name=self.queue_name, unique_key=CYCLE)
        return next(iter(rows.values_list("payload", flat=True)), None)


def stored(payload: Any) -> Stored:
    """Return what the payload of the row of a cycle says; what is no cycle (edited by hand, say) is none."""
    return Stored(_cycle(payload), _cycle(payload.get("wanted")) if isinstance(payload, dict) else None)


def _cycle(payload: Any) -> Cycle | None:
    try:
        cycle = Cycle(payload["slots"], payload["period"], payload["guard"])
        check(*cycle)
    except (KeyError, TypeError, ValueError):
        return None
    return cycle
