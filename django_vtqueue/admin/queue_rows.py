"""A queue as the overview shows it: numbers that lead to their lists, rates, times, and a plot."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlencode

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ..core import clock
from ..core.counts import MINUTE, minute_of
from ..core.histograms import Percentiles, add, loaded, parse, percentiles
from ..core.humanize import duration
from ..engines import Engine, options_for
from ..engines.inspection import Backlog, HeldCount
from ..models import QueueState
from ..throughput import Flow
from . import display
from .links import Pages
from .plots import sparkline
from .workers import Busy, takes

QUIET = Flow([], [], [], Percentiles(), Percentiles())


class Number(NamedTuple):
    """A count as people read it, and where what was counted is listed."""

    value: int
    text: str
    url: str | None

    @property
    def shown(self) -> SafeString | str:
        """Return it as a link to the list; nothing is listed of none, which is nothing to look at either."""
        if not self.value:
            return format_html('<span class="vtq-quiet">{}</span>', self.text)
        return format_html('<a href="{}">{}</a>', self.url, self.text) if self.url else self.text


@dataclass
class QueueRow:
    """A queue. ``unserved``: something is due that no live worker takes; ``used``: there is, or was, a job in it.

    ``seen``: how many of the dead letters are acknowledged, "" for none; ``unseen``: there are others.
    """

    name: str
    due: Number
    scheduled: Number
    retrying: Number
    running: Number
    expired: Number
    dead: Number
    seen: str
    unseen: bool
    oldest: SafeString | str
    arrived: str
    ended: str
    plot: SafeString
    run: list[str]
    wait: list[str]
    pause: QueueState | None
    pause_url: str | None
    unserved: bool
    used: bool

    @property
    def query(self) -> str:
        """Return what chooses it in an address."""
        return urlencode({"queue_name": self.name})


@dataclass
class Facts:
    """What was read of all queues. ``most``, ``most_letters``: above it a number is not told exactly; ``most_held``: up
    to which held jobs were looked at, of all queues together."""

    database: str
    now: int
    most: int
    most_letters: int
    most_held: int
    backlogs: Iterable[Backlog]
    held: Sequence[HeldCount]
    letters: Mapping[str, int]
    seen: Mapping[str, int]
    flows: Mapping[str, Flow]
    arrivals: Mapping[str, int]
    more_arrived: bool
    paused: Mapping[str, QueueState]
    workers: Sequence[Busy]
    pages: Pages

    def rows(self, names: Iterable[str]) -> list[QueueRow]:
        """Return these queues."""
        by_queue: defaultdict[str, list[Backlog]] = defaultdict(list)
        for backlog in self.backlogs:
            by_queue[backlog.queue_name].append(backlog)
        running, expired = Counter[str](), Counter[str]()
        for part in self.held:
            running[part.queue_name] += part.running
            expired[part.queue_name] += part.expired
        return [self.row(name, by_queue[name], running[name], expired[name]) for name in names]

    def row(self, name: str, backlogs: Sequence[Backlog], running: int, expired: int) -> QueueRow:
        due, later = sum(each.due for each in backlogs), sum(each.later for each in backlogs)
        retrying, read = sum(each.retrying for each in backlogs), sum(each.read for each in backlogs)
        unread = any(each.read < each.later or each.later > self.most for each in backlogs)
        many_held = sum(part.running + part.expired for part in self.held) >= self.most_held
        oldest = min((each.oldest for each in backlogs if each.oldest is not None), default=None)
        flow, dead, pages = self.flows.get(name, QUIET), self.letters.get(name, 0), self.pages
        seen = self.seen.get(name, 0)
        arrived = self.arrivals.get(name, 0)
        return QueueRow(
            name=name,
            due=number(due, self.most, url=listed(pages.jobs, name, "due")),
            scheduled=number(read - retrying, self.most, more=unread, url=listed(pages.jobs, name, "scheduled")),
            retrying=number(retrying, self.most, more=unread, url=listed(pages.jobs, name, "retrying")),
            running=number(running, more=many_held, url=listed(pages.jobs, name, "running")),
            expired=number(expired, more=many_held, url=listed(pages.jobs, name, "expired")),
            dead=number(dead, self.most_letters, url=listed(pages.letters, name)),
            seen=number(min(seen, self.most_letters), more=seen > self.most_letters).text if seen else "",
            unseen=dead > seen or dead > self.most_letters,
            oldest="" if oldest is None else aged(oldest, self.now),
            arrived=number(arrived, more=self.more_arrived).text,
            ended=number(flow.ended(1)).text,
            plot=plot(name, flow),
            run=times(flow.run.p50, flow.run.p95),
            wait=times(flow.wait.p50, flow.wait.p95),
            pause=self.paused.get(name),
            pause_url=pages.pause and f"{pages.pause}?{urlencode({'queue_name': name})}",
            unserved=name not in self.paused and self.unserved(name, backlogs),
            used=any((due, later, running, expired, dead, arrived, flow is not QUIET, name in self.paused)),
        )

    def unserved(self, name: str, backlogs: Sequence[Backlog]) -> bool:
        """Return whether a worker should take what is due here, and none does; raw payloads need a handler for it."""
        handled = options_for(name, self.database).policy(name).handler
        due = any(each.due for each in backlogs if handled or not each.raw)
        return due and not takes(self.workers, name)


def number(value: int, most: int | None = None, *, more: bool = False, url: str | None = None) -> Number:
    """Return a number for people. ``most``: what is above is not told exactly; ``more``: there may be more anyway."""
    if most is not None and value > most:
        value, more = most, True
    return Number(value, display.number(value, more=more), url)


def listed(page: str | None, queue_name: str, state: str = "") -> str | None:
    """Return the address of the jobs of a queue in one state, or of its dead letters."""
    if page is None:
        return None
    return f"{page}?{urlencode(({'state': state} if state else {}) | {'queue_name': queue_name})}"


def aged(oldest: int, now: int) -> SafeString | str:
    return display.moment(clock.from_instant(oldest), duration(now - oldest))


def times(*percentiles: int | None) -> list[str]:
    """Return durations, none if nothing was measured."""
    return [duration(each) for each in percentiles if each is not None]


def plot(queue_name: str, flow: Flow) -> SafeString:
    """Return the plot of what was processed and what failed of it, a minute."""
    failed = [retried + dead for retried, dead in zip(flow.failed, flow.dead, strict=True)]
    done = [succeeded + bad for succeeded, bad in zip(flow.succeeded, failed, strict=True)]
    label = _(
        "Attempts in “%(queue)s” a minute, over the last 3 hours: %(highest)s at the most, %(total)s in all, of which "
        "%(failed)s failed."
    ) % {
        "queue": queue_name,
        "highest": number(max(done, default=0)).text,
        "total": number(sum(done)).text,
        "failed": number(sum(failed)).text,
    }
    return sparkline(done, label, bars=failed)


# -- what the queues did lately ----------------------------------------------------------------------------------------
#
# Read for the queues on the page alone, however many queues there are and were.

HISTOGRAMS = 1000  # rows that are read for all queues together, some 10 µs each
FEWEST = 5  # for each of them


def flows(engine: Engine, queue_names: Sequence[str], now: int, minutes: int) -> dict[str, Flow]:
    """Return the flow of those queues that had any, as ``throughput.read``; the times are those of the latest."""
    last = minute_of(now)
    first = last - (minutes - 1) * MINUTE
    found: dict[str, Flow] = {}
    for queue_name, minute, *numbers in engine.inspection.flow(queue_names, first, last):
        if queue_name not in found:
            found[queue_name] = Flow([0] * minutes, [0] * minutes, [0] * minutes, Percentiles(), Percentiles())
        flow = found[queue_name]
        for series, number in zip((flow.succeeded, flow.failed, flow.dead), numbers, strict=True):
            series[(minute - first) // MINUTE] = number
    each = max(FEWEST, HISTOGRAMS // max(len(found), 1))
    for queue_name, (ran, waited) in measured(engine.inspection.times(list(found), first, last, each)).items():
        found[queue_name].run, found[queue_name].wait = percentiles(loaded(ran)), percentiles(loaded(waited))
    return found


def measured(rows: Sequence[tuple[str, str, str]]) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
    """Return the histograms of each queue added up, without damaged ones."""
    found: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
    for queue_name, *texts in rows:
        for text, total in zip(texts, found.setdefault(queue_name, ({}, {})), strict=True):
            add(parse(text) or {}, total)
    return found
