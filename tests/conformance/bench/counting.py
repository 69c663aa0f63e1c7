"""What workers have counted of their work, minute by minute."""

from collections.abc import Mapping
from typing import NamedTuple

from django_vtqueue.core.counts import MINUTE, Counts, minute_of
from django_vtqueue.core.histograms import bucket_of, middle_of
from django_vtqueue.inspection import throughput
from django_vtqueue.models import Throughput
from django_vtqueue.worker import statistics
from tests.fake_clock import at

from .moments import SECOND
from .queue import Bench


class Work(NamedTuple):
    """What became of attempts of a queue in one minute, the present one or so many before it.

    ``ran``, ``waited``: how many of them took so many seconds, and had waited for so many.
    """

    queue: str
    ago: int = 0
    succeeded: int = 0
    failed: int = 0
    dead: int = 0
    ran: Mapping[float, int] = {}
    waited: Mapping[float, int] = {}


def count(bench: Bench, worker: str, *work: Work, now: float = 0) -> None:
    """Have a worker write what it has counted in some minutes."""
    counts = {
        (minute_of(at(now)) - each.ago * MINUTE, each.queue, "t"): Counts(
            each.succeeded, each.failed, each.dead, _histogram(each.ran), _histogram(each.waited)
        )
        for each in work
    }
    with bench.engine.atomic():
        statistics.store(Throughput, bench.alias, worker, counts)


def prune_counts(bench: Bench, ago: int, limit: int, now: float = 0) -> int:
    """Delete what was counted before the minute so long ago, about ``limit`` rows; return how many."""
    return statistics.prune(Throughput, bench.alias, minute_of(at(now)) - ago * MINUTE, limit)


def latest_arrivals(bench: Bench, jobs: int) -> tuple[dict[str, int], bool]:
    """Return ``arrivals`` of the latest jobs, so many at the most, and whether there are more."""
    return throughput.arrivals(bench.alias, limit=jobs)


def as_counted(seconds: float) -> float:
    """Return a duration as it is counted: within 9.1 %."""
    return middle_of(bucket_of(seconds * SECOND)) / SECOND


def _histogram(times: Mapping[float, int]) -> dict[int, int]:
    return {bucket_of(seconds * SECOND): number for seconds, number in times.items()}
