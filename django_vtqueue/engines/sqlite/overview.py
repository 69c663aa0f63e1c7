"""The statements of the overview on SQLite: how many jobs each queue has in which state, and who runs what.

All of them read indexes alone, or a few rows, and stop where they are told to: none walks over a table. Jobs that wait
are counted by the claim index of their queue, those that are held by the indexes of held rows.
"""

import json
from collections.abc import Sequence
from typing import cast

from ..inspection import Backlog, HeldCount, Running
from .connection import SQLiteConnection
from .due import LEVEL, WITH_HIDDEN, WITH_WAITING, found, levels
from .statistics import BY_MINUTE

WAITING = """job.queue_name = name.value AND job.finished_at IS NULL AND job.lease_until IS NULL
        AND (job.task_path = '') = kind.raw"""
LEVELS_OF_KIND = levels("vtqueue_job_queue", WAITING)
OF_LEVEL = f"""level CROSS JOIN vtqueue_job AS job INDEXED BY vtqueue_job_queue
        WHERE {LEVEL} AND {WAITING} AND job.priority = level.priority"""

QUEUES = f"""
WITH name(value) AS (
    SELECT value FROM {found(*WITH_WAITING, limit="LIMIT :limit")}
    UNION SELECT value FROM {found(*WITH_HIDDEN, limit="LIMIT :limit")}
    ORDER BY 1 LIMIT :limit
)
SELECT CAST(name.value AS TEXT), (
    SELECT count(*) FROM (
        SELECT * FROM (
            SELECT 1 FROM vtqueue_job AS job INDEXED BY vtqueue_job_queue
            WHERE job.queue_name = name.value AND job.finished_at IS NULL AND job.lease_until IS NULL LIMIT :most
        )
        UNION ALL
        SELECT * FROM (
            SELECT 1 FROM vtqueue_job AS job INDEXED BY vtqueue_job_hidden
            WHERE job.queue_name = name.value AND job.lease_until IS NOT NULL LIMIT :most
        )
        LIMIT :most
    )
) FROM name"""

LETTERS = """
WITH RECURSIVE name(value) AS (
    SELECT min(queue_name) FROM vtqueue_deadletter INDEXED BY vtqueue_letter_queue
    UNION ALL
    SELECT (
        SELECT min(queue_name) FROM vtqueue_deadletter INDEXED BY vtqueue_letter_queue WHERE queue_name > name.value
    ) FROM name WHERE name.value IS NOT NULL
    LIMIT :limit
)
SELECT CAST(name.value AS TEXT), (
    SELECT count(*) FROM (
        SELECT 1 FROM vtqueue_deadletter AS letter INDEXED BY vtqueue_letter_queue
        WHERE letter.queue_name = name.value LIMIT :most
    )
) FROM name WHERE name.value IS NOT NULL"""

SEEN = """
SELECT name.value, (
    SELECT count(*) FROM (
        SELECT 1 FROM vtqueue_deadletter AS letter INDEXED BY vtqueue_letter_seen
        WHERE letter.queue_name = name.value AND letter.acknowledged_at IS NOT NULL LIMIT :most
    )
) FROM json_each(:names) AS name"""

# Whether a job was tried before is in no index: so many rows are read for that, of all queues together, and of each.
READ, LEAST_READ = 20_000, 100

# Inside a priority the rows lie in the order of time, so the first one of each is its oldest.
BACKLOGS = f"""
SELECT name.value, kind.raw, (
    {LEVELS_OF_KIND}
    SELECT count(*) FROM (SELECT 1 FROM {OF_LEVEL} AND job.due_at <= :now LIMIT :most)
), (
    {LEVELS_OF_KIND}
    SELECT count(*) FROM (SELECT 1 FROM {OF_LEVEL} AND job.due_at > :now LIMIT :most)
), (
    {LEVELS_OF_KIND}
    SELECT min((
        SELECT job.due_at FROM vtqueue_job AS job INDEXED BY vtqueue_job_queue
        WHERE {WAITING} AND job.priority = level.priority AND job.due_at <= :now
        ORDER BY job.due_at LIMIT 1
    )) FROM level WHERE level.priority IS NOT NULL
), (
    {LEVELS_OF_KIND}
    SELECT json_array(count(*), sum(attempts > 0)) FROM (
        SELECT job.attempts FROM {OF_LEVEL} AND job.due_at > :now LIMIT :read
    )
)
FROM json_each(:names) AS name CROSS JOIN (SELECT 0 AS raw UNION ALL SELECT 1) AS kind"""

HELD = """
SELECT CAST(queue_name AS TEXT), CAST(worker_id AS TEXT), sum(lease_until > :now), sum(lease_until <= :now),
    sum(lease_until > :now AND started_at IS NOT NULL)
FROM (
    SELECT queue_name, worker_id, lease_until, started_at FROM vtqueue_job INDEXED BY vtqueue_job_worker
    WHERE state = 'RUNNING' AND worker_id > '' LIMIT :most
) GROUP BY 1, 2"""

