"""Lists of jobs and dead letters. A page goes on behind a key, and reads a bounded number of rows.

A list is a range of an index: first the key of the last row that may be read is found in the index alone, then the rows
up to it are filtered, until the page is full.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Case, ExpressionWrapper, F, Q, QuerySet, TextField, Value, When
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce
from django.db.models.lookups import Exact

from ..core import states
from ..core.clock import LAST, to_instant
from ..core.ids import digits_in, first_id, id_end, parse_id
from ..core.job import Handle
from ..core.unique import is_encodable
from ..engines import engine_for
from ..engines.distinct import RAW_AS_INDEXED, by_key, count_by
from ..fields.constraints import in_state
from ..models import RESERVED, Job
from ..models.jobs import ASIDE, BY_WORKER, GIVEN_BACK, ready_jobs
from ..requeueing import PATH
from ..tasks.signatures import masks_of, searchable
from .overview import levels

ALL = Q()
RowKey = list[int | str]  # where a row stands in the order of its list; addresses bring it back, or anything else
LARGEST = 2**63  # of a number in a key
IDS = 200_000  # that are looked at for one of which the end is given
TEXT = ExpressionWrapper(F("payload"), TextField())  # a payload as it is stored
# PostgreSQL would make ``task_path <> ''`` of a bare value, which no index has.
RAW_IS = {raw: RawSQL("(SELECT %s)", (raw,)) for raw in (False, True)}


@dataclass(frozen=True)
class ListQuery:
    """Which rows; None and "" ask for nothing. ``since`` and ``until``: instants, of the enqueueing or the death."""

    word: str = ""  # of states.WORDS
    queue_name: str | None = None
    task_path: str | None = None
    worker_id: str | None = None
    exception_class: str | None = None
    fingerprint: str | None = None
    reviewed: bool | None = None
    since: int | None = None
    until: int | None = None
    text: str = ""


@dataclass
class Page:
    """Rows of a list; behind ``next_key`` the next page begins. ``looked_to``: that, since so many were looked at."""

    rows: list[Any] = field(default_factory=list)
    next_key: RowKey | None = None
    looked_to: RowKey | None = None


@dataclass(frozen=True)
class ListRange:
    """A part of a list that is one range of an index; ``order``: of its rows; ``level``: what its keys begin with.

    ``last``: where the range ends, unless it ends with a key: of two bounds SQLite may take the wider one.
    """

    rows: QuerySet[Any]
    order: tuple[str, ...]
    level: tuple[int, ...] = ()
    last: Q = ALL

    @property
    def columns(self) -> list[str]:
        return [name.removeprefix("-") for name in self.order]

    @property
    def ordered(self) -> QuerySet[Any]:
        return self.rows.filter(self.last).order_by(*self.order)

    def key(self, values: Iterable[Any]) -> RowKey:
        """Return where a row with these values in the columns stands in the list."""
        return [*self.level, *map(stored, values)]

    def behind(self, key: RowKey) -> "ListRange":
        """Return what comes behind a key."""
        return replace(self, rows=self.rows.filter(beyond(self.order, key[len(self.level) :])))

    def up_to(self, key: RowKey) -> "ListRange":
        """Return what ends with the row of a key."""
        return replace(self, rows=self.rows.filter(beyond(self.order, key[len(self.level) :], back=True)), last=ALL)


def stored(value: Any) -> int | str:
    """Return the value of a column as it is in a key."""
    if isinstance(value, datetime):
        return to_instant(value)
    return value.hex if isinstance(value, UUID) else value


def beyond(order: Sequence[str], key: RowKey, *, back: bool = False) -> Q:
    """Return the condition for what comes behind a key in this order; ``back``: for what comes before, and itself."""
    (column, *columns), (value, *values) = order, key
    name = column.removeprefix("-")
    comparison = "lt" if column.startswith("-") != back else "gt"
    if not columns:
        return Q(**{f"{name}__{comparison}{'e' if back else ''}": value})
    tied = Q(**{name: value}) & beyond(columns, values, back=back)
    # The first one twice: of the second, which says it all, no index makes a range.
    return Q(**{f"{name}__{comparison}e": value}) & (Q(**{f"{name}__{comparison}": value}) | tied)


def checked(key: Any, *kinds: Any) -> RowKey | None:
    """Return a key if it has values of these kinds; None, which is the beginning of a list, if it has not."""
    if not isinstance(key, list) or len(key) != len(kinds):
        return None
    return key if all(fits(value, kind) for value, kind in zip(key, kinds, strict=True)) else None


def fits(value: Any, kind: Any) -> bool:
    """Return whether a value is of a kind, and one that the database can be asked for."""
    if kind is UUID:
        return parse_id(value) is not None
    if kind is bool:
        return isinstance(value, bool)
    if isinstance(value, str):
        text = "\0" not in value and is_encodable(value)
        return (kind is str and text) or (kind is Handle and parse_id(value) is not None)
    return isinstance(value, int) and kind in (int, Handle) and abs(value) < LARGEST


# -- jobs --------------------------------------------------------------------------------------------------------------

TIMED_WORDS, HELD_WORDS = ("scheduled", "retrying"), ("running", "expired")


def list_jobs(rows: QuerySet[Any], query: ListQuery, after: Any, *, size: int, limit: int, now: int) -> Page:
    """Look at the next ``size`` jobs behind a key (None: the first ones); return up to ``limit`` of the query.

    The newest come first; due ones are in the order of the claim, later ones in that of their time, the rest by keys.
    """
    rows = rows.annotate(waits=engine_for(rows.db).waits())
    return read(parts(rows, query, after, now), wanted_jobs(query, now), query.text, size, limit)


def count_jobs(rows: QuerySet[Any], query: ListQuery, size: int, now: int) -> dict[str, tuple[int, bool]]:
    """Return for each word, whatever the query's is, how many of ``size`` jobs have it, and if there may be more."""
    counts = dict[str, tuple[int, bool]]()
    for words in (("due",), TIMED_WORDS, ("waiting",), ("blocked",), HELD_WORDS, ("done",)):
        conditions = {word: wanted_jobs(replace(query, word=word), now) for word in words}
        shown = Case(*(When(wanted, then=Value(word)) for word, wanted in conditions.items()), default=Value(""))
        found: Counter[tuple[str]] = Counter()
        for part in parts(rows, replace(query, word=words[0]), None, now):
            found += count_by(part.ordered.values(word=shown)[: size - found.total()], "word")
            if found.total() == size:
                break
        counts |= {word: (found[word,], found.total() == size) for word in words}
    return counts


