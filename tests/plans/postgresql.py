"""A database of PostgreSQL with many rows, its statements with what they are given, and the indexes that they use."""

import json
import os
from collections.abc import Iterator
from typing import Any

from django.db import connections, transaction

from django_vtqueue.engines.postgresql import aside, due, limits, overflow, settling, steps
from django_vtqueue.engines.postgresql import statements as sql
from django_vtqueue.engines.postgresql.places import FIRST, HIGHEST, LOWEST

from ..fake_clock import at

ROWS = int(os.environ.get("VTQUEUE_PLAN_ROWS", "20000"))  # of each kind
TABLES = ("vtqueue_job", "vtqueue_deadletter", "vtqueue_throughput", "vtqueue_rate")

FILL = """
INSERT INTO vtqueue_job (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, enqueued_at, state,
    due_at, wake_at, lease_until, payload, history, finished_at, kept_until
) SELECT
    (%(kind)s || lpad(to_hex(n), 31, '0'))::uuid, 'q' || n %% 5, CASE n %% 2 WHEN 0 THEN '' ELSE 'app.tasks.one' END,
    n %% 7 - 3, 0, 0, 10, CASE WHEN %(state)s IN ('READY', 'SCHEDULED') THEN '' ELSE 'w' || n %% 500 END, 60000000,
    %(now)s, %(state)s, %(visible)s + CASE %(state)s WHEN 'SCHEDULED' THEN n ELSE 0 END,
    CASE %(state)s WHEN 'SCHEDULED' THEN %(visible)s + n END,
    CASE %(state)s WHEN 'RUNNING' THEN %(visible)s END, '{{}}', '[]',
    CASE %(state)s WHEN 'SUCCESSFUL' THEN %(now)s END, CASE %(state)s WHEN 'SUCCESSFUL' THEN %(now)s + 1000000 END
FROM generate_series({first}, %(rows)s - 1) AS n"""

FILL_OTHERS = """
INSERT INTO vtqueue_deadletter (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, enqueued_at, died_at,
    exception_class, message, fingerprint, payload, history
) SELECT ('e' || lpad(to_hex(n), 31, '0'))::uuid, 'q' || n %% 5, 'app.tasks.t' || n %% 7, 0, 1, 1, 1, '', 1, %(now)s,
    %(now)s - n, 'app.E' || n %% 11, 'm' || n, 'f' || n %% 13, '{}', '[]' FROM generate_series(1, %(rows)s) AS n;
INSERT INTO vtqueue_throughput (starts_at, queue_name, worker_id, succeeded, failed, dead, run_times, wait_times)
SELECT %(now)s - (n / 20) * 60000000::bigint, 'q' || n %% 5, 'w' || n / 5 %% 4, 1, 0, 0, '{}', '{}'
FROM generate_series(1, %(rows)s) AS n;
INSERT INTO vtqueue_rate (key, next_at, interval_us)
SELECT 'r' || n, %(now)s, 1000 FROM generate_series(1, %(rows)s) AS n"""


