"""The tree of a job, its parents and their children, with a plot of when each of them waited and ran."""

from typing import Any

from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ..core import clock
from ..core.clock import to_instant
from ..core.humanize import duration
from ..engines import engine_for
from ..inspection.state import state_word
from ..inspection.trees import Node, tree
from ..models import Job
from ..models.jobs import JobOrLetter
from . import display, plots
from .filters import LABELS
from .links import link

DEEPEST = 8  # steps of the indentation


def family(entry: JobOrLetter, site: str) -> SafeString | str:
    """Return the tree of a job as a table; ``site``: the name of the admin site to link to."""
    with engine_for(str(entry._state.db)).snapshot() as now:
        found = tree(entry)
    if len(found.nodes) < 2:
        return "-"
    begin = min(to_instant(node.entry.enqueued_at) for node in found.nodes)
    end = max(max(ended(node.entry, now) for node in found.nodes), begin + 1)
    rows = [row(node, entry, (begin, end), now, site) for node in found.nodes]
    context = {"rows": rows, "more": found.more, "begin": display.moment(clock.from_instant(begin))}
    return render_to_string("vtqueue/tree.html", context | {"whole": duration(end - begin)})


def row(node: Node, shown: JobOrLetter, scale: tuple[int, int], now: int, site: str) -> dict[str, Any]:
    """Return a job of a tree for the template; ``scale``: the instants between which all of it was."""
    entry, word = node.entry, state_word(node.entry, now)
    said, path, lasted = waited_and_ran(entry, now), display.cut(entry.task_path), took(node, now)
    name: Any = path.rpartition(".")[2] or display.task_name(path)
    if entry.pk != shown.pk:
        name = link(site, f"{entry._meta.model_name}_change", name, entry.pk)
    return {
        "name": format_html("<strong>{}</strong>", name) if entry.pk == shown.pk else name,
        "path": path,
        "indent": "\N{NO-BREAK SPACE}" * 3 * min(node.depth - 1, DEEPEST) + "└ " if node.depth else "",
        "word": display.badge(word, LABELS[word]),
        "took": "-" if lasted is None else duration(lasted),
        "plot": plots.span(*times(entry, now), scale, word, said),
    }


def ended(entry: JobOrLetter, now: int) -> int:
    """Return the instant at which a job has ended; now, if it has not."""
    moment = entry.finished_at if isinstance(entry, Job) else entry.died_at
    return now if moment is None else to_instant(moment)


def times(entry: JobOrLetter, now: int) -> tuple[int, int | None, int]:
    """Return when a job was enqueued, when its last attempt began, unless it waits for another, and when it ended."""
    waits = isinstance(entry, Job) and entry.queued
    started = None if waits or entry.started_at is None else to_instant(entry.started_at)
    return to_instant(entry.enqueued_at), started, ended(entry, now)


def took(node: Node, now: int) -> int | None:
    """Return how long the last attempt of a job took; of a parent, how long all of it did."""
    enqueued, started, end = times(node.entry, now)
    since = enqueued if node.parent else started
    return None if since is None else max(end - since, 0)


def waited_and_ran(entry: JobOrLetter, now: int) -> str:
    """Return what the plot of a job says."""
    enqueued, started, end = times(entry, now)
    if started is None:
        return _("Waited for %s.") % duration(max(end - enqueued, 0))
    values = {"wait": duration(max(started - enqueued, 0)), "run": duration(max(end - started, 0))}
    return _("Last started %(wait)s after it was enqueued, and ran for %(run)s.") % values