def parts(rows: QuerySet[Any], query: ListQuery, after: Any, now: int) -> Iterator[ListRange]:
    """Yield the parts of the list that has the jobs of a query, from a key on."""
    handled = rows.annotate(raw=RAW_AS_INDEXED, handle=engine_for(rows.db).handle())
    if query.word == "due":
        yield from due_parts(handled, query, after, now)
    elif query.word in (*TIMED_WORDS, "waiting"):
        last = ALL if query.word == "waiting" else Q(wake_at__lt=LAST)
        yield from aside_parts(handled.filter(wake_at__gt=now), query, after, last)
    elif query.word == "blocked":
        order = ("concurrency_key", "ordered", "queue_name", "-priority", "due_at", "handle")
        part = ListRange(by_key(handled.filter(in_state(states.BLOCKED)), "vtqueue_job_blocked"), order)
        yield part.behind(key) if (key := checked(after, str, bool, str, int, int, Handle)) else part
    elif query.word in HELD_WORDS:
        part = ListRange(handled.filter(BY_WORKER, equal(query, ("worker_id",))), ("worker_id", "handle"))
        yield part.behind(key) if (key := checked(after, str, Handle)) else part
    else:
        part = ListRange(rows.filter(enqueued(query)), ("-pk",))
        yield part.behind(key) if (key := checked(after, UUID)) else part


