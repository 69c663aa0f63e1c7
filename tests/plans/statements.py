"""What each statement of the queue on SQLite is given, and the indexes that it must use."""

import json
from typing import Any

from django_vtqueue.core.grace import GracePeriod
from django_vtqueue.engines.sqlite import due as due
from django_vtqueue.engines.sqlite import limits as limits
from django_vtqueue.engines.sqlite import overflow as overflow
from django_vtqueue.engines.sqlite import settling as settling
from django_vtqueue.engines.sqlite import statements as sql
from django_vtqueue.engines.sqlite import steps as steps

from ..fake_clock import at
from .database import MANY

HELD = json.dumps([["a" + "0" * 31, 1, "w0"], ["a" + "0" * 30 + "1", 1, "w1"]])
IDS = json.dumps(["a" + "0" * 31, "a" + "0" * 30 + "1"])
SETTLEMENTS = json.dumps([["a" + "0" * 31, 1, "w0", 1, 1, None, 1, None, None, 1, "SCHEDULED"]])
DONE = json.dumps({"a" + "0" * 31: [1, 1, 1, None, "null", 1]})
BURIALS = json.dumps([["a" + "0" * 31, 1, "w0", 1, None, "[]", "E", "m", "f", 1, 1]])
WAITS = json.dumps([["a" + "0" * 31, 1, "w0", 0, 1, "event", "paid", 1, 1, "{}", "WAITING"]])
OWN = {"id": "a" + "0" * 31, "claims": 1, "worker_id": "w0"}
EVENT = {"name": "paid", "event": "{}", "now": 1}
UNTIL = {"until": 1, "lengthen": False}
NAMES = json.dumps(["q0", "q1"])
CLAIM = {"raw": True, "now": at(0), "limit": 10, "named": False}
ASKED = {"asked": json.dumps([["q0", "q1"]] * 5)}
EXPIRED = {
    **CLAIM,
    **GracePeriod(500_000, 100_000, "[[1, 2], [3, 1]]", "own")._asdict(),
    "rest": 5_000_000,
    "worker": "w1",
    "overflow": True,
}
READY, QUEUE, HELD_ROWS = "vtqueue_job_ready", "vtqueue_job_queue", "vtqueue_job_held"
WAKES, ASIDE = "vtqueue_job_wake", "vtqueue_job_aside"
WORKER, EXPIRES, START_BY = "vtqueue_job_worker", "vtqueue_job_kept", "vtqueue_job_start_by"
PARENT, UNIQUE = "vtqueue_job_parent", "vtqueue_job_unique"
PARKED, KEY_ORDER, RESERVED = "vtqueue_job_blocked", "vtqueue_job_key_order", "vtqueue_job_booked"
RATE = "sqlite_autoindex_vtqueue_rate_1"
TABLES = {"vtqueue_job", "vtqueue_deadletter", "vtqueue_throughput", "vtqueue_rate"}
KEY, ROWID = "sqlite_autoindex_vtqueue_job_1", "INTEGER PRIMARY KEY"
FEW = {  # rows: any way to them will do
    "vtqueue_queuestate",
    "sqlite_autoindex_vtqueue_queuestate_1",
    "vtqueue_workerprocess",
    "sqlite_autoindex_vtqueue_workerprocess_1",
}
LETTER, LETTER_KEPT = "sqlite_autoindex_vtqueue_deadletter_1", "vtqueue_letter_kept"

