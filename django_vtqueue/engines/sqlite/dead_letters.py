"""The statements about groups of dead letters on SQLite: those with one fingerprint and one task.

They read vtqueue_letter_group alone, but for one letter of each group: of 100,000 letters only index entries are met.
"""

import json
from collections.abc import Sequence

from ...core.job import LetterGroup
from .connection import SQLiteConnection

# A letter of the group that is looked at, in some time and queue.
MEANT = """vtqueue_deadletter AS letter INDEXED BY vtqueue_letter_group
WHERE letter.fingerprint = this.fingerprint AND letter.task_path = this.task_path
  AND letter.died_at BETWEEN :since AND :until AND (:queue_name IS NULL OR letter.queue_name = :queue_name)"""

# From the first letter of one group straight to the first of the next: a seek or two for each group, however many
# letters it has. Not by a row value: SQLite would use only its first column. Without the second LIMIT each count would
# be made twice.
LETTER_GROUPS = f"""
WITH RECURSIVE first(letter) AS (
    SELECT (
        SELECT next.rowid FROM vtqueue_deadletter AS next INDEXED BY vtqueue_letter_group
        ORDER BY next.fingerprint, next.task_path, next.died_at, next.id LIMIT 1
    )
    UNION ALL
    SELECT coalesce(
        (
            SELECT next.rowid FROM vtqueue_deadletter AS next INDEXED BY vtqueue_letter_group
            WHERE next.fingerprint = this.fingerprint AND next.task_path > this.task_path
            ORDER BY next.task_path, next.died_at, next.id LIMIT 1
        ),
        (
            SELECT next.rowid FROM vtqueue_deadletter AS next INDEXED BY vtqueue_letter_group
            WHERE next.fingerprint > this.fingerprint
            ORDER BY next.fingerprint, next.task_path, next.died_at, next.id LIMIT 1
        )
    )
    FROM first CROSS JOIN vtqueue_deadletter AS this ON this.rowid = first.letter
    LIMIT :limit
),
found AS (
    SELECT this.fingerprint, this.task_path, this.exception_class,
        (SELECT count(*) FROM (SELECT 1 FROM {MEANT} LIMIT :count)) AS number,
        (SELECT letter.died_at FROM {MEANT} ORDER BY letter.died_at, letter.id LIMIT 1) AS began,
        (SELECT letter.died_at FROM {MEANT} ORDER BY letter.died_at DESC, letter.id DESC LIMIT 1) AS ended,
        (SELECT letter.id FROM {MEANT} ORDER BY letter.died_at DESC, letter.id DESC LIMIT 1) AS latest
    FROM first CROSS JOIN vtqueue_deadletter AS this ON this.rowid = first.letter
    WHERE (:task_path IS NULL OR this.task_path = :task_path)
      AND (:exception_class IS NULL OR this.exception_class = :exception_class)
    LIMIT :limit
)
SELECT json_group_array(json_array(fingerprint, task_path, exception_class, number, began, ended, latest))
FROM found WHERE number > 0"""

LETTER_DEATHS = """
SELECT json_group_array(json_array(place, slot, number)) FROM (
    SELECT this.key AS place, (letter.died_at - :since) / :width AS slot, count(*) AS number
    FROM json_each(:groups) AS this CROSS JOIN vtqueue_deadletter AS letter INDEXED BY vtqueue_letter_group
    WHERE letter.fingerprint = json_extract(this.value, '$[0]') AND letter.task_path = json_extract(this.value, '$[1]')
      AND letter.died_at BETWEEN :since AND :until AND (:queue_name IS NULL OR letter.queue_name = :queue_name)
    GROUP BY place, slot
)"""

# The attempt that made it a dead letter is the last entry of its history.
LETTER_TRACEBACKS = """
SELECT json_group_array(json_array(id, CASE WHEN json_valid(history)
    THEN CAST(json_extract(history, '$[#-1].traceback') AS TEXT) END))
FROM vtqueue_deadletter WHERE id IN (SELECT value FROM json_each(:ids))"""


class SQLiteLetterGroups(SQLiteConnection):
    """What of an Inspection is about groups of dead letters."""

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
        which = {"queue_name": queue_name, "task_path": task_path, "exception_class": exception_class}
        caps = {"limit": limit, "count": count}
        return [
            LetterGroup(*row) for row in self._list(LETTER_GROUPS, {**which, "since": since, "until": until, **caps})
        ]

    def letter_deaths(
        self, groups: Sequence[LetterGroup], slots: int, *, queue_name: str | None, since: int, until: int
    ) -> list[list[int]]:
        width = max((until - since) // slots + 1, 1)
        values = {"queue_name": queue_name, "since": since, "until": until, "width": width}
        deaths = [[0] * slots for _ in groups]
        for place, slot, number in self._list(
            LETTER_DEATHS, {"groups": json.dumps([group[:2] for group in groups]), **values}
        ):
            deaths[place][slot] = number
        return deaths

    def letter_tracebacks(self, letter_ids: Sequence[str]) -> dict[str, str]:
        return dict(self._list(LETTER_TRACEBACKS, {"ids": json.dumps(letter_ids)}))
