"""Time slots (TDMA): when each of several instances has its turn, and how much they can do. Plain arithmetic.

Nothing here reads a clock or a database: each instance computes its turns alone. After H. Kopetz and G. Bauer, "The
Time-Triggered Architecture", Proceedings of the IEEE 91 (2003), where the slots of a bus are found from the time alone.
"""

from fractions import Fraction
from math import ceil

from .core.text import shown

__all__ = [
    "capacity",
    "next_turn",
]

LONGEST = 1e11  # seconds: 3000 years, so that every moment of a cycle is exact to the thousandth of a second
SHORTEST = 0.001  # seconds of a turn


def next_turn(now: float, number: int, slots: int, period: float, guard: float = 0.0) -> tuple[float, float]:
    """Return when the next turn of a slot begins and ends, in seconds since 1970.

    ``now``: in seconds since 1970; a turn that has begun before is not the next one. ``number``: of the slot, from 0.
    ``slots``: how many share the cycle. ``period``: seconds of the cycle. ``guard``: seconds that are left free at both
    ends of each turn. Raise ValueError for what makes no cycle.
    """
    check(slots, period, guard)
    if not _whole(number) or not 0 <= number < slots:
        raise ValueError(f"number is {shown(number)}, but the slots of this cycle are 0 to {slots - 1}.")
    if not _number(now) or not abs(now) < LONGEST:
        raise ValueError(f"now is {shown(now)}, but must be seconds since 1970, below 1e11.")

    def begin(cycle: int) -> float:  # turns that meet share this number: so rounding makes no two overlap
        return (cycle * slots + number) * period / slots

    cycle = ceil((now - guard) / period - number / slots)  # right, but for rounding
    while begin(cycle) + guard < now:
        cycle += 1
    while begin(cycle - 1) + guard >= now:
        cycle -= 1
    return begin(cycle) + guard, (cycle * slots + number + 1) * period / slots - guard


def capacity(slots: int, period: float, seconds_per_item: float, guard: float = 0.0) -> int:
    """Return how many whole items all turns of a cycle have time for, each handled once a cycle.

    ``seconds_per_item``: what one item takes; for the other arguments see ``next_turn``. Without a guard it is the
    cycle divided by that time, however many slots there are. Raise ValueError for what makes no cycle.
    """
    check(slots, period, guard)
    if not _number(seconds_per_item) or not 0 < seconds_per_item < LONGEST:
        raise ValueError(f"seconds_per_item is {shown(seconds_per_item)}, but must be a number of seconds above 0.")
    turn = _exact(period) / slots - 2 * _exact(guard)
    return slots * int(turn / _exact(seconds_per_item))


def check(slots: int, period: float, guard: float = 0.0) -> None:
    """Raise ValueError for what makes no cycle; see ``next_turn``."""
    if not _whole(slots) or not 1 <= slots < LONGEST:
        raise ValueError(f"slots is {shown(slots)}, but must be a whole number, 1 or more, below 1e11.")
    if not _number(period) or not 0 < period < LONGEST:
        raise ValueError(f"period is {shown(period)}, but must be a number of seconds above 0.")
    if not _number(guard) or not 0 <= guard < LONGEST:
        raise ValueError(f"guard is {shown(guard)}, but must be a number of seconds, 0 or more.")
    if (turn := period / slots - 2 * guard) < SHORTEST:
        raise ValueError(
            f"A turn would last {turn:g} s: period / slots = {period / slots:g} s, less the guard of {guard:g} s at "
            f"both ends. It must last {SHORTEST:g} s or more. Have a longer period, fewer slots, or a smaller guard."
        )


def _exact(seconds: float) -> Fraction:
    """Return a number as it is written: 0.1 is a tenth, so that 0.3 s have time for three times 0.1 s."""
    return Fraction(repr(float(seconds)))


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
