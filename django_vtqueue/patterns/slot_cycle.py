"""Time slots: instances that take turns by the clock. Each acts only in its own slice of a cycle, and none overlap."""

import shlex
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from weakref import finalize

from django.db import Error

from ..core import clock
from ..core.allowed import seconds
from ..core.clock import SECOND
from ..core.encoding import decode
from ..core.job import HeldJob
from ..core.names import SLOTS, reserved_name
from ..engines import Engine, database_for
from ..exceptions import LeaseLost, NoFreeSlot
from ..queue.doorbell import LOOK
from ..slots import check, next_turn
from .holder import Holder
from .reserved import existing
from .slot_rows import MOST_SLOTS, Cycle, SlotRows

# A slot whose holder is gone, which is not always proven, misses two turns. While it is not longer than a minute, a
# lease is renewed in the holder's own turns, so that the renewals, too, meet no other instance's writes.
CYCLES, SHORTEST, LONGEST = 2, 3.0, 60.0  # of a lease: its length in cycles, and the limits of that in seconds


class SlotCycle:
    """The time slots of a name: an instance that joins takes a slot, and has a turn in each cycle.

    ``slots``: how many, 1 to 1000. ``period``: of the whole cycle, in seconds or as a timedelta; each turn lasts its
    share of that, less ``guard`` (seconds or a timedelta) at both ends: the clocks of two hosts may differ by twice the
    guard. ``using``: a database alias. An instance that joins with another cycle changes it for all of them. Raise
    ValueError for what makes no cycle.
    """

    def __init__(
        self,
        name: str,
        slots: int,
        period: float | timedelta,
        guard: float | timedelta = 0.0,
        using: str | None = None,
    ) -> None:
        self.name = name
        self._queue_name = reserved_name(SLOTS, name)
        self._cycle = Cycle(slots, seconds(period, "period"), seconds(guard, "guard"))
        check(*self._cycle)
        if slots > MOST_SLOTS:
            raise ValueError(f"slots is {slots!r}, but must be a whole number, 1 to {MOST_SLOTS}.")
        self._using = using and existing(using)

    def __repr__(self) -> str:
        return "<SlotCycle {!r}, {} slots in {:g} s, guard {:g} s>".format(self.name, *self._cycle)

    def join(self, timeout: float | timedelta | None = None) -> "Slot":
        """Return a slot that this instance holds from now on; wait until one is free.

        ``timeout``: for so many seconds (or a timedelta) at most; 0: not at all; None: for ever. Raise NoFreeSlot
        if none was free in that time, RuntimeError inside a transaction.
        """
        holder = SlotHolder(self.name, self._queue_name, self._cycle, self._using)
        if not holder.acquire(timeout=timeout):  # 0 is a timeout, too: a locked database is one without a free slot
            raise NoFreeSlot(
                f"No slot of {self.name!r} was free within {seconds(timeout, 'timeout'):g} s: others hold them all, or "
                f"one has not let go since the cycle was changed. manage.py vtqueue slots {shlex.quote(self.name)} "
                "shows the holders. Wait for longer, start fewer instances, or have more slots."
            )
        return Slot(self.name, holder)


class SlotHolder(Holder):
    """The holder of a slot, which lets go when the cycle is changed."""

    renewed_after = 2 / 3  # so that the next turn comes before it, a cycle after the last renewal

    def __init__(self, name: str, queue_name: str, cycle: Cycle, using: str | None) -> None:
        ttl = min(max(CYCLES * cycle.period, SHORTEST), LONGEST)
        self.rows: SlotRows
        super().__init__(f"slot of {name!r}", SlotRows(queue_name, database_for(using), cycle, ttl), ttl)
        self.no_next_turn = threading.Event()  # the cycle is to be changed, or the slot is left

    def _renew(self, job: HeldJob, engine: Engine) -> None:
        """Renew the lease, unless the cycle is to be changed: then it ends by itself, if it is not given back."""
        if self.rows.changing():
            self._renew_at = clock.NEVER
            self.no_next_turn.set()
        else:
            super()._renew(job, engine)


