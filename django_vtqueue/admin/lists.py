"""Lists of any length: a page is read by key, looks at so many rows at the most, and says how far it has looked."""

import json
import re
from collections.abc import Callable
from functools import cached_property
from hashlib import blake2b
from typing import Any
from uuid import UUID

from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import get_language, gettext_lazy

from ..core import clock
from ..core.humanize import local, time_of
from ..core.ids import instant_of, parse_id
from ..core.masks import Mask
from ..engines import Engine, engine_for
from ..engines.inspection import Count, Inspection, Key, ListQuery, Row, in_json
from ..tasks.signatures import mask_of, searchable
from . import display
from .base import LeanChangeList
from .filters import Filter
from .job_base import DIGITS, DIGITS_LOOKED_AT

LOOKED_AT = 20_000  # rows for one page
LOOKED_INTO = 10_000  # rows for one page if their payloads are searched
COUNTED = 10_000  # rows for a count
SUMMARISED = 10_000  # characters of a payload of which a list shows something
LONGEST_TEXT = 200  # characters that are searched for
BACK = 10  # pages to which one can go back, one by one
AFTER, TRAIL = "after", "back"  # of an address: the key behind which the page begins, and those of the pages before it
LARGEST = 2**63  # of a number in a key


class KeyedList(LeanChangeList):
    """A list whose pages begin behind a key; its filters say what to look for, and select nothing themselves."""

    looked: Any
    looked_back: Any

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        """Return all rows: an action is for those selected by id, whatever they have become meanwhile."""
        for name in (AFTER, TRAIL):
            self.params.pop(name, None)
            self.filter_params.pop(name, None)
        self.filter_specs, self.has_filters, rest, _duplicates, self.has_active_filters = self.get_filters(request)
        if rest:
            raise IncorrectLookupParameters
        self.clear_all_filters_qs = self.get_query_string(remove=list(self.get_filters_params()))
        return self.without_large_columns(self.root_queryset)

    def get_results(self, request: HttpRequest) -> None:
        """Read a page; see Django's for what is set."""
        self.after, self.trail = read_key(request.GET.get(AFTER)), read_trail(request.GET.get(TRAIL))
        found = self._found()
        rows = self.queryset.in_bulk([UUID(item.id) for item in found])
        self.result_list = [rows[pk] for item in found if (pk := UUID(item.id)) in rows]
        self._summarise(self.result_list)
        self.result_count = len(self.result_list)
        self.show_full_result_count, self.full_result_count = False, self.result_count
        self.show_admin_actions = bool(self.result_list)
        self.can_show_all = self.multi_page = False

    def _summarise(self, rows: list[Any]) -> None:
        """Give each row the summary of its arguments; large ones stay in the database."""
        name, database = str(self.opts.model_name), self.root_queryset.db
        payloads = self.inspection.payloads(name, [row.pk.hex for row in rows], SUMMARISED)
        for row in rows:
            which = row.task_path, row.queue_name
            row.summary = display.summary(payloads.get(row.pk.hex), *which, database, self.mask(*which))

    def _found(self) -> list[Row]:
        """Return the rows of the page; sets the key behind which the next one begins, and how far this one looked."""
        self.next_key: Key | None = None
        self.looked_to: Key | None = None
        if job_id := parse_id(self.list_query.text):
            return [Row(job_id.hex, [])]
        if re.fullmatch(DIGITS, self.list_query.text) and not self.after:
            name = str(self.opts.model_name)
            if ids := self.inspection.ids_ending(
                name, self.list_query.text.lower(), DIGITS_LOOKED_AT, self.list_per_page
            ):
                return [Row(row_id, []) for row_id in ids]
        found = self.look(self.after, self.size, self.list_per_page + 1)
        if found and found[-1].id is None:
            self.next_key = self.looked_to = found.pop().key
        elif len(found) > self.list_per_page:
            found.pop()
            self.next_key = found[-1].key
        return found

    @property
    def engine(self) -> Engine:
        return engine_for(self.root_queryset.db)

    @property
    def inspection(self) -> Inspection:
        return self.engine.inspection

    @property
    def size(self) -> int:
        """How many rows are looked at for a page."""
        return LOOKED_INTO if self.list_query.text else LOOKED_AT

    @cached_property
    def masks(self) -> dict[tuple[str, str], Mask]:
        """What is hidden of each task in each queue; asked for once, for many rows are of the same."""
        return {}

    def mask(self, task_path: str, queue_name: str) -> Mask:
        """Return what is hidden of a task in a queue."""
        which = task_path, queue_name
        if which not in self.masks:
            self.masks[which] = mask_of(*which, self.root_queryset.db)
        return self.masks[which]

    @cached_property
    def list_query(self) -> ListQuery:
        """What the filters and the search ask for."""
        asked: dict[str, Any] = {"text": self.query.strip(" …")[:LONGEST_TEXT]}
        for spec in self.filter_specs:
            if isinstance(spec, Filter):
                asked |= spec.asked(clock.now())
        return ListQuery(**asked)

    def look(self, after: Key | None, size: int, limit: int) -> list[Row]:
        """Return what the engine finds behind a key; see Engine.list_jobs."""
        raise NotImplementedError

    def time_of_key(self, key: Key) -> int | None:
        """Return the instant for which a key stands, if the list is in the order of time."""
        raise NotImplementedError

    def matches(self, found: Row) -> bool:
        """Return whether the text of the search is in a payload as it is shown: a search finds nothing hidden."""
        shown = searchable(found.payload or "", self.mask(found.task_path or "", found.queue_name or ""))
        return in_json(self.list_query.text).lower() in shown.lower()

    def version(self, user: object, as_of_now: Callable[[Any], object]) -> str:
        """Return a text that differs if the page would show something else to a user.

        ``as_of_now``: what of a row changes with time alone.
        """
        rows = [
            ([item for item in vars(row).items() if item[0] != "_state"], as_of_now(row)) for row in self.result_list
        ]
        choices = [
            (choice["display"], choice["selected"]) for spec in self.filter_specs for choice in spec.choices(self)
        ]
        today = local(clock.from_instant(clock.now())).date()
        shown = repr((rows, choices, self.remark, self.next_link, user, get_language(), today))
        return blake2b(shown.encode(errors="replace"), digest_size=16).hexdigest()

    # -- what the template asks for ------------------------------------------------------------------------------------

    @property
    def first_link(self) -> str | None:
        return self.get_query_string() if self.after else None

    @property
    def previous_link(self) -> str | None:
        return self._link(self.trail[-1], self.trail[:-1]) if self.trail else None

    @property
    def next_link(self) -> str | None:
        return self._link(self.next_key, [*self.trail, self.after][-BACK:]) if self.next_key else None

    @property
    def remark(self) -> str:
        """How far the page has looked, if there is more behind it that it did not look at."""
        if not self.looked_to:
            return ""
        number, instant = display.number(self.size), self.time_of_key(self.looked_to)
        if instant is None:
            return str(self.looked % {"number": number})
        return str(self.looked_back % {"number": number, "time": time_of(clock.from_instant(instant))})

    def _link(self, after: Key | None, trail: list[Key | None]) -> str:
        parameters = {AFTER: json.dumps(after) if after else None, TRAIL: json.dumps(trail) if trail else None}
        return str(self.get_query_string(parameters))


