"""What the queues on the overview did lately, read for these queues alone, however many there are and were."""

from collections.abc import Sequence

from ..counts import MINUTE, minute_of
from ..engines import Engine
from ..histograms import Percentiles, add, loaded, parse, percentiles
from ..throughput import Flow

HISTOGRAMS = 1000  # rows that are read for all queues together, some 10 µs each
FEWEST = 5  # for each of them


def flows(engine: Engine, queue_names: Sequence[str], now: int, minutes: int) -> dict[str, Flow]:
    """Return the flow of those queues that had any, as ``throughput.read``; the times are those of the latest."""
    last = minute_of(now)
    first = last - (minutes - 1) * MINUTE
    found: dict[str, Flow] = {}
    for queue_name, minute, *numbers in engine.flow(queue_names, first, last):
        if queue_name not in found:
            found[queue_name] = Flow([0] * minutes, [0] * minutes, [0] * minutes, Percentiles(), Percentiles())
        flow = found[queue_name]
        for series, number in zip((flow.succeeded, flow.failed, flow.dead), numbers, strict=True):
            series[(minute - first) // MINUTE] = number
    each = max(FEWEST, HISTOGRAMS // max(len(found), 1))
    for queue_name, (ran, waited) in measured(engine.times(list(found), first, last, each)).items():
        found[queue_name].run, found[queue_name].wait = percentiles(loaded(ran)), percentiles(loaded(waited))
    return found


def measured(rows: Sequence[tuple[str, str, str]]) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
    """Return the histograms of each queue added up, without those that somebody damaged."""
    found: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
    for queue_name, *texts in rows:
        for text, total in zip(texts, found.setdefault(queue_name, ({}, {})), strict=True):
            add(parse(text) or {}, total)
    return found
