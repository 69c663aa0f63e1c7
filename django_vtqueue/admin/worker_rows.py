"""Workers and what they run at the moment, as the overview and the page of a worker show them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from django.contrib.admin.utils import quote
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy, ngettext

from ..core import clock
from ..core.humanize import duration
from ..inspection.overview import Held
from ..models import Job, WorkerProcess
from ..queue.workers import SILENCE
from . import display
from .links import address, link

WORDS = {
    "alive": gettext_lazy("alive"),
    "quiet": gettext_lazy("quiet"),
    "stopping": gettext_lazy("stopping"),
    "gone": gettext_lazy("gone"),
    "died": gettext_lazy("died"),
}
COLOURS = {"alive": "running", "quiet": "retrying", "stopping": "retrying", "gone": "expired", "died": "expired"}
SAMPLE = 5  # jobs of a dead worker that are shown in a sentence
ASKED = {"quiet": "quiet", "stop": "stopping"}


@dataclass
class RunningJob:
    """A job that a worker runs."""

    task: SafeString | str
    url: str | None
    queue_name: str
    age: SafeString | str
    expired: bool
    cancelled: bool
    progress: float | None
    progress_text: str

    @property
    def percent(self) -> int:
        return round(100 * (self.progress or 0))


@dataclass
class Busy:
    """A worker and its jobs. ``used``: slots; ``ahead``: jobs that it has claimed ahead of a free one."""

    worker: WorkerProcess
    word: str
    heartbeat: SafeString | str
    memory: str
    url: str | None
    used: int = 0
    ahead: int = 0
    jobs: list[RunningJob] = field(default_factory=list)
    ending: SafeString | str = ""

    @property
    def name(self) -> str:
        return f"{self.worker.host}:{self.worker.pid}"

    @property
    def queues(self) -> list[str]:
        return [name for name in self.worker.queues.split(",") if name]

    def serves(self, queue_name: str) -> bool:
        """Return whether it would take jobs of a queue, were it not quiet or gone."""
        return not self.queues or queue_name in self.queues

    @property
    def badge(self) -> SafeString:
        return badge(self.word)

    @property
    def gone(self) -> bool:
        return self.word == "gone"

    @property
    def over(self) -> bool:
        """Whether nothing is to be expected of it any more."""
        return self.word in ("gone", "died")

    @property
    def more(self) -> int:
        """How many of its jobs are not listed."""
        return max(self.used - len(self.jobs), 0)


def word_of(worker: WorkerProcess, now: int) -> str:
    """Return the word for what a worker does: alive, quiet, stopping, gone, died."""
    if worker.died_at is not None:
        return "died"
    silent = abs(now - clock.to_instant(worker.heartbeat_at))  # ahead: by a clock that was wrong
    return ASKED.get(worker.asked_to, "alive") if silent < clock.microseconds(SILENCE) else "gone"


def badge(word: str) -> SafeString:
    return format_html('<span class="vtq-word vtq-{}">{}</span>', COLOURS[word], WORDS[word])


def heartbeat(worker: WorkerProcess, now: int) -> SafeString | str:
    """Return how long ago a worker was heard of."""
    silent = now - clock.to_instant(worker.heartbeat_at)
    return display.moment(worker.heartbeat_at, gettext("%s ago") % duration(max(silent, 0)))


def busy(workers: Iterable[WorkerProcess], held: Held, jobs: Iterable[Job], now: int, site: str) -> list[Busy]:
    """Return workers with what they do; ``site``: the name of the admin site to link to."""
    rows = {
        each.pk: Busy(
            worker=each,
            word=word_of(each, now),
            heartbeat=heartbeat(each, now),
            memory=memory(each),
            url=address(site, "workerprocess_change", quote(each.pk)),
            ending=ending(each, site) if each.died_at else "",
        )
        for each in workers
    }
    for (worker_id, word), number in held.workers.items():
        if row := rows.get(worker_id):
            row.used += number if word == "begun" else 0
            row.ahead += number if word == "ahead" else 0
    for job in jobs:
        rows[job.worker_id].jobs.append(running_job(job, now, site))
    return list(rows.values())


def ending(worker: WorkerProcess, site: str, most: int = SAMPLE) -> SafeString | str:
    """Return when a worker died and what became of its jobs, with links to ``most`` of them."""
    died = display.moment(worker.died_at)
    if not worker.went_on + worker.buried:
        return format_html(gettext("died at {}; it held no job"), died)
    parts = []
    if worker.went_on:
        parts.append(ngettext("%d job went on", "%d jobs went on", worker.went_on) % worker.went_on)
    if worker.buried:
        parts.append(ngettext("%d job died", "%d jobs died", worker.buried) % worker.buried)
    ids = worker.left.split()[:most]
    shown = ((link(site, "job_change", f"…{job_id[-8:]}", job_id),) for job_id in ids)
    links = format_html_join(" ", '<span class="vtq-id">{}</span>', shown)
    more = " …" if worker.went_on + worker.buried > len(ids) else ""
    return format_html(gettext("died at {}; {}: {}"), died, ", ".join(parts), format_html("{}{}", links, more))


def running_job(job: Job, now: int, site: str) -> RunningJob:
    started = clock.from_instant(now) if job.started_at is None else job.started_at
    return RunningJob(
        task=display.task_name(job.task_path),
        url=address(site, "job_change", job.pk),
        queue_name=job.queue_name,
        age=display.moment(started, duration(max(now - clock.to_instant(started), 0))),
        expired=clock.to_instant(job.visible_at) <= now,
        cancelled=job.cancelled_at is not None,
        progress=None if job.progress is None else min(max(job.progress, 0.0), 1.0),
        progress_text=job.progress_text or "",
    )


def takes(workers: Sequence[Busy], queue_name: str) -> bool:
    """Return whether one of these workers takes jobs of a queue."""
    return any(row.word == "alive" and row.serves(queue_name) for row in workers)


def memory(worker: WorkerProcess) -> str:
    """Return what a worker occupies."""
    if worker.memory is None:
        return "-"
    return gettext("%s MB") % round(worker.memory / 1_000_000)
