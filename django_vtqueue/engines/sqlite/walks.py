"""The statements of lists on SQLite: jobs and dead letters in the order of an index, a slice at a time.

A walk is the FROM of a statement: rows in the order of an index, from a key on. The LIMIT stands inside, around the
walk, and the query's conditions outside: SQLite reads one slice of rows, whatever matches, and no more of it than a
page needs (the inner SELECT runs as a coroutine). Behind the last match comes the last row of the slice.
"""

from collections.abc import Callable

from ...core.states import FAILED
from ..inspection import STEPS
from .due import WITH_HIDDEN, WITH_WAITING, found

Walk = Callable[[str], str]  # columns -> a SELECT of them

WORD = """CASE
    WHEN job.finished_at IS NOT NULL THEN 'done'
    WHEN job.state = 'RUNNING' THEN CASE WHEN job.lease_until > :now THEN 'running' ELSE 'expired' END
    WHEN job.due_at <= :now THEN 'due'
    WHEN job.attempts THEN 'retrying'
    ELSE 'scheduled'
END"""


def same(row: str) -> str:
    """Return what jobs and letters are asked for alike; the plus keeps the planner off all indexes but the walk's."""
    return f"""(:queue_name IS NULL OR +{row}.queue_name = :queue_name)
    AND (:task_path IS NULL OR +{row}.task_path = :task_path)
    AND (:worker_id IS NULL OR +{row}.worker_id = :worker_id)"""


SAME_JOB = f"""{same("job")}
    AND +job.id >= :first_id AND +job.id < :end_id AND +job.task_path <> '{STEPS}'"""
SAME_LETTER = f"""{same("letter")}
    AND (:exception_class IS NULL OR +letter.exception_class = :exception_class)
    AND (:fingerprint IS NULL OR +letter.fingerprint = :fingerprint)
    AND (:acknowledged IS NULL OR (letter.acknowledged_at IS NOT NULL) = :acknowledged)"""

# What is found in what is shown as it is; in a payload a text is found only if it is in what is shown of that, which is
# seen later.
TEXT_OF_JOB = "(job.id LIKE :digits OR job.task_path LIKE :text ESCAPE '!')"
TEXT_OF_LETTER = """(letter.id LIKE :digits OR letter.task_path LIKE :text ESCAPE '!'
    OR letter.exception_class LIKE :text ESCAPE '!' OR letter.message LIKE :text ESCAPE '!')"""

NEWEST = """
    FROM vtqueue_job AS job WHERE job.id < :after AND job.id >= :first_id ORDER BY job.id DESC"""

HELD = """
    FROM vtqueue_job AS job INDEXED BY vtqueue_job_worker
    WHERE job.state = 'RUNNING' AND (job.worker_id, job.rowid) > (:holder, :after)
    ORDER BY job.worker_id, job.rowid"""

# Damaged times are texts, above every number, and not walked to.
WAITING = "job.finished_at IS NULL AND job.lease_until IS NULL AND (job.task_path = '') = {raw}"
LEVEL_OF_ROW = f"{WAITING} AND job.priority = {{priority}}"
TIED = LEVEL_OF_ROW.format(raw=":raw", priority=":priority")
OF_LEVEL = LEVEL_OF_ROW.format(raw="json_extract(level.value, '$[1]')", priority="json_extract(level.value, '$[0]')")


def waiting(columns: str, index: str, of_queue: str) -> str:
    """Return the walk in claim order, with its SELECT: the rest of one instant, then what comes later or is below.

    Two ranges, because SQLite would walk over all rows of an instant for a row value.
    """
    return f"""
    SELECT {columns} FROM vtqueue_job AS job INDEXED BY {index}
    WHERE {of_queue} {TIED} AND job.due_at = :due_at AND job.rowid > :after AND job.due_at < :end
    UNION ALL
    SELECT {columns} FROM json_each(:levels) AS level CROSS JOIN vtqueue_job AS job INDEXED BY {index}
    WHERE {of_queue} {OF_LEVEL} AND job.due_at > json_extract(level.value, '$[2]') AND job.due_at < :end"""


