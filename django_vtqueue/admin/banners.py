"""Banners on top of the overview: faults, and what was stopped on purpose.

A screen reader says a banner when it changes: its sentences hold moments, not ages, which would change all the time.
"""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..core import clock, counts
from ..core.failures import class_path
from ..core.humanize import time_of
from ..core.ids import slices
from ..core.steps import GATHER
from ..exceptions import Cancelled
from ..inspection.state import waits_of
from ..inspection.trees import lean
from ..models import DeadLetter, Job, QueueState
from ..queue.pauses import sentence
from ..queue.schema import APP
from ..queue.workers import start_command
from . import display
from .links import Pages
from .queue_rows import QueueRow
from .workers import Busy

LETTERS = 1000  # dead letters that are looked at
CANCELLED = class_path(Cancelled)
MOST_SHOWN = 5  # banners of paused queues, and names in a sentence


@dataclass
class Banner:
    """``level``: error or warning; ``sentences``: what is wrong; ``command``: what to type; ``resume``: a queue."""

    level: str
    sentences: Sequence[str]
    command: str = ""
    resume: str = ""


def banners(database: str, rows: Sequence[QueueRow], workers: Sequence[Busy]) -> list[Banner]:
    """Return the banners of these queues and workers, the worst first."""
    unserved = [row.name for row in rows if row.unserved]
    silent = [row for row in workers if row.word == "gone"]
    pauses = [row.pause for row in rows if row.pause]
    found = [unserved_queues(database, unserved, workers)] if unserved else []
    died = [row for row in workers if row.word == "died"]
    died.sort(key=lambda row: clock.to_instant(row.worker.died_at or row.worker.heartbeat_at), reverse=True)
    full = [row.name for row in rows if row.fill and row.fill.full]
    found += [full_queues(full)] if full else []
    found += [lost(silent)] if silent else []
    found += [dead(died)] if died else []
    found += [paused(pause) for pause in pauses[:MOST_SHOWN]]
    if (left := len(pauses) - MOST_SHOWN) > 0:
        found.append(
            Banner("warning", [ngettext("%d more queue is paused.", "%d more queues are paused.", left) % left])
        )
    return found


def unmigrated(database: str) -> Banner:
    """Return the banner of tables that are missing or of another version, with the command that makes them."""
    words = ["python", "manage.py", "migrate", APP, *(["--database", database] if database != "default" else [])]
    return Banner("error", [_("The tables of the queue are missing, or of another version:")], shlex.join(words))


def listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MOST_SHOWN])
    if (left := len(names) - MOST_SHOWN) <= 0:
        return shown
    return ngettext("%(names)s and %(n)d more", "%(names)s and %(n)d more", left) % {"names": shown, "n": left}


def unserved_queues(database: str, queue_names: Sequence[str], workers: Sequence[Busy]) -> Banner:
    """Return the banner of queues in which jobs are due and that no live worker serves."""
    sentences = [
        ngettext(
            "Jobs are due in a queue that no live worker serves: %s.",
            "Jobs are due in queues that no live worker serves: %s.",
            len(queue_names),
        )
        % listed(queue_names)
    ]
    idle = [row.name for row in workers if row.word in ("quiet", "stopping") and any(map(row.serves, queue_names))]
    if idle:
        sentences.append(_("Asked to claim nothing: %s.") % listed(idle))
    sentences.append(_("Start a worker:"))
    some = any(row.word == "alive" for row in workers)
    return Banner("error", sentences, start_command(database, queue_names, only=some))


def full_queues(queue_names: Sequence[str]) -> Banner:
    """Return the banner of queues that have reached their ``max_depth``."""
    text = ngettext("A queue is full: %s.", "Queues are full: %s.", len(queue_names)) % listed(queue_names)
    return Banner("warning", [text, _("New jobs there are refused, or wait, until workers have made room.")])


def lost(rows: Sequence[Busy]) -> Banner:
    """Return the banner of workers that fell silent, and since when."""
    shown = [
        _("%(worker)s since %(time)s") % {"worker": row.name, "time": time_of(row.worker.heartbeat_at)} for row in rows
    ]
    first = ngettext("A worker has fallen silent: %s.", "Workers have fallen silent: %s.", len(rows)) % listed(shown)
    return Banner("warning", [first, _("Jobs that are held there run again when their leases end.")])