class Table:
    """The tables of one database. ``dead``: pages of an index that are full of entries of rows that are gone.

    ``known``: whether the server has ever made statistics.
    """

    def __init__(self, alias: str) -> None:
        self.alias, self.dead, self.known = alias, 0, True

    def run(self, statement: str, values: Any = None) -> list[tuple[Any, ...]]:
        with connections[self.alias].cursor() as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall()) if cursor.description else []

    def add(self, kind: str, rows: int, state: str, visible: int, first: int = 0) -> None:
        """Add jobs whose ids begin with ``kind``."""
        values = {"kind": kind, "rows": rows, "state": state, "visible": visible, "now": at(0)}
        self.run(FILL.format(first=first), values)

    def fill(self) -> None:
        """Have many rows of each kind; when there were few, and nothing waited, the statistics were made."""
        for table in TABLES:
            self.run(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        self.add("f", 1000, "SUCCESSFUL", at(-100))
        self.analyze()
        self.add("f", ROWS, "SUCCESSFUL", at(-100), first=1000)
        self.add("a", ROWS, "SCHEDULED", at(10_000))
        self.add("b", 1000, "RUNNING", at(60))
        self.run(FILL_OTHERS, {"rows": ROWS // 5, "now": at(0)})

    def analyze(self) -> None:
        self.run(f"ANALYZE {', '.join(TABLES)}")

    def forget(self) -> None:
        """Be as a server that has never made statistics."""
        self.run(f"DELETE FROM pg_statistic WHERE starelid IN ({', '.join(f'{name!r}::regclass' for name in TABLES)})")
        self.run("UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE relname LIKE 'vtqueue_%%'", ())

    def update_much(self) -> None:
        """Change each row, and let nothing clean up behind that."""
        self.run("UPDATE vtqueue_job SET kept_until = kept_until + 1, due_at = due_at + 1")
        self.run("UPDATE vtqueue_job SET history = '[ ]', attempts = 1")

    def vacuum(self) -> None:
        self.run(f"VACUUM {', '.join(TABLES)}")

    def explain(self, statement: str, values: dict[str, Any]) -> dict[str, Any]:
        """Execute a statement and take it back; return its plan, with what it did.

        That is done twice: the first time marks the dead entries of indexes, the second looks at no rows for them.
        """
        self._explain(statement, values)
        return self._explain(statement, values)

    def _explain(self, statement: str, values: dict[str, Any]) -> dict[str, Any]:
        with transaction.atomic(using=self.alias):
            [[[told]]] = self.run(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {statement}", values)
            transaction.set_rollback(True, using=self.alias)
        return dict(told["Plan"])


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the steps of a plan."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


ID, OTHER = "b" + "0" * 31, "b" + "0" * 30 + "1"
WAITING_ID = "a" + "0" * 31
MINE = {
    **{"id": ID, "claims": 0, "worker_id": "w0", "state": "SCHEDULED", "attempts": 1, "due_at": 1, "wake_at": 1},
    **{"finished_at": 1, "kept_until": 1, "result": "null", "started_at": 1, "history": "[]", "held_until": None},
    **{"moved_from": None, "kind": "event"},
    **{"exception_class": "E", "message": "m", "fingerprint": "f", "name": "paid", "until": 1, "since": 1},
    **{"text": "{}", "progress": 0.5, "progress_text": "half"},
}
LEVELS = range(HIGHEST, LOWEST - 1, -1)
VALUES: dict[str, Any] = {
    "ids": [ID, OTHER],
    "mine": json.dumps([MINE, {**MINE, "id": OTHER, "worker_id": "w1"}]),
    **{"id": ID, "claims": 0, "worker_id": "w0", "holder": "w1", "lease_us": None, "attempts": 1, "by": "anna"},
    **{"names": ["q0", "q1"], "name": "q0", "raw": True, "worker": "", "now": at(0), "limit": 10, "wider": 120},
    **{"levels": list(LEVELS), "moments": [FIRST[0] for _ in LEVELS], "handles": [FIRST[1] for _ in LEVELS]},
    **{"grace": 500_000, "free": 100_000, "gaps": "[[1, 2], [3, 1]]", "own": "own", "rest": 5_000_000},
    **{"overflow": True, "keys": ["r1", "r2"], "limits": [10, 10], "key": "r1", "after": "", "afresh": False},
    **{"lengthen": False, "until": 1, "next": [1, 1], "intervals": [1, 1], "interval": True, "moment": 1},
    **{"queue_name": None, "priority": None, "entry": "{}", "orphaned": "{}", "unique_key": "k", "since": 1},
    **{"copies": "{}", "history": "[]", "lease_until": 1, "runtimes": '{"": [0, 2], "q0": [1, 2]}', "done": "[]"},
    **{"event": '{"name": "paid"}', "parent_id": None, "ordered": False},
}
OF_EVENT = {**VALUES, "queue_name": "q0"}
OF_LETTERS = {**VALUES, "ids": ["e" + "0" * 30 + "1", "e" + "0" * 30 + "2"]}

KEY, LETTER = "vtqueue_job_pkey", "vtqueue_deadletter_pkey"
READY, QUEUE, HELD = "vtqueue_job_ready", "vtqueue_job_queue", "vtqueue_job_held"
WAKES, ASIDE = "vtqueue_job_wake", "vtqueue_job_aside"
PARKED, KEY_ORDER, KEY_HELD = "vtqueue_job_blocked", "vtqueue_job_key_order", "vtqueue_job_key_held"
RESERVED, RATE, PARENT, UNIQUE = "vtqueue_job_booked", "vtqueue_rate_pkey", "vtqueue_job_parent", "vtqueue_job_unique"
KEPT, LETTER_KEPT, START_BY = "vtqueue_job_kept", "vtqueue_letter_kept", "vtqueue_job_start_by"


def claiming(statement: str) -> str:
    return due.locking(statement, True)


STATEMENTS: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "claim, all queues": (claiming(due.SEARCH_FROM_FIRST.all), VALUES, {READY}),
    "claim, one queue": (claiming(due.SEARCH_FROM_FIRST.one), VALUES, {QUEUE}),
    "claim, several queues": (claiming(due.SEARCH_FROM_FIRST.named), VALUES, {QUEUE, KEY}),
    "claim from places, all queues": (claiming(due.SEARCH_FROM_PLACES.all), VALUES, {READY}),
    "claim from places, one queue": (claiming(due.SEARCH_FROM_PLACES.one), VALUES, {QUEUE}),
    "claim from places, several queues": (claiming(due.SEARCH_FROM_PLACES.named), VALUES, {QUEUE, KEY}),
    "earliest, all queues": (due.SEARCH_FROM_FIRST.earliest, VALUES, {READY}),
    "earliest, named queues": (due.SEARCH_FROM_FIRST.earliest_named, VALUES, {QUEUE}),
    "earliest from places, all queues": (due.SEARCH_FROM_PLACES.earliest, VALUES, {READY}),
    "earliest from places, named queues": (due.SEARCH_FROM_PLACES.earliest_named, VALUES, {QUEUE}),
    "wake, all queues": (aside.WAKE.format(aside.OF_ALL), VALUES, {WAKES, KEY}),
    "wake, named queues": (aside.WAKE.format(aside.NAMED), VALUES, {WAKES, ASIDE, KEY}),
    "any to wake, all queues": (aside.ANY_TO_WAKE.format(aside.OF_ALL), VALUES, {WAKES}),
    "any to wake, named queues": (aside.ANY_TO_WAKE.format(aside.NAMED), VALUES, {WAKES, ASIDE}),
    "first to wake, all queues": (aside.FIRST_TO_WAKE, VALUES, {WAKES}),
    "first to wake, named queues": (aside.FIRST_NAMED_TO_WAKE, VALUES, {ASIDE}),
    "overdue": (claiming(due.OVERDUE), VALUES, {START_BY}),
    "overdue ones of some": (claiming(due.OVERDUE_AMONG), VALUES, {KEY}),
    "ended leases, all queues": (claiming(due.ENDED_LEASES), {**VALUES, "names": None}, {HELD}),
    "ended leases, named queues": (claiming(due.ENDED_LEASES), VALUES, {HELD}),
    "reappeared": (claiming(due.REAPPEARED), VALUES, {HELD}),
    "first end of a lease": (due.FIRST_LEASE_END, VALUES, {HELD}),
    "names of queues": (due.QUEUE_NAMES, VALUES, {QUEUE, ASIDE, HELD}),
    "depth": (sql.DEPTH, VALUES, {QUEUE, ASIDE, HELD}),
    "lease": (sql.LEASE, {**VALUES, "ids": [WAITING_ID]}, {KEY}),
    "read": (sql.READ, VALUES, {KEY}),
    "read and lock": (sql.READ_LOCKED, VALUES, {KEY}),
    "renew": (sql.RENEW, VALUES, {KEY}),
    "renew what is not locked": (sql.RENEW_UNLOCKED, VALUES, {KEY}),
    "not held": (sql.NOT_HELD, VALUES, {KEY}),
    "start attempts": (sql.START_ATTEMPTS, VALUES, {KEY}),
    "extend": (sql.EXTEND, VALUES, {KEY}),
    "request cancel": (sql.REQUEST_CANCEL, VALUES, {KEY}),
    "cancel requests": (sql.CANCEL_REQUESTS, VALUES, {KEY}),
    "note progress": (sql.NOTE_PROGRESS, VALUES, {KEY}),
    "find": (sql.FIND, VALUES, {KEY, LETTER}),
    "requeue": (sql.REQUEUE, OF_LETTERS, {LETTER, KEY}),
    "remove requeued": (sql.REMOVE_REQUEUED, OF_LETTERS, {LETTER, KEY}),
    "prunable": (sql.PRUNABLE, VALUES, {KEPT, LETTER_KEPT}),
    "prune jobs": (sql.PRUNE_JOBS, VALUES, {KEPT, KEY}),
    "prune letters": (sql.PRUNE_LETTERS, VALUES, {LETTER_KEPT, LETTER}),
    "take keys back": (settling.TAKE_KEYS_BACK, VALUES, {KEY, UNIQUE}),
    "ack": (settling.ACK, VALUES, {KEY}),
    "make ready": (settling.MAKE_READY, VALUES, {KEY}),
    "wait": (settling.WAIT, VALUES, {KEY, PARENT}),
    "remove unkept": (settling.REMOVE_UNKEPT, VALUES, {KEY}),
    "bury": (settling.BURY, VALUES, {KEY}),
    "held of queues": (limits.HELD_OF_QUEUES, {**VALUES, "keys": ["q9"]}, {HELD}),
    "held of keys": (limits.HELD_OF_KEYS, VALUES, {KEY_HELD, HELD}),
    "first of keys": (limits.FIRST_OF_KEYS, VALUES, {KEY_ORDER}),
    "park": (limits.PARK, {**VALUES, "ids": [WAITING_ID]}, {KEY}),
    "unpark": (limits.UNPARK, VALUES, {PARKED, KEY_ORDER, KEY}),
    "unpark rows": (limits.UNPARK_ROWS, VALUES, {KEY}),
    "parked": (limits.PARKED, VALUES, {PARKED, KEY_ORDER}),
    "rates": (limits.RATES, VALUES, {RATE}),
    "all rates": (limits.ALL_RATES, VALUES, {RATE}),
    "forget rates": (limits.FORGET_RATES, VALUES, {RATE}),
    "booked": (limits.LAST_BOOKED, VALUES, {RESERVED}),
    "book": (limits.BOOK, {**VALUES, "ids": [WAITING_ID], "moments": [1]}, {KEY}),
    "unbook": (limits.UNBOOK, {**VALUES, "after": 0}, {RESERVED, KEY}),
    "held by": (overflow.HELD_BY.format(lock=""), VALUES, {"vtqueue_job_worker"}),
    "share": (overflow.SHARE, VALUES, {KEY}),
    "copies": (overflow.COPIES, VALUES, {KEY}),
    "pass on": (overflow.PASS_ON, VALUES, {KEY}),
    "steps": (steps.STEPS, VALUES, {KEY}),
    "note steps": (steps.NOTE_STEPS, {**VALUES, "event": 0}, {KEY}),
    "note all steps": (steps.NOTE_ALL_STEPS, {**VALUES, "event": 0, "earlier": "[]"}, {KEY}),
    "event to an id": (steps.EVENT_TO_ID, OF_EVENT, {KEY}),
    "event to a key": (steps.EVENT_TO_KEY, OF_EVENT, {UNIQUE}),
    "lock parents": (steps.LOCK_ROWS, VALUES, {KEY}),
    "wake parents": (steps.WAKE_PARENTS, VALUES, {KEY, PARENT}),
}
CLAIMS = [name for name in STATEMENTS if name.startswith("claim")]
