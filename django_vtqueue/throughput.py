"""What workers have done lately: how many jobs of each queue ended each minute, and how long they took.

Each worker sums what it settles, and writes it every 10 seconds, so the last of these are missing. Jobs that others
than workers claim (``Queue.claim``, ``Queue.run``, ``run_pending``) are not counted. Nothing here looks at all jobs.
"""

from dataclasses import dataclass

from .clock import SECOND
from .counts import MINUTE, minute_of
from .engines import engine_for
from .histograms import Percentiles, add, loaded, parse, percentiles


@dataclass
class Flow:
    """What became of the attempts at the jobs of one queue: a number for each minute, oldest first, the last is now's.

    ``failed``: attempts after which there is another; ``dead``: jobs that became dead letters. ``run``: how long the
    attempts took; ``wait``: how long the jobs had been due when they began; both over all the minutes.
    """

    succeeded: list[int]
    failed: list[int]
    dead: list[int]
    run: Percentiles
    wait: Percentiles

    def ended(self, minutes: int = 1) -> int:
        """Return how many attempts ended in the last whole ``minutes``, the present one not among them."""
        return sum(sum(numbers[-minutes - 1 : -1]) for numbers in (self.succeeded, self.failed, self.dead))


def read(database: str, now: int, minutes: int = 180) -> dict[str, Flow]:
    """Return the flow of each queue that had any in these ``minutes``, the present one included, by its name.

    One range of an index; a row takes some 10 µs, and there is one for each queue, minute and worker. Those that
    somebody damaged are left out.
    """
    first = minute_of(now) - (minutes - 1) * MINUTE
    flows: dict[str, Flow] = {}
    times: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
    for minute, queue_name, succeeded, failed, dead, *texts in engine_for(database).counts(first, now):
        run_times, wait_times = map(parse, texts)
        if run_times is None or wait_times is None:
            continue
        if (flow := flows.get(queue_name)) is None:
            flow = flows[queue_name] = Flow([0] * minutes, [0] * minutes, [0] * minutes, Percentiles(), Percentiles())
            times[queue_name] = {}, {}
        add(run_times, times[queue_name][0])
        add(wait_times, times[queue_name][1])
        place = (minute - first) // MINUTE
        flow.succeeded[place] += succeeded
        flow.failed[place] += failed
        flow.dead[place] += dead
    for queue_name, flow in flows.items():
        flow.run, flow.wait = (percentiles(loaded(total)) for total in times[queue_name])
    return flows


def arrivals(database: str, now: int, seconds: int = 60, limit: int = 10_000) -> tuple[dict[str, int], bool]:
    """Return how many jobs were enqueued into each queue in the last ``seconds``, and whether ``limit`` was reached.

    An id begins with the time at which it was made, so these jobs are a range of the primary keys; no more than
    ``limit`` of them are looked at. Those that have ended and are not kept (``result_ttl`` 0) are not among them.
    """
    found = engine_for(database).arrivals(now - seconds * SECOND, now, limit)
    return found, sum(found.values()) >= limit
