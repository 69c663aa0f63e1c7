"""Which cycles of time slots there are, and who holds which slot."""

from dataclasses import dataclass

from django.db.models import Q, QuerySet

from ..core import clock, states
from ..core.names import SLOTS
from ..models import KEYED, Job
from ..patterns.slot_rows import CYCLE, Cycle, Stored, stored
from ..slots import next_turn

# A range of the first column of the index of unique keys: they are found beside any number of jobs.
OF_SLOTS = Q(queue_name__gte=SLOTS, queue_name__lt=f"{SLOTS[:-1]}{chr(ord(SLOTS[-1]) + 1)}")


@dataclass(frozen=True)
class HeldSlot:
    """A slot as its row has it. ``holder``: its worker id, "" if it is free; ``token``: its claim number.

    ``held_until``: the end of its lease, in microseconds; ``next_turn``: its begin, in seconds since 1970.
    """

    number: int
    holder: str
    token: int
    held_until: int | None
    next_turn: float


def cycles(database: str) -> dict[str, Stored]:
    """Return the cycles of a database (an alias) by name: the one in force, and the one that is asked for."""
    rows = Job.objects.using(database).filter(KEYED & OF_SLOTS, unique_key=CYCLE).order_by("queue_name")
    found = rows.values_list("queue_name", "payload")
    return {name.removeprefix(SLOTS): stored(payload) for name, payload in found}


def slots(database: str, name: str, cycle: Cycle, now: int) -> list[HeldSlot]:
    """Return the slots of a cycle, by number; ``now``: in microseconds."""
    keyed: QuerySet[Job] = Job.objects.using(database).filter(KEYED, queue_name=f"{SLOTS}{name}")
    rows = {job.unique_key: job for job in keyed.defer("history", "result")}
    numbers = [number for number in range(cycle.slots) if str(number) in rows]
    return [slot(rows[str(number)], number, cycle, now) for number in numbers]


def slot(job: Job, number: int, cycle: Cycle, now: int) -> HeldSlot:
    until = clock.to_instant(job.lease_until) if job.state == states.RUNNING and job.lease_until else None
    begin, _ = next_turn(now / clock.SECOND, number, *cycle)
    return HeldSlot(number, job.worker_id, job.claims, until, begin)
