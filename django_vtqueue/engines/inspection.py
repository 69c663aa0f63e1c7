"""The contract of a database for pages and commands: numbers, lists and groups, each found by an index.

None of it is needed to work the queue, so none of it may hold that up: a method looks at no more rows than it is told.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..core.counts import Chart
from ..core.job import LetterGroup

# -- values: a list of jobs or of dead letters -------------------------------------------------------------------------
#
# A list is read by key, in slices.

STEPS = "django_vtqueue.requeueing.step"  # the task of a requeue's own jobs, which no list shows
Key = list[int | str]  # where a row stands in the order of its list; addresses bring it back, or anything else


@dataclass(frozen=True)
class ListQuery:
    """Which rows; None and "" ask for nothing. ``since`` and ``until``: instants, of the enqueueing or of the death."""

    word: str = ""  # of states.WORDS
    queue_name: str | None = None
    task_path: str | None = None
    worker_id: str | None = None
    exception_class: str | None = None
    fingerprint: str | None = None
    acknowledged: bool | None = None
    since: int | None = None
    until: int | None = None
    text: str = ""


class Row(NamedTuple):
    """A row of a slice; without an id it is the last one that was looked at, and there may be more beyond.

    ``payload`` and ``queue_name``: where the query has a text, of a row in which nothing but the payload may have it.
    """

    id: str | None
    key: Key
    task_path: str | None = None
    payload: str | None = None
    queue_name: str | None = None


Matches = Callable[[Row], bool]


class Count(NamedTuple):
    """How many rows there are; ``more``: at least, for not all were looked at."""

    rows: int
    more: bool


def in_json(text: str) -> str:
    """Return a text as it stands within a stored payload."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def key_of(key: Key | None, *kinds: type) -> Key | None:
    """Return a key if it has what these kinds say; None, which is the beginning of a list, if it has not."""
    matches = key and len(key) == len(kinds) and all(map(isinstance, key, kinds))
    return key if matches else None


# -- values: the overview ----------------------------------------------------------------------------------------------
#
# Instants in microseconds.


class Backlog(NamedTuple):
    """The tasks, or raw payloads, that wait in a queue."""

    queue_name: str
    raw: bool
    due: int
    later: int  # scheduled, or retrying
    oldest: int | None  # since when the first of the due ones is
    read: int  # of the later ones, those that were looked at
    retrying: int  # of these


class HeldCount(NamedTuple):
    """What one worker holds of one queue."""

    queue_name: str
    worker_id: str
    running: int
    expired: int
    begun: int  # of the running ones; the others were claimed ahead of a free slot


class Running(NamedTuple):
    """A job that a worker has begun."""

    id: str
    queue_name: str
    task_path: str
    worker_id: str
    started_at: int | None
    lease_ends_at: int
    progress: float | None
    progress_text: str | None
    cancelled: bool