def dead(rows: Sequence[Busy]) -> Banner:
    """Return the banner of workers that died within the last hour, the latest first, and of their jobs."""
    sentences: list[str] = [
        format_html('<a href="{}">{}</a> {}.', row.url, row.name, row.ending) for row in rows[:MOST_SHOWN]
    ]
    if (left := len(rows) - MOST_SHOWN) > 0:
        sentences.append(ngettext("%d more worker died.", "%d more workers died.", left) % left)
    return Banner("warning", sentences)


def failing(database: str, now: int, pages: Pages) -> list[Banner]:
    """Return the banners of what has died lately and is not reviewed, the most frequent failures first.

    What people have cancelled has not failed, and a parent judges the failures of its children, see judged_until. The
    latest letters are looked at, no more than LETTERS of them.
    """
    letters = DeadLetter.objects.using(database).filter(died_at__gt=now - counts.HOUR, died_at__lte=now)
    columns = letters.order_by("-died_at", "-id").values_list(
        "died_at", "task_path", "queue_name", "exception_class", "reviewed_at", "parent_id"
    )
    read = list(columns[:LETTERS])
    failed = [row for row in read if row[4] is None and row[3] != CANCELLED]
    judged = judged_until(database, {row[5] for row in failed if row[5]})
    died = [row[:4] for row in failed if row[5] is None or row[0] > judged.get(row[5], row[0])]
    recent = [row for row in died if clock.to_instant(row[0]) > now - counts.MINUTE]
    # More than were looked at: then at least so many in this time.
    more = len(read) == LETTERS
    found = [failures("error", _("in the last minute"), recent, pages, more=more and len(recent) == len(died))]
    covered = {row[1:] for row in recent}
    older = [row for row in died if row[1:] not in covered]
    found.append(failures("warning", _("in the last hour"), older, pages, more=more))
    return [banner for banner in found if banner.sentences]


def judged_until(database: str, parents: set[UUID]) -> dict[UUID, datetime]:
    """Return until when these parents have judged the failures of their children themselves, for those that do not.

    A dead parent has judged no failure. A parent that waits has not judged these yet. A parent that has ended does not
    see later failures.
    """
    found: dict[UUID, datetime] = dict.fromkeys(parents & dead_ones(database, parents), clock.FIRST)
    for some in slices(list(parents)):
        for job in lean(Job, database).filter(pk__in=some):
            if job.finished_at:
                found[job.pk] = job.finished_at
            elif (waits := waits_of(job)) and waits.kind == GATHER:
                found[job.pk] = clock.from_instant(waits.since)  # what died before is of another gather
    return found


def dead_ones(database: str, ids: set[UUID]) -> set[UUID]:
    letters = DeadLetter.objects.using(database)
    return {pk for some in slices(list(ids)) for pk in letters.filter(pk__in=some).values_list("pk", flat=True)}


def failures(level: str, when: str, died: Sequence[Sequence[Any]], pages: Pages, *, more: bool) -> Banner:
    """Return a banner of deaths: a sentence for each task (or queue, of raw payloads) and exception."""
    kinds = Counter(tuple(row[1:]) for row in died)
    last = {tuple(row[1:]): row[0] for row in reversed(died)}
    sentences: list[str] = []
    for kind, number in kinds.most_common(MOST_SHOWN):
        task, queue_name, exception = kind
        text = ngettext(
            "{} job of {} died {}: {}, the last at {}.", "{} jobs of {} died {}: {}, the last at {}.", number
        )
        name = display.task_name(task) if task else queue_name
        query = {"queue_name": queue_name, "task_path": task, "exception_class": exception}
        groups = f"{pages.groups}?{urlencode({key: value for key, value in query.items() if value})}"
        link = format_html('<a href="{}">{}</a>', groups, exception.rpartition(".")[2])
        shown = display.number(number, more=more)
        sentences.append(format_html(text, shown, name, when, link, display.moment(last[kind])))
    if (left := len(kinds) - MOST_SHOWN) > 0:
        sentences.append(ngettext("%d more failure.", "%d more failures.", left) % left)
    return Banner(level, sentences)


def paused(pause: QueueState) -> Banner:
    """Return the banner of a paused queue: by whom, why, until when, and since when."""
    values = {"queue": display.cut(pause.queue_name), "paused": sentence(pause)}
    began = _("It began at %s.") % time_of(pause.paused_at)
    return Banner("warning", [_("“%(queue)s” is %(paused)s.") % values, began], resume=pause.queue_name)
