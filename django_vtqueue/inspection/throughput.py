"""The work of the last hours: how many jobs of each queue ended each minute, and how long they took.

Each worker sums what it settles, and writes it every 10 seconds, so up to 10 seconds are missing. Jobs that others
than workers claim (``Queue.claim``, ``Queue.run``, ``run_pending``) are not counted. Nothing here looks at all jobs.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import BigIntegerField, BinaryField, ExpressionWrapper, F, QuerySet, Sum, Value
from django.db.models.functions import Cast

from ..core.clock import SECOND
from ..core.counts import HOUR, MINUTE, hour_of, minute_of
from ..core.histograms import NOTHING, Percentiles, added, percentiles
from ..core.ids import first_id
from ..engines import engine_for
from ..engines.distinct import by_key, count_by, fetch
from ..models import RESERVED, DeadLetter, HourlyThroughput, Job, Throughput
from ..models.statistics import Tallied

RECENT, WEEK = 3 * HOUR, 7 * 24 * HOUR
MOST_TIMES = 5000  # rows of histograms of a page, some 10 µs each
NUMBERS = ("succeeded", "failed", "dead")

# -- the flow of queues ------------------------------------------------------------------------------------------------


@dataclass
class Flow:
    """What became of the attempts at the jobs of one queue: a number for each minute, oldest first, the last is now's.

    ``failed``: attempts after which there is another; ``dead``: jobs that became dead letters. ``run``: how long the
    attempts took; ``wait``: how long the jobs had been due when they began; both over all the minutes.
    """

    succeeded: list[int]
    failed: list[int]
    dead: list[int]
    run: Percentiles = NOTHING
    wait: Percentiles = NOTHING

    def ended(self, minutes: int = 1) -> int:
        """Return how many attempts ended in the last whole ``minutes``, the present one not among them."""
        return sum(sum(numbers[-minutes - 1 : -1]) for numbers in (self.succeeded, self.failed, self.dead))


def read(database: str, now: int | None = None, minutes: int = 180) -> dict[str, Flow]:
    """Return the flow of each queue that had any in these ``minutes``, the present one included, by its name.

    ``database``: an alias; ``now``: microseconds since 1970, the present if it is not given.

    One range of an index; a row takes some 10 µs, and there is one for each queue, minute and worker. Damaged
    histograms are left out.
    """
    now = engine_for(database).now() if now is None else now
    rows = counted(Throughput, database, minute_of(now) - (minutes - 1) * MINUTE, now)
    return flows(rows, now, minutes, times(rows, F("queue_name")))


def lately(database: str, queue_names: Collection[str], now: int, minutes: int = 180) -> dict[str, Flow]:
    """Return the same of these queues, however many others there are; the times are those of the latest hours."""
    last = minute_of(now)
    first = last - (minutes - 1) * MINUTE
    # Each minute by its name: a range of them would lead through the rows of all other queues.
    rows = by_key(Throughput._base_manager.using(database)).filter(starts_at__in=range(first, last + 1, MINUTE))
    hours = counted(HourlyThroughput, database, hour_of(first), now).filter(queue_name__in=queue_names)
    return flows(rows.filter(queue_name__in=queue_names), now, minutes, times(hours, F("queue_name"), MOST_TIMES))


def active(database: str, now: int, minutes: int, most: int) -> Counter[str]:
    """Return in how many of the last ``minutes`` each queue did something; no more than ``most`` are looked at of all
    queues together, the latest first.
    """
    rows = counted(Throughput, database, minute_of(now) - (minutes - 1) * MINUTE, now)
    # Both backwards, as the index is read: what is distinct is found without a table of what was seen.
    found = rows.order_by(INSTANT.desc(), "-queue_name").values("queue_name", at=INSTANT).distinct()
    return Counter({name: number for (name,), number in count_by(found[:most], "queue_name").items()})


def flows(rows: QuerySet[Any], now: int, minutes: int, times: Mapping[str, Sequence[Percentiles]]) -> dict[str, Flow]:
    """Return the flow of each queue in rows of the last ``minutes``."""
    found: dict[str, Flow] = {}
    minute = part_of("starts_at", minute_of(now) - (minutes - 1) * MINUTE, MINUTE)
    for queue_name, place, *numbers in fetch(rows.values_list("queue_name", minute).annotate(*map(Sum, NUMBERS))):
        if queue_name not in found:
            found[queue_name] = Flow([0] * minutes, [0] * minutes, [0] * minutes, *times.get(queue_name, ()))
        flow = found[queue_name]
        for series, number in zip((flow.succeeded, flow.failed, flow.dead), numbers, strict=True):
            series[int(place)] += int(number)
    return found


def succeeded_since(database: str, moments: Iterable[tuple[str, int]], now: int) -> dict[tuple[str, int], int]:
    """Return, for each task and moment, how many attempts at it succeeded in the whole minutes after the moment.

    Of a moment before the last three hours: in the whole hours after it, of the last week.
    """
    found = dict.fromkeys(moments, 0)
    for model, first in ((Throughput, now - RECENT), (HourlyThroughput, now - WEEK)):
        wanted = [(task, moment) for task, moment in found if (moment >= now - RECENT) == (model is Throughput)]
        rows = by_key(model._base_manager.using(database)).filter(starts_at__gte=first, succeeded__gt=0)
        rows = rows.filter(task_path__in={task for task, _ in wanted})
        numbers = list(rows.values_list("task_path", INSTANT).annotate(Sum("succeeded")))
        for task, moment in wanted:
            found[task, moment] = sum(number for name, at, number in numbers if name == task and at > moment)
    return found


def arrivals(
    database: str, now: int | None = None, seconds: int = 60, limit: int = 10_000
) -> tuple[dict[str, int], bool]:
    """Return how many jobs were enqueued into each queue in the last ``seconds``, and whether ``limit`` was reached.

    ``database``: an alias; ``now``: microseconds since 1970, the present if it is not given.

    An id begins with the time at which it was made, so these jobs are a range of the primary keys; no more than
    ``limit`` of them are looked at. Those that have ended and are not kept (``result_ttl`` 0) are not among them.
    """
    now = engine_for(database).now() if now is None else now
    first, last = (UUID(first_id(instant)) for instant in (now - seconds * SECOND, now))
    found: Counter[str] = Counter()
    for model in (Job, DeadLetter):
        made = model._base_manager.using(database).filter(~RESERVED, pk__gte=first, pk__lt=last).order_by("-pk")
        counts = count_by(made.values("queue_name")[: limit - found.total()], "queue_name")
        found.update({name: number for (name,), number in counts.items()})
    return dict(found), found.total() >= limit


# -- rows --------------------------------------------------------------------------------------------------------------

INSTANT = ExpressionWrapper(F("starts_at"), output_field=BigIntegerField())


def counted(model: type[Tallied], database: str, first: int, last: int) -> QuerySet[Any]:
    """Return the counts of a time."""
    return by_key(model._base_manager.using(database)).filter(starts_at__gte=first, starts_at__lte=last)


def part_of(moment: str, first: int, width: int) -> ExpressionWrapper:
    """Return in which of the parts of a time that begins at ``first`` a moment is; all in microseconds."""
    begin, length = (Value(number, BigIntegerField()) for number in (first, width))  # a bound integer has 32 bits else
    return ExpressionWrapper((F(moment) - begin) / length, output_field=BigIntegerField())


def times(rows: QuerySet[Any], key: Any, most: int | None = None) -> dict[Any, tuple[Percentiles, ...]]:
    """Return, of the rows of each key, how long attempts ran, and how long they had waited; of the latest ``most``."""
    found: defaultdict[Any, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    # As bytes: a text that is not UTF-8 could not be read.
    columns = (Cast(column, BinaryField()) for column in ("run_times", "wait_times"))
    for place, *texts in rows.order_by("-starts_at").values_list(key, *columns)[:most]:
        for text, several in zip(texts, found[place], strict=True):
            several.append(text)
    return {place: tuple(percentiles(added(texts)) for texts in several) for place, several in found.items()}
