"""A queue as the overview shows it: numbers that lead to their lists, rates, times, and a plot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlencode

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ..conf import Policy
from ..core import clock
from ..core.humanize import duration
from ..engines import options_for
from ..inspection.overview import Backlog, Fill, Held
from ..inspection.throughput import Flow
from ..models import QueueState
from . import display
from .links import Pages
from .plots import sparkline
from .workers import Busy, takes

QUIET = Flow([], [], [])


class ShownNumber(NamedTuple):
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

    ``seen``: how many of the dead letters are reviewed, "" for none; ``unseen``: there are others.
    """

    name: str
    due: ShownNumber
    scheduled: ShownNumber
    retrying: ShownNumber
    waiting: ShownNumber
    parked: ShownNumber
    running: ShownNumber
    expired: ShownNumber
    dead: ShownNumber
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
    fill: Fill | None
    limits: str

    @property
    def filled(self) -> str:
        """Return how many jobs wait of those that may; "" where any number may."""
        if self.fill is None:
            return ""
        values = {"depth": number(self.fill.depth, self.fill.max_depth).text, "percent": self.fill.percent}
        values["most"] = number(self.fill.max_depth).text
        return _("%(depth)s of %(most)s wait, %(percent)s %%") % values

    @property
    def query(self) -> str:
        """Return what chooses it in an address."""
        return urlencode({"queue_name": self.name})


@dataclass
class Facts:
    """What was read of all queues. ``most``, ``most_letters``: above it a number is not exact: "10,000+"."""

    database: str
    now: int
    most: int
    most_letters: int
    backlogs: Mapping[str, Backlog]
    fills: Mapping[str, Fill]
    held: Held
    more_held: bool
    letters: Mapping[str, int]
    reviewed: Mapping[str, int]
    flows: Mapping[str, Flow]
    arrivals: Mapping[str, int]
    more_arrived: bool
    paused: Mapping[str, QueueState]
    workers: Sequence[Busy]
    pages: Pages

    def row(self, name: str) -> QueueRow:
        """Return one of these queues."""
        backlog, held, pages = self.backlogs[name], self.held.queues, self.pages
        unread = backlog.read < backlog.later or backlog.later > self.most
        flow, dead, arrived = self.flows.get(name, QUIET), self.letters.get(name, 0), self.arrivals.get(name, 0)
        running, expired = held[name, "running"], held[name, "expired"]
        seen, oldest = self.reviewed.get(name, 0), backlog.oldest

        def waiting(state: str, value: int, *, more: bool = False) -> ShownNumber:
            return number(value, self.most, more=more, url=listed(pages.jobs, name, state))

        def holding(state: str, value: int) -> ShownNumber:
            return number(value, more=self.more_held, url=listed(pages.jobs, name, state))

        return QueueRow(
            name=name,
            due=waiting("due", backlog.due),
            scheduled=waiting("scheduled", backlog.scheduled, more=unread),
            retrying=waiting("retrying", backlog.retrying, more=unread),
            waiting=in_words(_("%s waiting"), waiting("waiting", backlog.waiting, more=unread)),
            parked=in_words(_("%s blocked"), waiting("blocked", backlog.parked, more=unread)),
            running=holding("running", running),
            expired=holding("expired", expired),
            dead=number(dead, self.most_letters, url=listed(pages.letters, name)),
            seen=number(seen, self.most_letters).text if seen else "",
            unseen=dead > seen or dead > self.most_letters,
            oldest=display.moment(oldest, duration(self.now - clock.to_instant(oldest))) if oldest else "",
            arrived=number(arrived, more=self.more_arrived).text,
            ended=number(flow.ended(1)).text,
            plot=plot(name, flow),
            run=durations(flow.run.p50, flow.run.p95),
            wait=durations(flow.wait.p50, flow.wait.p95),
            pause=self.paused.get(name),
            pause_url=pages.pause and f"{pages.pause}?{urlencode({'queue_name': name})}",
            unserved=name not in self.paused and self.unserved(name, backlog),
            used=any(
                (backlog.due, backlog.later, running, expired, dead, arrived, flow is not QUIET, name in self.paused)
            ),
            fill=self.fills.get(name),
            limits=limits_of(options_for(name, self.database).policy(name)),
        )

    def unserved(self, name: str, backlog: Backlog) -> bool:
        """Return whether a worker should take what is due here, and none does; raw payloads need a handler for it."""
        handled = options_for(name, self.database).policy(name).handler
        return bool(backlog.due if handled else backlog.due - backlog.payloads) and not takes(self.workers, name)


def number(value: int, most: int | None = None, *, more: bool = False, url: str | None = None) -> ShownNumber:
    """Return a number for people. ``most``: above it a number is not exact; ``more``: there may be more."""
    if most is not None and value > most:
        value, more = most, True
    return ShownNumber(value, display.number(value, more=more), url)


def in_words(words: str, count: ShownNumber) -> ShownNumber:
    """Return a number whose text says what it counts."""
    return count._replace(text=words % count.text)


def listed(page: str | None, queue_name: str, state: str = "") -> str | None:
    """Return the address of the jobs of a queue in one state, or of its dead letters."""
    if page is None:
        return None
    return f"{page}?{urlencode(({'state': state} if state else {}) | {'queue_name': queue_name})}"


def durations(*percentiles: int | None) -> list[str]:
    """Return durations, none if nothing was measured."""
    return [duration(each) for each in percentiles if each is not None]


def plot(queue_name: str, flow: Flow) -> SafeString:
    """Return the plot of what was processed and what failed of it, a minute."""
    failed = [retried + dead for retried, dead in zip(flow.failed, flow.dead, strict=True)]
    done = [succeeded + bad for succeeded, bad in zip(flow.succeeded, failed, strict=True)]
    label = _(
        "Attempts in “%(queue)s” a minute, over the last 3 hours: %(highest)s at most, %(total)s in all, of which "
        "%(failed)s failed."
    ) % {
        "queue": queue_name,
        "highest": number(max(done, default=0)).text,
        "total": number(sum(done)).text,
        "failed": number(sum(failed)).text,
    }
    return sparkline(done, label, bars=failed)


def limits_of(policy: Policy) -> str:
    """Return the limits of a queue; "" for none."""
    found = [_("%(most)s at once") % {"most": display.number(policy.concurrency)}] if policy.concurrency else []
    return ", ".join([*found, *([policy.rate] if policy.rate else [])])