def due_parts(rows: QuerySet[Any], query: ListQuery, after: Any, now: int) -> Iterator[ListRange]:
    """Yield what is due: what is in the line, then what the next claim puts there: it woke, or was given back."""
    last, woken = checked(after, str, int, int, Handle), checked(after, int, int, Handle)
    if last is None:
        if woken is None:
            yield from ready_parts(rows, query, checked(after, int, int, int, Handle))
        yield from aside_parts(rows.filter(wake_at__lte=now), query, woken)
    rows = rows.filter(GIVEN_BACK, equal(query, ("queue_name",)), lease_until__lte=now)
    part = ListRange(rows, ("queue_name", "raw", "lease_until", "handle"))
    yield part.behind(last) if last else part


def ready_parts(rows: QuerySet[Any], query: ListQuery, after: RowKey | None) -> Iterator[ListRange]:
    """Yield READY jobs, a part for each priority of tasks and of raw payloads, in the order of the claim."""
    of_queue = equal(query, ("queue_name",))
    first, _ = levels(Job.objects.using(rows.db).filter(ready_jobs(of_queue)))
    for priority, raw in sorted(first.values_list("priority", "raw"), key=lambda level: (-level[0], level[1])):
        level = rows.filter(ready_jobs(of_queue & Q(priority=priority)), raw=RAW_IS[raw])
        part = ListRange(level, ("due_at", "handle"), (priority, int(raw)))
        if after is None or (-priority, raw) > (-int(after[0]), after[1]):
            yield part
        elif part.level == tuple(after[:2]):
            yield part.behind(after)


def aside_parts(rows: QuerySet[Any], query: ListQuery, after: Any, last: Q = ALL) -> Iterator[ListRange]:
    """Yield jobs that are not in the line, tasks before raw payloads, in the order in which they wake."""
    key, rows = checked(after, int, int, Handle), rows.filter(ASIDE, equal(query, ("queue_name",)))
    for raw in RAW_IS:
        part = ListRange(rows.filter(raw=RAW_IS[raw]), ("wake_at", "handle"), (int(raw),), last)
        if key is None or raw > int(key[0]):
            yield part
        elif raw == key[0]:
            yield part.behind(key)


def wanted_jobs(query: ListQuery, now: int) -> Q:
    """Return the condition for the jobs of a query, as far as their part of the list does not say it."""
    words = {
        "scheduled": Q(state=states.SCHEDULED, attempts=0),
        "retrying": Q(state=states.SCHEDULED, attempts__gt=0),
        "waiting": Q(state=states.WAITING),
        "running": Q(lease_until__gt=now),
        "expired": Q(lease_until__lte=now),
        "done": Q(finished_at__isnull=False),
    }
    columns = ["queue_name", "task_path", "worker_id"]
    own = Q()
    if query.word == "blocked" and query.queue_name is not None:  # no index of queues helps: it is not in this order
        columns.remove("queue_name")
        own = Q(Exact(Coalesce("queue_name", Value("")), query.queue_name))
    # The jobs by which a requeue goes on, and the rows of reserved queues, are in no list.
    asked = own & enqueued(query) & equal(query, columns) & words.get(query.word, Q())
    return ~Q(task_path=PATH) & ~RESERVED & asked


def enqueued(query: ListQuery) -> Q:
    """Return the condition for the time of the enqueueing, which an id begins with."""
    found = Q() if query.since is None else Q(pk__gte=UUID(first_id(query.since)))
    return found if query.until is None else found & Q(pk__lt=UUID(first_id(query.until)))


def equal(query: ListQuery, columns: Sequence[str]) -> Q:
    given = {column: getattr(query, column) for column in columns}
    return Q(**{column: value for column, value in given.items() if value is not None})


# -- dead letters ------------------------------------------------------------------------------------------------------

# Columns that an index begins with, before the time of the death.
GROUPED = (("fingerprint", "task_path"), ("exception_class",), ("task_path",), ("queue_name",))


def list_letters(rows: QuerySet[Any], query: ListQuery, after: Any, *, size: int, limit: int) -> Page:
    """Look at the next ``size`` dead letters, the newest death first; see list_jobs."""
    given = (columns for columns in GROUPED if all(getattr(query, column) is not None for column in columns))
    rows = rows.filter(equal(query, next(given, ())))
    if query.since is not None:
        rows = rows.filter(died_at__gte=query.since)
    if query.until is not None:
        rows = rows.filter(died_at__lt=query.until)
    part = ListRange(rows, ("-died_at", "-pk"))
    part = part.behind(key) if (key := checked(after, int, UUID)) else part
    return read([part], wanted_letters(query), query.text, size, limit)


