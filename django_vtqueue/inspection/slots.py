"""Which cycles of time slots there are, and who holds which slot."""

from ..core.names import SLOTS
from ..models import HAS_KEY, Job
from ..patterns.slot_rows import CYCLE, Cycle, Stored, stored
from .held import Holding, holding, reserved_rows


def cycles(database: str) -> dict[str, Stored]:
    """Return the cycles of a database (an alias) by name: the one in force, and the one that is asked for."""
    rows = (
        reserved_rows(database, SLOTS)
        .filter(unique_key=CYCLE)
        .order_by("queue_name")
        .values_list("queue_name", "payload")
    )
    return {name.removeprefix(SLOTS): stored(payload) for name, payload in rows.values_list("queue_name", "payload")}


def slots(database: str, name: str, cycle: Cycle, now: int) -> list[Holding]:
    """Return the slots of a cycle, by number; ``key`` is the number."""
    jobs = (
        Job.objects.using(database).filter(HAS_KEY, queue_name=f"{SLOTS}{name}").defer("payload", "history", "result")
    )
    rows = {str(job.unique_key): holding(job, SLOTS, now) for job in jobs}
    return [rows[number] for number in map(str, range(cycle.slots)) if number in rows]
