"""The lists that people look at, on SQLite: which statement answers a query, and from which key on."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...core.ids import first_id
from ..inspection import Count, Key, ListQuery, Matches, Row, in_json, key_of
from .connection import SQLiteConnection
from .walks import COUNTS, IDS_ENDING, LETTERS, LEVELS, NAMES, PAGES, PARTS, PAYLOADS, STATES

EARLIEST = -(2**63)
LAST_ID = "g"  # above every id


class SQLiteLists(SQLiteConnection):
    """What of an Inspection is about lists."""

    def list_jobs(
        self, query: ListQuery, after: Key | None, size: int, limit: int, now: int, matches: Matches
    ) -> list[Row]:
        name = walk_of(query)
        after = key_of(after, *PARTS[name.split()[0]])
        values = {**_of_jobs(query, now), **_place(name, after, query), "slice": size}
        if name.startswith("waiting"):
            values |= self._levels(name, query.word, after, now, query.queue_name)
        return self._found(PAGES[name, bool(query.text)], values, limit, matches)

    def count_jobs(self, query: ListQuery, size: int, now: int) -> dict[str, Count]:
        counted: dict[str, Count] = {}
        for word in ("due", "scheduled", "running", "done"):  # one of each walk
            name = walk_of(replace(query, word=word))
            values = {**_of_jobs(query, now), **_place(name, None, query), "slice": size}
            if name.startswith("waiting"):
                values |= self._levels(name, word, None, now, query.queue_name)
            rows = dict(self._rows(COUNTS[name], values))
            more = sum(rows.values()) == size
            counted |= {found: Count(rows.get(found, 0), more) for found in WORDS_OF[word]}
        return counted

    def list_letters(self, query: ListQuery, after: Key | None, size: int, limit: int, matches: Matches) -> list[Row]:
        died_at, last_id = key_of(after, object, str) or (
            b"" if query.until is None else query.until,
            "" if query.until else LAST_ID,
        )
        values = {
            **_asked(query),
            "exception_class": query.exception_class,
            "fingerprint": query.fingerprint,
            "acknowledged": query.acknowledged,
            "since": EARLIEST if query.since is None else query.since,
            "died_at": died_at,
            "after": last_id,
            "slice": size,
        }
        return self._found(LETTERS[group_of(query), bool(query.text)], values, limit, matches)

    def ids_ending(self, table: str, digits: str, size: int, limit: int) -> list[str]:
        values = {"digits": digits, "length": len(digits), "slice": size, "limit": limit}
        return self._list(IDS_ENDING[table], values)

    def names(self, table: str, column: str, limit: int) -> list[str]:
        return sorted(set(self._list(NAMES[table, column], {"limit": limit})))[:limit]

    def states_of(self, job_ids: Sequence[str]) -> dict[str, int]:
        return dict(self._rows(STATES, {"ids": json.dumps(job_ids)}))

    def payloads(self, table: str, job_ids: Sequence[str], longest: int) -> dict[str, str | int]:
        return dict(self._rows(PAYLOADS[table], {"ids": json.dumps(job_ids), "longest": longest}))

    def _found(self, sql: str, values: Mapping[str, Any], limit: int, matches: Matches) -> list[Row]:
        """Return what a slice has, read no further than is needed."""

        def taken(cursor: Any) -> list[Row]:
            found: list[Row] = []
            for row_id, key, *others in cursor:
                item = Row(row_id, json.loads(key), *others)
                if item.payload is None or matches(item):
                    found.append(item)
                if len(found) == limit:
                    break
            return found

        return self._read(sql, values, taken)

    def _levels(self, name: str, word: str, after: Key | None, now: int, queue_name: str | None) -> dict[str, Any]:
        """Return the priorities that are left below a key, each with the time after which it begins, and the end."""
        begin, end = (EARLIEST, now + 1) if word == "due" else (now, "")  # no time that is a number is above a text
        found = sorted(self._list(LEVELS[name], {"queue_name": queue_name}), key=lambda level: (-level[0], level[1]))
        if after:
            place = (-int(after[0]), after[1])
            found = [level for level in found if (-level[0], level[1]) >= place]
        levels = [[*level, after[2] if after and level == list(after[:2]) else begin] for level in found]
        return {"levels": json.dumps(levels), "end": end, "queue_name": queue_name}


# The words that a walk finds.
WORDS_OF = {
    "due": ("due",),
    "scheduled": ("scheduled", "retrying"),
    "running": ("running", "expired"),
    "done": ("done",),
}


def walk_of(query: ListQuery) -> str:
    """Return the name of the walk that comes to the jobs of a state at once."""
    if query.word in ("due", "scheduled", "retrying"):
        return "waiting" if query.queue_name is None else "waiting of queue"
    return "held" if query.word in ("running", "expired") else "newest"


def group_of(query: ListQuery) -> str:
    """Return by which index dead letters are walked."""
    if query.fingerprint is not None and query.task_path is not None:
        return "fingerprint"
    columns = ("exception_class", "task_path", "queue_name")
    return next((column for column in columns if getattr(query, column) is not None), "")


def _asked(query: ListQuery) -> dict[str, Any]:
    text = query.text
    return {
        "queue_name": query.queue_name,
        "task_path": query.task_path,
        "worker_id": query.worker_id,
        "text": f"%{_escaped(text)}%",
        "in_payload": f"%{_escaped(in_json(text))}%",
        "digits": f"%{text.lower()}" if re.fullmatch("[0-9a-fA-F]{4,32}", text) else "",
    }


def _of_jobs(query: ListQuery, now: int) -> dict[str, Any]:
    return {
        **_asked(query),
        "word": query.word,
        "first_id": "" if query.since is None else first_id(query.since),
        "end_id": _end_id(query),
        "now": now,
    }


def _end_id(query: ListQuery) -> str:
    return LAST_ID if query.until is None else first_id(query.until)


def _place(name: str, after: Key | None, query: ListQuery) -> dict[str, Any]:
    """Return where a walk begins: behind a key, or with its first row."""
    if name == "newest":
        return {"after": after[0] if after else _end_id(query)}
    if name == "held":
        return dict(zip(("holder", "after"), after or ("", 0), strict=True))
    return dict(zip(("priority", "raw", "due_at", "after"), after or (None, None, None, None), strict=True))


def _escaped(text: str) -> str:
    """Return a text for LIKE, in which nothing stands for something else."""
    return re.sub("([%_!])", r"!\1", text)