def wanted_letters(query: ListQuery) -> Q:
    """Return the condition for the dead letters of a query, but for the time."""
    wanted = equal(query, ("queue_name", "task_path", "worker_id", "exception_class", "fingerprint"))
    if query.reviewed is not None:
        wanted &= Q(reviewed_at__isnull=not query.reviewed)
    return wanted


# -- both --------------------------------------------------------------------------------------------------------------


def list_newest(
    jobs: QuerySet[Any], letters: QuerySet[Any], query: ListQuery, *, size: int, limit: int, now: int
) -> Page:
    """Look at the ``size`` newest jobs and dead letters; return up to ``limit`` of the query, the newest first.

    ``since`` and ``until`` are of the enqueueing for both. There is no next page.
    """
    dead = ListRange(letters.filter(enqueued(query)), ("-pk",))
    pages = [
        list_jobs(jobs, query, None, size=size, limit=limit, now=now),
        read([dead], wanted_letters(query), query.text, size, limit),
    ]
    looked_to = max((page.looked_to for page in pages if page.looked_to), default=None)
    rows = sorted((row for page in pages for row in page.rows), key=lambda row: row.pk, reverse=True)
    return Page([row for row in rows if looked_to is None or [row.pk.hex] >= looked_to][:limit], looked_to=looked_to)


def read(parts: Iterable[ListRange], wanted: Q, text: str, size: int, limit: int) -> Page:
    """Return what is wanted of the first ``size`` rows of a list."""
    page = Page()
    key: RowKey | None = None
    looked: QuerySet[Any] | None = None
    for part in parts:
        if looked is not None:
            size -= min(looked.count(), size - 1)  # others may have been published meanwhile
        looked = part.ordered.values_list(*part.columns)[:size]  # in the index alone
        end = next(map(part.key, looked[size - 1 :]), None)
        rows = (part.up_to(end) if end else part).ordered.filter(wanted)
        for row in search(rows, text) if text else rows[: limit + 1 - len(page.rows)]:
            if len(page.rows) == limit:
                page.next_key = key
                return page
            page.rows.append(row)
            key = part.key(getattr(row, column) for column in part.columns)
        if end:
            page.next_key = page.looked_to = end
            return page
    return page


def search(rows: QuerySet[Any], text: str) -> Iterator[Any]:
    """Yield the rows that show a text: a search finds nothing in a payload that its mask hides."""
    columns = [column for column in ("task_path", "exception_class", "message") if hasattr(rows.model, column)]
    plain = Q(*(Q(**{f"{column}__icontains": text}) for column in columns), _connector=Q.OR)
    if digits := digits_in(text, shortest=4):
        plain |= Q(pk__endswith=id_end(digits))
    # Of a row that shows it elsewhere the payload, which may be large, is left in the database.
    payload = Case(When(plain, then=None), default=TEXT, output_field=TextField())
    found = rows.alias(text=TEXT).annotate(searched=payload).filter(plain | Q(text__icontains=in_json(text)))
    mask = masks_of(rows.db)
    for row in found.iterator(chunk_size=100):
        own = mask(row.task_path, row.queue_name)
        if row.searched is None or in_json(text).lower() in searchable(row.searched, own).lower():
            yield row


def in_json(text: str) -> str:
    """Return a text as it stands within a stored payload."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def ending(rows: QuerySet[Any], digits: str, limit: int) -> list[Any]:
    """Return up to ``limit`` of these rows whose ids end so, the newest first, out of the newest IDS."""
    newest = rows.order_by("-pk")
    floor = newest.values_list("pk", flat=True)[IDS : IDS + 1]
    return list(newest.filter(pk__gt=floor[0] if floor else UUID(int=0), pk__endswith=id_end(digits))[:limit])