class Inspection(ABC):
    """What pages and commands read of the queue on one database alias. No worker needs it."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    @abstractmethod
    def queue_names(self) -> list[str]:
        """Return the names of the queues that have unfinished jobs, sorted; no walk over the jobs."""

    @abstractmethod
    def sizes(self, limit: int, most: int) -> dict[str, int]:
        """Return the first ``limit`` queues with unfinished jobs, and how many of them, counted up to ``most``."""

    @abstractmethod
    def backlogs(self, queue_names: Sequence[str], now: int, most: int) -> list[Backlog]:
        """Return what waits in these queues, due and for later, each number counted up to ``most``.

        Which of the later ones are retries is told of fewer of them.
        """

    @abstractmethod
    def held(self, most: int, now: int) -> list[HeldCount]:
        """Return how many jobs each worker holds of each queue; no more than ``most`` rows are looked at."""

    @abstractmethod
    def running(self, worker_ids: Sequence[str], each: int) -> list[Running]:
        """Return up to ``each`` of the jobs that each of these workers has begun."""

    @abstractmethod
    def active(self, first: int, last: int, limit: int) -> dict[str, int]:
        """Return the queues that did something in the minutes from ``first`` to ``last``, and in how many of them.

        No more than ``limit`` minutes of queues are looked at, the latest first.
        """

    @abstractmethod
    def flow(self, queue_names: Sequence[str], first: int, last: int) -> list[tuple[str, int, int, int, int]]:
        """Return what these queues did in the minutes from ``first`` to ``last``: the queue, the minute, how many
        attempts succeeded, failed, and were the last. Where nothing was done there is no row.
        """

    @abstractmethod
    def times(self, queue_names: Sequence[str], first: int, last: int, each: int) -> list[tuple[str, str, str]]:
        """Return the latest histograms of these minutes as they are stored, up to ``each`` of a queue: the queue, how
        long attempts ran, and how long they had waited.
        """

    @abstractmethod
    def counts(self, first: int, last: int) -> list[tuple[int, str, int, int, int, str, str]]:
        """Return what workers stored of the minutes from ``first`` to ``last``: the minute, the queue, the numbers of
        Counts, and its histograms as they were stored; without rows with damaged numbers.
        """

    @abstractmethod
    def series(self, chart: Chart) -> list[tuple[int, int, int, int]]:
        """Return, of each slot of a chart that has any, how many attempts succeeded, failed, and were the last."""

    @abstractmethod
    def depths(self, chart: Chart) -> list[tuple[int, int]]:
        """Return how many jobs were due in the queues of a chart, at the most, in each slot that has a measurement."""

    @abstractmethod
    def spans(self, chart: Chart, most: int) -> list[tuple[int, str, str]]:
        """Return up to ``most`` histograms of the slots of a chart as they are stored: of run times, and of waits."""

    @abstractmethod
    def successes(self, tasks: Sequence[str], first: int, *, hourly: bool) -> list[tuple[str, int, int]]:
        """Return how many attempts at these tasks succeeded in each minute (or hour) from ``first`` on."""

    @abstractmethod
    def arrivals(self, since: int, until: int, limit: int) -> dict[str, int]:
        """Return how many jobs and dead letters of each queue have an id made in that time; look at ``limit`` only."""

    @abstractmethod
    def list_jobs(
        self, query: ListQuery, after: Key | None, size: int, limit: int, now: int, matches: Matches
    ) -> list[Row]:
        """Look at the next ``size`` jobs behind a key (None: the first ones); return up to ``limit`` of the query.

        The newest come first; what waits is in the order of the claim, what is held in that of its holders. If all of
        ``size`` were looked at, the last of them is the last one found, without an id. ``matches`` is asked of those in
        which only the payload has the text of the query.
        """

    @abstractmethod
    def count_jobs(self, query: ListQuery, size: int, now: int) -> dict[str, Count]:
        """Return how many jobs have each word of states.WORDS, for which up to ``size`` are looked at.

        The word and the text of the query are ignored.
        """

    @abstractmethod
    def list_letters(self, query: ListQuery, after: Key | None, size: int, limit: int, matches: Matches) -> list[Row]:
        """Look at the next ``size`` dead letters, the newest death first; see list_jobs."""

    @abstractmethod
    def ids_ending(self, table: str, digits: str, size: int, limit: int) -> list[str]:
        """Return the newest ids that end with ``digits``, out of ``size``."""

    @abstractmethod
    def names(self, table: str, column: str, limit: int) -> list[str]:
        """Return the first distinct values of a column that has an index: of all dead letters, of unfinished jobs."""

    @abstractmethod
    def letters(self, limit: int, most: int) -> dict[str, int]:
        """Return the first ``limit`` queues with dead letters, and how many of them, counted up to ``most``."""

    @abstractmethod
    def seen_letters(self, queue_names: Sequence[str], most: int) -> dict[str, int]:
        """Return how many dead letters of each of these queues are acknowledged, counted up to ``most``."""

    @abstractmethod
    def letter_groups(
        self,
        *,
        queue_name: str | None = None,
        task_path: str | None = None,
        exception_class: str | None = None,
        since: int,
        until: int,
        limit: int,
        count: int,
    ) -> list[LetterGroup]:
        """Return the groups of the dead letters that are meant, of the first ``limit`` groups of all.

        No more than ``count`` letters of each are counted.
        """

    @abstractmethod
    def letter_deaths(
        self, groups: Sequence[LetterGroup], slots: int, *, queue_name: str | None, since: int, until: int
    ) -> list[list[int]]:
        """Return, for each group, how many of its letters died in each of ``slots`` equal parts of a time."""

    @abstractmethod
    def letter_tracebacks(self, letter_ids: Sequence[str]) -> dict[str, str]:
        """Return the traceback of each letter's last attempt, as far as there is one."""

    @abstractmethod
    def states_of(self, job_ids: Sequence[str]) -> dict[str, int]:
        """Return how many of these ids have each stored state; FAILED is that of the dead letters among them."""

    @abstractmethod
    def payloads(self, table: str, job_ids: Sequence[str], longest: int) -> dict[str, str | int]:
        """Return the stored payload of each of these rows, or how many characters it has if those are more."""