RUNNING = """
SELECT CAST(job.id AS TEXT), CAST(job.queue_name AS TEXT), CAST(job.task_path AS TEXT), worker.value,
    CAST(job.started_at AS INTEGER), CAST(job.lease_until AS INTEGER), CAST(job.progress AS REAL),
    CAST(job.progress_text AS TEXT), job.cancelled_at IS NOT NULL
FROM json_each(:workers) AS worker CROSS JOIN vtqueue_job AS job
WHERE job.rowid IN (
    SELECT held.rowid FROM vtqueue_job AS held INDEXED BY vtqueue_job_worker
    WHERE held.state = 'RUNNING' AND held.worker_id = worker.value AND held.started_at IS NOT NULL LIMIT :each
)"""

# The counts of minutes, newest first. Their unique index begins with the minute, so each minute is one seek, or one for
# each name; a row value would make SQLite walk over the rows of one minute again and again.
MINUTES = """minute(value) AS (
    SELECT :last UNION ALL SELECT minute.value - 60000000 FROM minute WHERE minute.value > :first
)"""

# Said to be improbable, for the reason that is given for LEVEL: no Bloom filter shall be made from all counts.
MINUTE = "likelihood(minute.value > 0, 1e-9) AND likelihood(minute.value > 0, 1e-9)"

ACTIVE = f"""
WITH RECURSIVE pair(minute, name) AS (
    SELECT :last, (SELECT min(done.queue_name) FROM vtqueue_throughput AS done {BY_MINUTE} WHERE done.minute = :last)
    UNION ALL
    SELECT CASE WHEN pair.name IS NULL THEN pair.minute - 60000000 ELSE pair.minute END, (
        SELECT min(done.queue_name) FROM vtqueue_throughput AS done {BY_MINUTE}
        WHERE done.minute = CASE WHEN pair.name IS NULL THEN pair.minute - 60000000 ELSE pair.minute END
          AND done.queue_name > coalesce(pair.name, '')
    )
    FROM pair WHERE pair.name IS NOT NULL OR pair.minute > :first
    LIMIT :limit
)
SELECT CAST(pair.name AS TEXT), count(*) FROM pair WHERE pair.name IS NOT NULL GROUP BY 1"""

FLOW = f"""
WITH RECURSIVE {MINUTES}
SELECT name.value, minute.value, CAST(total(done.succeeded) AS INTEGER), CAST(total(done.failed) AS INTEGER),
    CAST(total(done.dead) AS INTEGER)
FROM json_each(:names) AS name CROSS JOIN minute CROSS JOIN vtqueue_throughput AS done {BY_MINUTE}
WHERE {MINUTE} AND done.minute = minute.value AND done.queue_name = name.value
GROUP BY 1, 2"""

TIMES = f"""
SELECT name.value, (
    WITH RECURSIVE {MINUTES}
    SELECT json_group_array(json_array(latest.run_times, latest.wait_times)) FROM (
        SELECT CAST(done.run_times AS TEXT) AS run_times, CAST(done.wait_times AS TEXT) AS wait_times
        FROM minute CROSS JOIN vtqueue_throughput AS done {BY_MINUTE}
        WHERE {MINUTE} AND done.minute = minute.value AND done.queue_name = name.value LIMIT :each
    ) AS latest
)
FROM json_each(:names) AS name"""


class SQLiteOverview(SQLiteConnection):
    """What of an Inspection is about the overview."""

    def sizes(self, limit: int, most: int) -> dict[str, int]:
        return dict(self._rows(QUEUES, {"limit": limit, "most": most}))

    def letters(self, limit: int, most: int) -> dict[str, int]:
        return dict(self._rows(LETTERS, {"limit": limit, "most": most}))

    def seen_letters(self, queue_names: Sequence[str], most: int) -> dict[str, int]:
        return dict(self._rows(SEEN, {"names": json.dumps(queue_names), "most": most}))

    def backlogs(self, queue_names: Sequence[str], now: int, most: int) -> list[Backlog]:
        read = min(max(READ // max(len(queue_names), 1), LEAST_READ), most)
        values = {"names": json.dumps(queue_names), "now": now, "most": most, "read": read}
        found = []
        for name, raw, *numbers, later in self._rows(BACKLOGS, values):
            looked_at, retrying = json.loads(later)
            found.append(Backlog(name, bool(raw), *[*numbers, looked_at, retrying or 0]))
        return found

    def held(self, most: int, now: int) -> list[HeldCount]:
        return [HeldCount(*row) for row in self._rows(HELD, {"most": most, "now": now})]

    def running(self, worker_ids: Sequence[str], each: int) -> list[Running]:
        return [Running(*row) for row in self._rows(RUNNING, {"workers": json.dumps(worker_ids), "each": each})]

    def active(self, first: int, last: int, limit: int) -> dict[str, int]:
        return dict(self._rows(ACTIVE, {"first": first, "last": last, "limit": limit}))

    def flow(self, queue_names: Sequence[str], first: int, last: int) -> list[tuple[str, int, int, int, int]]:
        values = {"names": json.dumps(queue_names), "first": first, "last": last}
        return cast(list[tuple[str, int, int, int, int]], self._rows(FLOW, values))

    def times(self, queue_names: Sequence[str], first: int, last: int, each: int) -> list[tuple[str, str, str]]:
        values = {"names": json.dumps(queue_names), "first": first, "last": last, "each": each}
        return [(name, *texts) for name, found in self._rows(TIMES, values) for texts in json.loads(found)]
