"""Lists of any length: a page is read by key, looks at so many rows at the most, and says how far it has looked."""

import json
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import Case, QuerySet, TextField, When
from django.db.models.functions import Length
from django.http import HttpRequest
from django.utils.translation import get_language, gettext_lazy

from ..core import clock
from ..core.humanize import local, time_of
from ..core.ids import digits_in, instant_of, parse_id
from ..core.names import is_reserved
from ..engines import engine_for
from ..inspection.lists import TEXT, ListQuery, Page, RowKey, count_jobs, ending, list_jobs, list_letters
from ..inspection.state import count_children
from ..tasks.signatures import masks_of
from . import display
from .base import LeanChangeList
from .filters import Filter

LOOKED_AT = 20_000  # rows for one page
LOOKED_INTO = 10_000  # rows for one page if their payloads are searched
COUNTED = 10_000  # rows for a count
SUMMARISED = 10_000  # characters of a payload of which a list shows something
LONGEST_TEXT = 200  # characters that are searched for
BACK = 10  # pages to which one can go back, one by one
AFTER, TRAIL = "after", "back"  # of an address: the key behind which the page begins, and those of the pages before it


class KeyedList(LeanChangeList):
    """A list whose pages begin behind a key; its filters say what to look for, and select nothing themselves."""

    looked: Any
    looked_back: Any
    now: int  # the instant as of which the page was read

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
        self.trail = read_trail(request.GET.get(TRAIL))
        self.after = next(iter(read_trail(f"[{request.GET.get(AFTER)}]")), None)
        with engine_for(self.queryset.db).snapshot() as self.now:
            self.list_query = self.criteria()
            self.page = self.found()
            self.result_list = self.page.rows
            self.count()
        for row in self.result_list:
            row.as_of = self.now
        self.summarise()
        self.result_count = len(self.result_list)
        self.show_full_result_count, self.full_result_count = False, self.result_count
        self.show_admin_actions = bool(self.result_list)
        self.can_show_all = self.multi_page = False

    def criteria(self) -> ListQuery:
        """Return what the filters and the search select."""
        criteria: dict[str, Any] = {"text": self.query.strip(" …")[:LONGEST_TEXT]}
        for spec in self.filter_specs:
            if isinstance(spec, Filter):
                criteria |= spec.criteria(self.now)
        return ListQuery(**criteria)

    def found(self) -> Page:
        """Return the rows of the page, each with its payload if that is not large, and the size of that."""
        text, short = self.list_query.text, When(payload_size__lte=SUMMARISED, then=TEXT)
        rows = self.queryset.annotate(payload_size=Length(TEXT), short_payload=Case(short, output_field=TextField()))
        if row_id := parse_id(text):
            return Page([row for row in rows.filter(pk=row_id) if not is_reserved(row.queue_name)])
        digits = digits_in(text)
        if digits and not self.after and (found := ending(rows, digits, self.list_per_page)):
            return Page([row for row in found if not is_reserved(row.queue_name)])
        return self.look(rows)

    def look(self, rows: QuerySet[Any]) -> Page:
        """Return the page behind the key of the address."""
        raise NotImplementedError

    def time_of_key(self, key: RowKey) -> int | None:
        """Return the instant for which a key stands, if the list is in the order of time."""
        raise NotImplementedError

    def count(self) -> None:
        """Count what is shown beside the rows."""

    def summarise(self) -> None:
        """Give each row the summary of its arguments, with what is secret hidden; it may import the task."""
        mask = masks_of(self.queryset.db)
        for row in self.result_list:
            kind = row.task_path, row.queue_name
            payload = row.payload_size if row.short_payload is None else row.short_payload
            row.summary = display.summary(payload, *kind, self.queryset.db, mask(*kind))

    @property
    def size(self) -> int:
        """How many rows are looked at for a page."""
        return LOOKED_INTO if self.list_query.text else LOOKED_AT

    def version(self, user: object, as_of_now: Callable[[Any], object]) -> str:
        """Return a text that differs if the page would show something else to a user.

        ``as_of_now``: what of a row changes with time alone.
        """
        rows = [
            ([item for item in vars(row).items() if item[0] not in ("_state", "as_of")], as_of_now(row))
            for row in self.result_list
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
        return self._link(self.page.next_key, [*self.trail, self.after][-BACK:]) if self.page.next_key else None

    @property
    def remark(self) -> str:
        """How far the page has looked, if there is more behind it that it did not look at."""
        if not self.page.looked_to:
            return ""
        number, instant = display.number(self.size), self.time_of_key(self.page.looked_to)
        if instant is None:
            return str(self.looked % {"number": number})
        return str(self.looked_back % {"number": number, "time": time_of(clock.from_instant(instant))})

    def _link(self, after: RowKey | None, trail: list[Any]) -> str:
        parameters = {AFTER: json.dumps(after) if after else None, TRAIL: json.dumps(trail) if trail else None}
        return str(self.get_query_string(parameters))


class JobList(KeyedList):
    """Jobs, the newest first; those of one state as ``list_jobs`` says."""

    looked = gettext_lazy("Looked at %(number)s jobs.")
    looked_back = gettext_lazy("Looked at %(number)s jobs, back to %(time)s.")

    def count(self) -> None:
        """Count the children that rows wait for, and the jobs of each state that the other filters leave.

        None of these for the search of a text.
        """
        count_children(self.result_list)
        text = self.list_query.text
        self.counts = {} if text else count_jobs(self.root_queryset, self.list_query, COUNTED, self.now)

    def look(self, rows: QuerySet[Any]) -> Page:
        return list_jobs(rows, self.list_query, self.after, size=self.size, limit=self.list_per_page, now=self.now)

    def time_of_key(self, key: RowKey) -> int | None:
        return instant_of(str(key[0])) if len(key) == 1 else None


class LetterList(KeyedList):
    """Dead letters, the newest death first."""

    looked = gettext_lazy("Looked at %(number)s dead letters.")
    looked_back = gettext_lazy("Looked at %(number)s dead letters, back to %(time)s.")

    def look(self, rows: QuerySet[Any]) -> Page:
        return list_letters(rows, self.list_query, self.after, size=self.size, limit=self.list_per_page)

    def time_of_key(self, key: RowKey) -> int | None:
        return key[0] if isinstance(key[0], int) else None


def read_trail(text: str | None) -> list[Any]:
    """Return the keys of an address, each None for the first page; none at all if they are not what a link has."""
    try:
        keys = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return []
    return keys if isinstance(keys, list) and len(keys) <= BACK else []
