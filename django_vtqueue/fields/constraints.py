"""What the database refuses in any row, whoever writes it: so no claim has to look whether a row can be one.

What no CHECK can hold (a text that is not UTF-8, a payload that is no JSON) costs the job that has it, and no other.
"""

from typing import Any

from django.db.models import BaseConstraint, BooleanField, CheckConstraint, Func, Q

from ..core import states
from ..core.job import LONGEST_LEASE, MOST_CLAIMS

# Comparisons: many inserts are a third slower with calls of typeof(). NULL passes. What is no integer is another value
# after ``| 0``. A column of text holds only texts and BLOBs, and every text is less than a BLOB.
KINDS = {
    "integer": "({0} | 0) IS {0}",
    "text": "{0} < x''",
    "id": "{0} < x'' AND length({0}) = 32",
}


PARSED = ("copies", "steps")


class OfKind(Func):
    """The condition of a CHECK that columns, named with spaces between them, have values of a kind or none.

    SQLite stores any value in any column; on other databases the types of the columns say the same.
    """

    output_field = BooleanField()

    def __init__(self, kind: str, columns: str) -> None:
        super().__init__(*columns.split(), kind=kind)

    def as_sql(self, *args: Any, **context: Any) -> Any:
        return "(1 = 1)", ()

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """See as_sql; JSON that statements read is parsed when it is stored, for none could pass over a damaged row."""
        columns = self.get_source_expressions() if self.extra["kind"] == "text" else ()
        texts = [compiler.compile(column)[0] for column in columns if column.target.name in PARSED]
        conditions = [f"({text} IS NULL OR json_typeof({text}::json) = 'object')" for text in texts]
        return f"({' AND '.join(conditions or ['1 = 1'])})", ()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        condition, columns = KINDS[self.extra["kind"]], map(compiler.compile, self.get_source_expressions())
        each = [(condition.format(column), params * condition.count("{0}")) for column, params in columns]
        return f"({' AND '.join(sql for sql, _ in each)})", tuple(value for _, params in each for value in params)


OF_JOBS: list[BaseConstraint] = [
    CheckConstraint(
        name="vtqueue_job_state",
        condition=Q(state__in=[states.READY, states.RUNNING], finished_at__isnull=True)
        | Q(state=states.SUCCESSFUL, finished_at__isnull=False),
    ),
    CheckConstraint(
        name="vtqueue_job_holder",
        condition=Q(state=states.READY, worker_id="")
        | (Q(state=states.RUNNING, lease_until__isnull=False) & ~Q(worker_id=""))
        | (Q(state=states.SUCCESSFUL, lease_until__isnull=True) & ~Q(worker_id="")),
    ),
    CheckConstraint(name="vtqueue_job_priority", condition=Q(priority__gte=-100) & Q(priority__lte=100)),
    CheckConstraint(name="vtqueue_job_lease", condition=Q(lease_us__gt=0) & Q(lease_us__lte=LONGEST_LEASE)),
    CheckConstraint(name="vtqueue_job_counts", condition=Q(claims__lte=MOST_CLAIMS) & Q(attempts__lte=MOST_CLAIMS)),
    CheckConstraint(name="vtqueue_job_id", condition=OfKind("id", "id")),
    CheckConstraint(
        name="vtqueue_job_integers", condition=OfKind("integer", "priority claims attempts max_attempts lease_us")
    ),
    CheckConstraint(
        name="vtqueue_job_moments",
        condition=OfKind(
            "integer",
            "enqueued_at started_at kept_until start_by due_at lease_until moved_from finished_at cancelled_at",
        ),
    ),
    CheckConstraint(
        name="vtqueue_job_texts",
        condition=OfKind(
            "text",
            "queue_name task_path worker_id unique_key unique_until concurrency_key rate_key parent_id copies payload "
            "history result steps cancelled_by progress_text",
        ),
    ),
]
OF_LETTERS: list[BaseConstraint] = [
    CheckConstraint(name="vtqueue_letter_id", condition=OfKind("id", "id")),
    CheckConstraint(
        name="vtqueue_letter_integers", condition=OfKind("integer", "priority claims attempts max_attempts lease_us")
    ),
    CheckConstraint(
        name="vtqueue_letter_moments",
        condition=OfKind("integer", "enqueued_at started_at kept_until died_at acknowledged_at"),
    ),
    CheckConstraint(
        name="vtqueue_letter_texts",
        condition=OfKind(
            "text",
            "queue_name task_path worker_id unique_key unique_until concurrency_key rate_key parent_id payload history "
            "steps exception_class message fingerprint acknowledged_by note",
        ),
    ),
]
OF_PAUSES: list[BaseConstraint] = [
    CheckConstraint(name="vtqueue_pause_moments", condition=OfKind("integer", "paused_at paused_until")),
]
OF_RATES: list[BaseConstraint] = [
    CheckConstraint(name="vtqueue_rate_moments", condition=OfKind("integer", "next_at interval_us")),
]
OF_SCHEDULES: list[BaseConstraint] = [
    CheckConstraint(
        name="vtqueue_schedule_moments", condition=OfKind("integer", "jitter_us next_at last_at paused_at")
    ),
]
OF_WORKERS: list[BaseConstraint] = [
    CheckConstraint(name="vtqueue_worker_moments", condition=OfKind("integer", "started_at heartbeat_at died_at")),
]
OF_ORIGIN: list[BaseConstraint] = [
    CheckConstraint(name="vtqueue_origin_one", condition=Q(id=1)),
    CheckConstraint(name="vtqueue_origin_moments", condition=OfKind("integer", "worked_at")),
]
OF_COUNTS: list[BaseConstraint] = [
    CheckConstraint(name="%(app_label)s_%(class)s_moments", condition=OfKind("integer", "starts_at")),
]
OF_REQUEUES: list[BaseConstraint] = [
    CheckConstraint(name="vtqueue_requeue_moments", condition=OfKind("integer", "created_at last_died_at ended_at")),
]