def walk(columns: str, rows: str) -> str:
    """Return a walk with its SELECT."""
    return f"SELECT {columns} {rows}"


ALL_WAITING = ("vtqueue_job_due", "")
WAITING_OF_QUEUE = ("vtqueue_job_queue", "job.queue_name = :queue_name AND")


def page(walked: Walk, key: str, row: str, wanted: str, text: str = "") -> str:
    """Return the statement for a slice: the rows that are wanted, then the last one that was looked at.

    ``text``: the condition for the text of a query; then payloads are looked into, and those that have it come along.
    """
    columns = f"{row}.id AS id, {row}.task_path AS task_path, {key} AS key, {wanted} AS wanted"
    if text:
        columns += f", {text} AS plain, CASE WHEN {wanted} AND NOT {text} THEN {row}.payload END AS payload"
        columns += f", {row}.queue_name AS queue_name"
    return f"""
SELECT * FROM (
    SELECT id, key, task_path, {"payload, queue_name" if text else "NULL, NULL"} FROM ({walked(columns)} LIMIT :slice)
    WHERE wanted {"AND (plain OR payload LIKE :in_payload ESCAPE '!')" if text else ""}
)
UNION ALL
SELECT NULL, key, NULL, NULL, NULL FROM (SELECT key FROM ({walked(f"{key} AS key")}) LIMIT 1 OFFSET :slice - 1)"""


def words(walked: Walk) -> str:
    """Return the statement that counts the jobs of a slice by their word; those that the query leaves out have none."""
    columns = f"CASE WHEN {SAME_JOB} THEN {WORD} END AS word"
    return f"SELECT word, count(*) FROM ({walked(columns)} LIMIT :slice) GROUP BY word"


WANTED_WORD = f"(:word = '' OR {WORD} = :word)"
WANTED_JOB = f"({SAME_JOB} AND {WANTED_WORD})"
KEYS = {
    "newest": "json_array(job.id)",
    "held": "json_array(CAST(job.worker_id AS TEXT), job.rowid)",
    "waiting": "json_array(job.priority, job.task_path = '', job.due_at, job.rowid)",
}
PARTS: dict[str, tuple[type, ...]] = {"newest": (str,), "held": (str, int), "waiting": (int, int, int, int)}
WALKS: dict[str, Walk] = {
    "newest": lambda columns: walk(columns, NEWEST),
    "held": lambda columns: walk(columns, HELD),
    "waiting": lambda columns: waiting(columns, *ALL_WAITING),
    "waiting of queue": lambda columns: waiting(columns, *WAITING_OF_QUEUE),
}
PAGES = {
    (name, bool(text)): page(walked, KEYS[name.split()[0]], "job", WANTED_JOB, text)
    for name, walked in WALKS.items()
    for text in ("", TEXT_OF_JOB)
}
COUNTS = {name: words(walked) for name, walked in WALKS.items()}


def levels_below(index: str, of_queue: str) -> str:
    """Return the statement for the priorities of what waits, of tasks and of raw payloads."""
    rows = f"""SELECT job.priority FROM vtqueue_job AS job INDEXED BY {index}
        WHERE {of_queue} {WAITING} AND job.priority < {{above}}
        ORDER BY job.priority DESC LIMIT 1"""
    return f"""
WITH RECURSIVE level(raw, priority) AS (
    SELECT kind.value, ({rows.format(raw="kind.value", above="''")}) FROM json_each('[0,1]') AS kind
    UNION ALL
    SELECT level.raw, ({rows.format(raw="level.raw", above="level.priority")})
    FROM level WHERE level.priority IS NOT NULL
)
SELECT json_group_array(json_array(priority, raw)) FROM level WHERE priority IS NOT NULL"""