STATEMENTS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "expired, all queues": (due.ENDED_LEASES, {**EXPIRED, "names": None}, [HELD_ROWS]),
    "expired, named queues": (due.ENDED_LEASES, {**EXPIRED, "names": NAMES}, [HELD_ROWS]),
    "first lease end": (
        due.FIRST_LEASE_END,
        {"raw": True, "names": None, "grace": 500_000, "worker": ""},
        [HELD_ROWS],
    ),
    "reappeared": (overflow.REAPPEARED, {**EXPIRED, "names": NAMES}, [HELD_ROWS]),
    "wake, all queues": (due.WAKE_ALL, CLAIM, [WAKES, ROWID]),
    "wake, named queues": (due.WAKE_NAMED, {**CLAIM, "names": NAMES}, [ASIDE, ROWID]),
    "any to wake, all queues": (due.ANY_TO_WAKE, CLAIM, [WAKES]),
    "any to wake, named queues": (due.ANY_NAMED_TO_WAKE, {**CLAIM, "names": NAMES}, [ASIDE]),
    "claim, all queues": (due.DUE_ALL, CLAIM, [READY]),
    "claim, one named queue": (due.DUE_OF_ONE, {**CLAIM, "name": "q0"}, [QUEUE]),
    "claim, named queues": (due.DUE_NAMED, {**CLAIM, "names": NAMES}, [QUEUE, ROWID]),
    "earliest, all queues": (due.EARLIEST_ALL, CLAIM, [READY, WAKES]),
    "earliest, named queues": (due.EARLIEST_NAMED, {**CLAIM, "names": NAMES}, [QUEUE, ASIDE]),
    "overdue": (due.OVERDUE, CLAIM, [START_BY]),
    "depth": (sql.DEPTH, {"name": "q0", "now": at(0), "limit": 10}, [QUEUE, ASIDE, HELD_ROWS]),
    "pauses": (sql.PAUSES, {}, []),
    "names of queues": (due.QUEUE_NAMES, {"limit": 100}, [QUEUE, ASIDE, HELD_ROWS]),
    "overdue ones of some": (due.OVERDUE_AMONG, {"ids": IDS, "now": at(0), "named": False}, [KEY]),
    "lease": (
        sql.LEASE,
        {"rowids": f"[{MANY + 1}, {MANY + 2}]", "worker_id": "w", "now": at(0), "lease_us": None, "attempts": 1},
        [ROWID],
    ),
    "read": (sql.READ, {"rowids": f"[{MANY + 1}, {MANY + 2}]"}, [ROWID]),
    "start attempts": (sql.START_ATTEMPTS, {"held": HELD, "now": at(0)}, [KEY]),
    "renew": (sql.RENEW, {"held": HELD, "now": at(0), "afresh": False}, [KEY]),
    "not held": (sql.NOT_HELD, {"held": HELD}, [KEY]),
    "extend": (sql.EXTEND, {"id": "a" + "0" * 31, "claims": 1, "worker_id": "w", "now": 1, **UNTIL}, [KEY]),
    "ack": (settling.ACK, {"done": DONE, "worker_id": "w0", "result": None}, [KEY]),
    "take keys back": (settling.TAKE_KEYS_BACK, {"held": HELD}, [KEY]),
    "make ready": (settling.MAKE_READY, {"settlements": SETTLEMENTS}, [KEY]),
    "wait": (settling.WAIT, {"settlements": WAITS}, [KEY, PARENT]),
    "steps": (steps.STEPS, OWN, [KEY]),
    "note steps": (steps.NOTE_STEPS, {**OWN, "done": "[]", "event": "$.none", "now": at(0)}, [KEY]),
    "note all steps": (
        steps.NOTE_ALL_STEPS,
        {**OWN, "done": "[]", "event": "$.none", "now": at(0), "earlier": "[]"},
        [KEY],
    ),
    "event to an id": (steps.EVENT_TO_ID, {**EVENT, "id": "a" + "0" * 31}, [KEY]),
    "event to a key": (steps.EVENT_TO_KEY, {**EVENT, "queue_name": "q0", "unique_key": "k"}, [UNIQUE]),
    "wake parents": (steps.WAKE_PARENTS, {"ids": IDS, "now": at(0)}, [KEY, PARENT]),
    "remove unkept": (settling.REMOVE_UNKEPT, {"ids": IDS}, [KEY]),
    "bury": (settling.BURY, {"settlements": BURIALS}, [KEY]),
    "remove buried": (settling.REMOVE_BURIED, {"settlements": BURIALS}, [KEY, ROWID]),
    "request cancel": (sql.REQUEST_CANCEL, {"ids": IDS, "now": at(0), "by": "anna"}, [KEY]),
    "cancel requested now": (sql.CANCEL_REQUESTED_NOW, {"ids": IDS, "now": at(0)}, [KEY]),
    "cancel requests": (sql.CANCEL_REQUESTS, {"held": HELD}, [KEY]),
    "note progress": (sql.NOTE_PROGRESS, {"unsaved": HELD}, [KEY]),
    "find": (sql.FIND, {"ids": IDS}, [KEY, LETTER]),
    "held by": (overflow.HELD_BY, {"worker_id": "w1"}, [WORKER, HELD_ROWS]),
    "share": (
        overflow.SHARE,
        {"rowids": f"[{MANY + 1}, {MANY + 2}]", "now": at(0), "runtimes": '{"": [0, 2], "q0": [1, 2]}'},
        [ROWID],
    ),
    "copies": (overflow.COPIES, {"held": HELD}, [KEY]),
    "pass on": (
        overflow.PASS_ON,
        {"id": "a" + "0" * 31, "claims": 1, "worker_id": "w0", "holder": "w1", "since": 1}
        | {"copies": "{}", "history": "[]", "lease_until": 1},
        [KEY],
    ),
    "requeue": (
        sql.REQUEUE,
        {"ids": IDS, "now": at(0), "entry": "{}", "orphan": "", "queue_name": None, "priority": None},
        [LETTER, KEY],
    ),
    "requeued": (sql.REQUEUED, {"ids": IDS}, [LETTER, KEY]),
    "remove requeued": (sql.REMOVE_REQUEUED, {"ids": IDS}, [LETTER, KEY]),
    "prunable": (sql.PRUNABLE, {"now": at(0)}, [EXPIRES, LETTER_KEPT]),
    "prune jobs": (sql.PRUNE_JOBS, {"now": at(0), "limit": 100}, [EXPIRES, ROWID]),
    "prune letters": (sql.PRUNE_LETTERS, {"now": at(0), "limit": 100}, [LETTER_KEPT, ROWID]),
    "held of queues": (limits.HELD_OF_QUEUES, ASKED, [HELD_ROWS]),
    "held of keys": (limits.HELD_OF_KEYS, ASKED, ["vtqueue_job_key_held"]),
    "first of keys": (limits.FIRST_OF_KEYS, ASKED, [KEY_ORDER]),
    "park": (limits.PARK, {"rowids": f"[{MANY + 1}, {MANY + 2}]"}, [ROWID]),
    "unpark one": (limits.UNPARK_ONE, {"keys": NAMES, "ordered": 0}, [PARKED, KEY_ORDER, ROWID]),
    "unpark": (limits.UNPARK, {"key": "q0", "name": "q0", "ordered": 0, "limit": 10}, [PARKED, ROWID]),
    "parked in": (limits.PARKED_IN, {"keys": NAMES, "ordered": 0}, [PARKED, ROWID]),
    "unpark rows": (limits.UNPARK_ROWS, {"rowids": f"[{MANY + 1}, {MANY + 2}]"}, [ROWID]),
    "parked": (limits.PARKED, {"after": "", "limit": 10}, [PARKED, KEY_ORDER, ROWID]),
    "rates": (limits.RATES, ASKED, [RATE]),
    "all rates": (limits.ALL_RATES, {"after": "", "limit": 10}, [RATE]),
    "set rates": (limits.SET_RATES, {"rates": '{"1": {"a": 1}}', "interval": True}, []),
    "forget rates": (limits.FORGET_RATES, {"keys": NAMES}, [RATE]),
    "booked": (limits.LAST_BOOKED, ASKED, [RESERVED, ROWID]),
    "look up": (
        limits.LOOK_UP,
        ASKED,
        [HELD_ROWS, "vtqueue_job_key_held", KEY_ORDER, RATE, RESERVED, ROWID],
    ),
    "look up, none in order": (
        limits.WITHOUT_ORDER,
        ASKED,
        [HELD_ROWS, "vtqueue_job_key_held", RATE, RESERVED, ROWID],
    ),
    "book": (limits.BOOK, {"moments": f"[[{MANY + 1}, 1]]"}, [ROWID]),
    "unbook": (limits.UNBOOK, {"key": "q0", "after": 0, "limit": 10}, [RESERVED, ROWID]),
}

CLAIMS = [name for name in STATEMENTS if name.startswith("claim")]
