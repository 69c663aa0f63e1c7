"""What the database refuses in any row, whatever has written it: so no claim has to look whether a row can be one.

What no CHECK can hold (a text that is not UTF-8, a payload that is no JSON) costs the job that has it, and no other.
"""

from typing import Any

from django.db.models import (
    BaseConstraint,
    BooleanField,
    Case,
    CheckConstraint,
    ExpressionWrapper,
    F,
    Func,
    Q,
    Value,
    When,
)
from django.db.models.expressions import RawSQL
from django.db.models.lookups import Exact

from ..core import states
from ..core.job import LONGEST_LEASE, MOST_CLAIMS

# Comparisons: many inserts are a third slower with calls of typeof(). NULL passes. What is no integer is another value
# after ``| 0``. A column of text holds only texts and BLOBs, and every text is less than a BLOB.
KINDS = {
    "integer": "({0} | 0) IS {0}",
    "text": "{0} < x''",
    "id": "{0} < x'' AND length({0}) = 32",
}


# On PostgreSQL JSON that statements read is parsed when it is stored, for none could pass over a damaged row. ``json``
# has any escape, and fails when it is read; to make ``jsonb`` of long steps takes ten times as long (measured).
PARSED = {
    "copies": "jsonb_typeof({0}::jsonb)",
    "steps": "CASE strpos({0}, E'\\\\u') WHEN 0 THEN json_typeof({0}::json) ELSE jsonb_typeof({0}::jsonb) END",
}


class OfKind(Func):
    """The condition of a CHECK that columns have values of a kind or none: ``OfKind(integer="priority claims")``.

    SQLite stores any value in any column; on other databases the types of the columns say the same.
    """

    output_field = BooleanField()

    def __init__(self, **columns: str) -> None:
        kinds = [(kind, column) for kind, names in columns.items() for column in names.split()]
        super().__init__(*(column for _, column in kinds))
        self.kinds = [kind for kind, _ in kinds]

    def as_sql(self, *args: Any, **context: Any) -> Any:
        return "(1 = 1)", ()

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        columns = [(column.target.name, compiler.compile(column)[0]) for column in self.get_source_expressions()]
        conditions = [f"{PARSED[name].format(sql)} = 'object'" for name, sql in columns if name in PARSED]
        return f"({' AND '.join(conditions or ['1 = 1'])})", ()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        conditions, params = [], []
        for kind, column in zip(self.kinds, self.get_source_expressions(), strict=True):
            sql, given = compiler.compile(column)
            conditions.append(KINDS[kind].format(sql))
            params += [*given] * KINDS[kind].count("{0}")
        return f"({' AND '.join(conditions)})", params


def in_state(state: str) -> Q:
    """Return the condition that a job is in a state, written out: for a parameter SQLite takes no index of it."""
    return Q(Exact(F("state"), RawSQL(f"'{state}'", ())))


def holds(condition: Q) -> ExpressionWrapper:
    """Return whether a condition holds, to be compared."""
    return ExpressionWrapper(condition, output_field=BooleanField())


# PostgreSQL reads and plans each CHECK anew for each statement that writes: each comparison is a sixtieth of one INSERT
# (measured). So they are few, and say nothing twice.
OF_JOBS: list[BaseConstraint] = [
    CheckConstraint(
        name="vtqueue_job_state",
        condition=Q(
            state=Case(
                When(
                    Q(wake_at__isnull=True),
                    then=Case(
                        When(lease_until__isnull=False, then=Value(states.RUNNING)),
                        When(~Q(worker_id=""), then=Value(states.SUCCESSFUL)),
                        default=Value(states.READY),
                    ),
                ),
                When(Q(lease_until__isnull=True, worker_id="", state__in=states.ASIDE), then=F("state")),
                default=Value(""),
            )
        ),
    ),
    CheckConstraint(
        name="vtqueue_job_finished",
        condition=Exact(holds(Q(finished_at__isnull=False)), holds(Q(state=states.SUCCESSFUL))),
    ),
    CheckConstraint(
        name="vtqueue_job_numbers",
        condition=Q(priority__gte=-100, priority__lte=100)
        & Q(lease_us__gt=0, lease_us__lte=LONGEST_LEASE)
        & Q(claims__lte=MOST_CLAIMS, attempts__lte=MOST_CLAIMS),
    ),
    CheckConstraint(
        name="vtqueue_job_kinds",
        condition=OfKind(
            id="id",
            integer="priority max_attempts enqueued_at start_by due_at cancelled_at ordered",
            text="queue_name task_path unique_key concurrency_key rate_key parent_id copies cancelled_by "
            "metadata payload",
        ),
    ),
    CheckConstraint(  # what each claim and each settlement changes: SQLite leaves out the CHECKs of other columns
        name="vtqueue_job_attempt",
        condition=OfKind(
            integer="claims attempts lease_us started_at lease_until wake_at moved_from finished_at kept_until",
            text="worker_id unique_until history result steps earlier_steps progress_text",
        ),
    ),
]
OF_LETTERS: list[BaseConstraint] = [
    CheckConstraint(
        name="vtqueue_letter_kinds",
        condition=OfKind(
            id="id",
            integer="priority claims attempts max_attempts lease_us enqueued_at started_at kept_until died_at "
            "reviewed_at ordered",
            text="queue_name task_path worker_id unique_key unique_until concurrency_key rate_key parent_id metadata "
            "payload history steps earlier_steps exception_class message fingerprint reviewed_by note",
        ),
    ),
]
OF_PAUSES: list[BaseConstraint] = [
    CheckConstraint(name="vtqueue_pause_moments", condition=OfKind(integer="paused_at paused_until")),
]
OF_RATES: list[BaseConstraint] = [
    CheckConstraint(name="vtqueue_rate_moments", condition=OfKind(integer="next_at interval_us")),
]
OF_SCHEDULES: list[BaseConstraint] = [
    CheckConstraint(name="vtqueue_schedule_moments", condition=OfKind(integer="jitter_us next_at last_at paused_at")),
]
OF_WORKERS: list[BaseConstraint] = [
    CheckConstraint(name="vtqueue_worker_moments", condition=OfKind(integer="started_at heartbeat_at died_at")),
]
OF_ORIGIN: list[BaseConstraint] = [
    CheckConstraint(name="vtqueue_origin_one", condition=Q(id=1)),
    CheckConstraint(name="vtqueue_origin_moments", condition=OfKind(integer="worked_at")),
]
OF_COUNTS: list[BaseConstraint] = [
    CheckConstraint(name="%(app_label)s_%(class)s_moments", condition=OfKind(integer="starts_at")),
]
OF_REQUEUES: list[BaseConstraint] = [
    CheckConstraint(name="vtqueue_requeue_moments", condition=OfKind(integer="created_at last_died_at ended_at")),
]