class Slot:
    """A slot that this instance holds, by a lease that is kept up; a context manager, at whose end it is left."""

    def __init__(self, name: str, holder: SlotHolder) -> None:
        self._name, self._holder = name, holder
        self._left = False
        self._handed_out: Turn | None = None
        self._one_thread = threading.Lock()  # of several that ask for turns
        finalize(self, holder.dropped).atexit = False

    def __repr__(self) -> str:
        return f"<Slot {self.number} of {self._name!r}, {'held' if self.held else 'not held'}>"

    @property
    def held(self) -> bool:
        """Whether this instance holds a slot, by its own boot clock; False a margin before another can take it."""
        return self._holder.held

    @property
    def number(self) -> int | None:
        """The number of the slot, from 0; None if it is not held. When the cycle is changed it may become another."""
        job = self._holder.job
        return _number(job) if job else None

    @property
    def token(self) -> int | None:
        """The fencing token: it grows with each instance that takes this number; None while it is not held."""
        job = self._holder.job
        return job.claims if job and self.held else None

    def turns(self) -> "Iterator[Turn]":
        """Yield each turn when it begins; those that begin while the last one is still worked on are left out.

        Threads that iterate share the turns: each is handed out once. It ends when the slot is left, or is lost because
        its lease was not kept up. When the cycle is changed it goes on with a slot of the new one, once one is free.
        """
        while self._goes_on():
            job, planned = self._holder.job, self._wait_for_turn()
            if planned and self._renewed_for_turn() and (turn := self._turn(*planned)) and turn.of(job):
                yield turn

    def leave(self) -> None:
        """Give the slot up, so that an instance that waits has it at once, and end ``turns``."""
        self._left = True
        self._holder.no_next_turn.set()
        self._holder.release()

    def __enter__(self) -> "Slot":
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(Error):  # it ends by itself
            self.leave()

    def _goes_on(self) -> bool:
        """Return whether a slot is held; if the cycle was changed, wait for one of the new cycle."""
        holder = self._holder
        with self._one_thread:
            if holder.no_next_turn.is_set() and not self._left:
                self._let_turn_end()
                self._handed_out = None
                with suppress(Error):
                    holder.release()
                holder.no_next_turn.clear()
                while not self._left and not holder.acquire(timeout=1.0):
                    pass
        if self._left:  # perhaps while it was acquired
            holder.release()
        return holder.held

    def _let_turn_end(self) -> None:
        """Wait until nothing is left of the last turn: another thread may be in it, and was told for how long."""
        while (turn := self._handed_out) and self._holder.held and not self._left:
            if (left := turn._ends_at - clock.since_boot()) <= 0:  # whatever the wall clock is set to
                return
            clock.wait(min(left, LOOK))

    def _wait_for_turn(self) -> tuple[float, float] | None:
        """Return the next turn when it begins, by the wall clock, which may be set meanwhile; None if there is none."""
        holder, cycle, number = self._holder, self._holder.rows.cycle, self.number
        if number is None:
            return None
        now, last = wall(), self._handed_out
        begin, end = next_turn(now, number, *cycle)
        if last and begin == last.starts_at:
            begin, end = next_turn(last.ends_at, number, *cycle)
        while (left := begin - wall()) > 0:
            if holder.no_next_turn.wait(min(left, LOOK)) or not self._kept_up():
                return None
            if (now := wall()) < begin:
                begin, end = next_turn(now, number, *cycle)  # an earlier one if the clock was set back
        return begin, end

    def _kept_up(self) -> bool:
        """Return whether the slot is held; renew its lease where no thread can, as in a TestCase."""
        holder = self._holder
        return holder.held and (holder.renews_in() > 0 or not holder.rows.engine.private() or self._renewed())

    def _renewed_for_turn(self) -> bool:
        """Renew the lease now if that would be done between this turn and the next one; return whether it is held."""
        holder = self._holder
        if holder.renews_in() < holder.rows.cycle.period and not self._renewed():
            return False
        return holder.held and not holder.no_next_turn.is_set()

    def _renewed(self) -> bool:
        try:
            self._holder.renew()
        except Error:  # the thread tries again
            return self._holder.held
        except LeaseLost:
            return False
        return True

    def _turn(self, begin: float, end: float) -> "Turn | None":
        """Return a turn, with the number of those that were missed; None if it is over, or another thread has it."""
        with self._one_thread:
            last, turn = self._handed_out, Turn(begin, end, self._holder)
            if turn.remaining() <= 0 or (last and last.starts_at == begin):
                return None
            if last:  # by the boot clock: a wall clock that is set makes no turns
                turn.missed = max(round((turn._ends_at - last._ends_at) / self._holder.rows.cycle.period) - 1, 0)
            self._handed_out = turn
        return turn


class Turn:
    """One turn of a slot: act only while ``remaining()`` is above 0.

    ``starts_at``, ``ends_at``: by the wall clock, in seconds since 1970. ``number``: of the slot. ``missed``: how many
    turns of this slot have been left out since the last one that was handed out.
    """

    missed = 0

    def __init__(self, starts_at: float, ends_at: float, holder: SlotHolder) -> None:
        self.starts_at, self.ends_at = starts_at, ends_at
        self._holder, self._job = holder, holder.job
        self.number = _number(self._job) if self._job else 0
        self._ends_at = clock.since_boot() + ends_at - wall()  # by the boot clock

    def __repr__(self) -> str:
        return f"<Turn of slot {self.number}, {self.remaining():.3f} s left>"

    def of(self, job: HeldJob | None) -> bool:
        """Return whether it is a turn of this claim: another thread may have a slot of another cycle meanwhile."""
        return self._job is job

    def remaining(self) -> float:
        """Return for how many seconds this turn is certainly this instance's own; 0 if it is over.

        It is over as soon as one of these is true: the wall clock is outside of it; the boot clock has counted its
        length (a clock that is set back does not lengthen it); another instance may have the slot.
        """
        now, held = wall(), self._holder.remaining()
        if now < self.starts_at or self._holder.job is not self._job:
            return 0.0
        return max(min(self.ends_at - now, held, self._ends_at - clock.since_boot()), 0.0)


def wall() -> float:
    """Return the present moment of this machine's wall clock, in seconds since 1970."""
    return clock.now() / SECOND


def _number(job: HeldJob) -> int:
    return int(decode(job.payload))