class JobList(KeyedList):
    """Jobs, the newest first; those that wait in the order of the claim."""

    looked = gettext_lazy("Looked at %(number)s jobs.")
    looked_back = gettext_lazy("Looked at %(number)s jobs, back to %(time)s.")

    def look(self, after: Key | None, size: int, limit: int) -> list[Row]:
        return self.inspection.list_jobs(self.list_query, after, size, limit, self.engine.now(), self.matches)

    def time_of_key(self, key: Key) -> int | None:
        return instant_of(str(key[0])) if len(key) == 1 else None

    @cached_property
    def counts(self) -> dict[str, Count]:
        """How many jobs of each state the other filters leave; none for the search of a text."""
        if self.list_query.text:
            return {}
        return self.inspection.count_jobs(self.list_query, COUNTED, self.engine.now())


class LetterList(KeyedList):
    """Dead letters, the newest death first."""

    looked = gettext_lazy("Looked at %(number)s dead letters.")
    looked_back = gettext_lazy("Looked at %(number)s dead letters, back to %(time)s.")

    def look(self, after: Key | None, size: int, limit: int) -> list[Row]:
        return self.inspection.list_letters(self.list_query, after, size, limit, self.matches)

    def time_of_key(self, key: Key) -> int | None:
        return key[0] if isinstance(key[0], int) else None


def read_key(text: str | None) -> Key | None:
    """Return a key of an address; None if it is none."""
    keys = read_trail(f"[{text}]")
    return keys[0] if keys else None


def read_trail(text: str | None) -> list[Key | None]:
    """Return the keys of an address, each None for the first page; none at all if they are not what a link has."""
    try:
        keys = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return []
    return keys if isinstance(keys, list) and len(keys) <= BACK and all(is_key(key) for key in keys) else []


def is_key(value: object) -> bool:
    """Return whether a value is a key, or None."""
    if value is None:
        return True
    return isinstance(value, list) and all(
        (isinstance(item, str) and item.isprintable()) or (type(item) is int and abs(item) < LARGEST) for item in value
    )