LEVELS = {"waiting": levels_below(*ALL_WAITING), "waiting of queue": levels_below(*WAITING_OF_QUEUE)}


def letters(index: str, of_group: str, text: str) -> str:
    """Return the statement for a slice of dead letters, the newest death first."""
    rows = f"""
    FROM vtqueue_deadletter AS letter INDEXED BY {index}
    WHERE {of_group} (letter.died_at, letter.id) < (:died_at, :after) AND letter.died_at >= :since
    ORDER BY letter.died_at DESC, letter.id DESC"""
    key = "json_array(letter.died_at, letter.id)"
    return page(lambda columns: walk(columns, rows), key, "letter", f"({SAME_LETTER})", text)


GROUPS = {
    "fingerprint": ("vtqueue_letter_group", "letter.fingerprint = :fingerprint AND letter.task_path = :task_path AND"),
    "exception_class": ("vtqueue_letter_exception", "letter.exception_class = :exception_class AND"),
    "task_path": ("vtqueue_letter_task", "letter.task_path = :task_path AND"),
    "queue_name": ("vtqueue_letter_queue", "letter.queue_name = :queue_name AND"),
    "": ("vtqueue_letter_died", ""),
}
LETTERS = {(name, bool(text)): letters(*group, text) for name, group in GROUPS.items() for text in ("", TEXT_OF_LETTER)}


def names(table: str, column: str, index: str, condition: str = "1") -> str:
    """Return the statement for the distinct values of a column, each found by one seek."""
    first = f"""SELECT {column} FROM {table} INDEXED BY {index} WHERE {condition} AND {column} > {{last}}
        ORDER BY {column} LIMIT 1"""
    return f"""
WITH RECURSIVE name(value) AS (
    SELECT ({first.format(last="''")})
    UNION ALL
    SELECT ({first.format(last="name.value")}) FROM name WHERE name.value IS NOT NULL
    LIMIT :limit
)
SELECT json_group_array(value) FROM name WHERE value IS NOT NULL"""


QUEUES = f"""
SELECT json_group_array(value) FROM (
    SELECT value FROM {found(*WITH_WAITING, limit="LIMIT :limit")}
    UNION ALL SELECT value FROM {found(*WITH_HIDDEN, limit="LIMIT :limit")}
)"""
NAMES = {
    ("job", "queue_name"): QUEUES,
    ("job", "worker_id"): names("vtqueue_job", "worker_id", "vtqueue_job_worker", "state = 'RUNNING'"),
    ("deadletter", "queue_name"): names("vtqueue_deadletter", "queue_name", "vtqueue_letter_queue"),
    ("deadletter", "task_path"): names("vtqueue_deadletter", "task_path", "vtqueue_letter_task"),
    ("deadletter", "exception_class"): names("vtqueue_deadletter", "exception_class", "vtqueue_letter_exception"),
}


# The ids alone are in the index.
IDS_ENDING = {
    table: f"""
SELECT json_group_array(id) FROM (
    SELECT id FROM (SELECT id FROM vtqueue_{table} ORDER BY id DESC LIMIT :slice)
    WHERE substr(id, -:length) = :digits LIMIT :limit
)"""
    for table in ("job", "deadletter")
}

# Of a large payload only the size is brought along.
PAYLOADS = {
    table: f"""
SELECT id, CASE WHEN length(payload) <= :longest THEN CAST(payload AS TEXT) ELSE length(payload) END
FROM vtqueue_{table} WHERE id IN (SELECT value FROM json_each(:ids))"""
    for table in ("job", "deadletter")
}

# Both tables in one statement: two would miss a job that is requeued in between.
STATES = f"""
SELECT state, count(*) FROM (
    SELECT CAST(state AS TEXT) AS state FROM vtqueue_job WHERE id IN (SELECT value FROM json_each(:ids))
    UNION ALL
    SELECT '{FAILED}' FROM vtqueue_deadletter WHERE id IN (SELECT value FROM json_each(:ids))
) GROUP BY state"""
