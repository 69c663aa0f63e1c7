"""The lists that people look at, on SQLite: which statement is walked for what is sought, and from where on."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...core.ids import first_id
from ..inspection import Count, Fits, Found, Key, Sought, in_json, key_of
from .connection import SQLiteConnection
from .walks import COUNTS, IDS_ENDING, LETTERS, LEVELS, NAMES, PAGES, PARTS, PAYLOADS, STATES

EARLIEST = -(2**63)
LAST_ID = "g"  # above every id


class SQLiteLists(SQLiteConnection):
    """What of an Engine is about lists."""

    def list_jobs(self, sought: Sought, after: Key | None, size: int, limit: int, now: int, fits: Fits) -> list[Found]:
        name = walk_of(sought)
        after = key_of(after, *PARTS[name.split()[0]])
        values = {**_of_jobs(sought, now), **_place(name, after, sought), "slice": size}
        if name.startswith("waiting"):
            values |= self._levels(name, sought.word, after, now, sought.queue_name)
        return self._found(PAGES[name, bool(sought.text)], values, limit, fits)

    def count_jobs(self, sought: Sought, size: int, now: int) -> dict[str, Count]:
        counted: dict[str, Count] = {}
        for word in ("due", "scheduled", "running", "done"):  # one of each walk
            name = walk_of(replace(sought, word=word))
            values = {**_of_jobs(sought, now), **_place(name, None, sought), "slice": size}
            if name.startswith("waiting"):
                values |= self._levels(name, word, None, now, sought.queue_name)
            rows = dict(self._rows(COUNTS[name], values))
            more = sum(rows.values()) == size
            counted |= {found: Count(rows.get(found, 0), more) for found in WORDS_OF[word]}
        return counted

    def list_letters(self, sought: Sought, after: Key | None, size: int, limit: int, fits: Fits) -> list[Found]:
        died_at, last_id = key_of(after, object, str) or (
            b"" if sought.until is None else sought.until,
            "" if sought.until else LAST_ID,
        )
        values = {
            **_asked(sought),
            "exception_class": sought.exception_class,
            "fingerprint": sought.fingerprint,
            "acknowledged": sought.acknowledged,
            "since": EARLIEST if sought.since is None else sought.since,
            "died_at": died_at,
            "after": last_id,
            "slice": size,
        }
        return self._found(LETTERS[group_of(sought), bool(sought.text)], values, limit, fits)

    def ids_ending(self, table: str, digits: str, size: int, limit: int) -> list[str]:
        values = {"digits": digits, "length": len(digits), "slice": size, "limit": limit}
        return self._list(IDS_ENDING[table], values)

    def names(self, table: str, column: str, limit: int) -> list[str]:
        return sorted(set(self._list(NAMES[table, column], {"limit": limit})))[:limit]

    def states_of(self, job_ids: Sequence[str]) -> dict[str, int]:
        return dict(self._rows(STATES, {"ids": json.dumps(job_ids)}))

    def payloads(self, table: str, job_ids: Sequence[str], longest: int) -> dict[str, str | int]:
        return dict(self._rows(PAYLOADS[table], {"ids": json.dumps(job_ids), "longest": longest}))

    def _found(self, sql: str, values: Mapping[str, Any], limit: int, fits: Fits) -> list[Found]:
        """Return what a slice has, read no further than is needed."""

        def taken(cursor: Any) -> list[Found]:
            found: list[Found] = []
            for row_id, key, *others in cursor:
                item = Found(row_id, json.loads(key), *others)
                if item.payload is None or fits(item):
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


def walk_of(sought: Sought) -> str:
    """Return the name of the walk that comes to the jobs of a state at once."""
    if sought.word in ("due", "scheduled", "retrying"):
        return "waiting" if sought.queue_name is None else "waiting of queue"
    return "held" if sought.word in ("running", "expired") else "newest"


def group_of(sought: Sought) -> str:
    """Return by which index dead letters are walked."""
    if sought.fingerprint is not None and sought.task_path is not None:
        return "fingerprint"
    columns = ("exception_class", "task_path", "queue_name")
    return next((column for column in columns if getattr(sought, column) is not None), "")


def _asked(sought: Sought) -> dict[str, Any]:
    text = sought.text
    return {
        "queue_name": sought.queue_name,
        "task_path": sought.task_path,
        "worker_id": sought.worker_id,
        "text": f"%{_escaped(text)}%",
        "in_payload": f"%{_escaped(in_json(text))}%",
        "digits": f"%{text.lower()}" if re.fullmatch("[0-9a-fA-F]{4,32}", text) else "",
    }


def _of_jobs(sought: Sought, now: int) -> dict[str, Any]:
    return {
        **_asked(sought),
        "word": sought.word,
        "first_id": "" if sought.since is None else first_id(sought.since),
        "end_id": _end_id(sought),
        "now": now,
    }


def _end_id(sought: Sought) -> str:
    return LAST_ID if sought.until is None else first_id(sought.until)


def _place(name: str, after: Key | None, sought: Sought) -> dict[str, Any]:
    """Return where a walk begins: behind a key, or with its first row."""
    if name == "newest":
        return {"after": after[0] if after else _end_id(sought)}
    if name == "held":
        return dict(zip(("holder", "after"), after or ("", 0), strict=True))
    return dict(zip(("priority", "raw", "due_at", "after"), after or (None, None, None, None), strict=True))


def _escaped(text: str) -> str:
    """Return a text for LIKE, in which nothing stands for something else."""
    return re.sub("([%_!])", r"!\1", text)
