"""The work of the last hours: how many jobs of each queue ended each minute, and how long they took.

Each worker sums what it settles, and writes it every 10 seconds, so the last of these are missing. Jobs that others
than workers claim (``Queue.claim``, ``Queue.run``, ``run_pending``) are not counted. Nothing here looks at all jobs.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from .core.clock import SECOND
from .core.counts import HOUR, MINUTE, Chart, hour_of, minute_of
from .core.histograms import Percentiles, add, loaded, parse, percentiles
from .engines import engine_for

QUARTER, RECENT, WEEK = 15 * MINUTE, 3 * HOUR, 7 * 24 * HOUR
MOST_SPANS = 5000  # rows of histograms for a chart, some 10 µs each


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


def read(database: str, now: int | None = None, minutes: int = 180) -> dict[str, Flow]:
    """Return the flow of each queue that had any in these ``minutes``, the present one included, by its name.

    ``database``: an alias; ``now``: microseconds since 1970, the present if it is not given.

    One range of an index; a row takes some 10 µs, and there is one for each queue, minute and worker. Damaged
    ones are left out.
    """
    engine = engine_for(database)
    now = engine.now() if now is None else now
    first = minute_of(now) - (minutes - 1) * MINUTE
    flows: dict[str, Flow] = {}
    times: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
    for minute, queue_name, succeeded, failed, dead, *texts in engine.inspection.counts(first, now):
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


@dataclass
class Slot:
    """What happened in a part of the time of a chart; ``at``: its begin; ``depth``: None if it was not measured."""

    at: int
    succeeded: int = 0
    failed: int = 0
    dead: int = 0
    depth: int | None = None


@dataclass
class Timing:
    """How long attempts ran in one part of the time of a chart, and how long they had waited."""

    at: int
    run: Percentiles
    wait: Percentiles


def charted(
    database: str, now: int, span: str, queue: str | None = None, task: str | None = None
) -> tuple[Chart, list[Slot], Chart, list[Timing]]:
    """Return the slots of an ``hour``, a ``day`` or a ``week`` up to now, and the times of its parts.

    Of one queue or task, or of all. The hour and the day are read from the counts of minutes, the week, and the times
    of the day, from those of hours. The times are of the latest MOST_SPANS rows at the most.
    """
    counts, times = (_chart(now, span, queue, task, times=times) for times in (False, True))
    engine = engine_for(database)
    slots = [Slot(at) for at in range(counts.first, now + 1, counts.width)]
    for place, *numbers in engine.inspection.series(counts):
        slot = slots[place]
        slot.succeeded, slot.failed, slot.dead = numbers
    if task is None:
        for place, depth in engine.inspection.depths(counts):
            slots[place].depth = depth
    timings = [Timing(at, Percentiles(), Percentiles()) for at in range(times.first, now + 1, times.width)]
    found: dict[int, tuple[dict[str, int], dict[str, int]]] = {}
    for place, *texts in engine.inspection.spans(times, MOST_SPANS):
        for text, total in zip(texts, found.setdefault(place, ({}, {})), strict=True):
            add(parse(text) or {}, total)
    for place, (ran, waited) in found.items():
        timings[place].run, timings[place].wait = percentiles(loaded(ran)), percentiles(loaded(waited))
    return counts, slots, times, timings


def _chart(now: int, span: str, queue: str | None, task: str | None, *, times: bool) -> Chart:
    first, width, hourly = {
        "hour": (minute_of(now) - 59 * MINUTE, MINUTE, False),
        "day": (hour_of(now) - 23 * HOUR, HOUR if times else QUARTER, times),
        "week": (hour_of(now) - (7 * 24 - 1) * HOUR, HOUR, True),
    }[span]
    return Chart(first, now, width, queue, task, hourly)


def succeeded_since(database: str, moments: Iterable[tuple[str, int]], now: int) -> dict[tuple[str, int], int]:
    """Return, for each task and moment, how many attempts at it succeeded in the whole minutes after the moment.

    Of a moment before the last three hours: in the whole hours after it, of the last week.
    """
    engine, recent = engine_for(database), now - RECENT
    found = dict.fromkeys(moments, 0)
    for hourly, first in ((False, recent), (True, now - WEEK)):
        meant = [(task, moment) for task, moment in found if (moment < recent) == hourly]
        tasks = sorted({task for task, _ in meant})
        rows = engine.inspection.successes(tasks, first, hourly=hourly) if tasks else []
        for task, moment in meant:
            found[task, moment] = sum(number for name, minute, number in rows if name == task and minute > moment)
    return found


def arrivals(
    database: str, now: int | None = None, seconds: int = 60, limit: int = 10_000
) -> tuple[dict[str, int], bool]:
    """Return how many jobs were enqueued into each queue in the last ``seconds``, and whether ``limit`` was reached.

    ``database``: an alias; ``now``: microseconds since 1970, the present if it is not given.

    An id begins with the time at which it was made, so these jobs are a range of the primary keys; no more than
    ``limit`` of them are looked at. Those that have ended and are not kept (``result_ttl`` 0) are not among them.
    """
    engine = engine_for(database)
    now = engine.now() if now is None else now
    found = engine.inspection.arrivals(now - seconds * SECOND, now, limit)
    return found, sum(found.values()) >= limit
