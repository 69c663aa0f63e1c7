"""Rows arrive in a database: which are inserted, which it refuses, and which of two holds where it has one already."""

from collections.abc import Iterable, Iterator
from uuid import UUID

from django.db import DataError, IntegrityError, connections, models
from django.db.models.functions import Greatest

from ..core import states
from ..core.names import LEASE, is_reserved
from ..core.unique import STARTED
from ..engines import engine_for
from ..models import DeadLetter, Job
from ..models.jobs import HAS_KEY
from .rows import MODELS, OF_JOBS, Refusals, Row, Tables, key_of, name_of, present

COUNTS = """ON CONFLICT (starts_at, queue_name, task_path, worker_id) DO UPDATE SET
    succeeded = excluded.succeeded, failed = excluded.failed, dead = excluded.dead, run_times = excluded.run_times,
    wait_times = excluded.wait_times, depth = excluded.depth"""
# Of a row that is there already: counts are replaced, for their worker has written them later; of two rates, two next
# ticks, and two ends of a pause, the later one holds. A job or a dead letter that is there already is refused.
IF_THERE = {
    "QueueState": """ON CONFLICT (queue_name) DO UPDATE SET
    paused_at = excluded.paused_at, paused_until = excluded.paused_until, paused_by = excluded.paused_by,
    reason = excluded.reason
    WHERE excluded.paused_until IS NULL OR excluded.paused_until > vtqueue_queuestate.paused_until""",
    "Rate": """ON CONFLICT (key) DO UPDATE SET interval_us = excluded.interval_us, next_at =
    CASE WHEN excluded.next_at > vtqueue_rate.next_at THEN excluded.next_at ELSE vtqueue_rate.next_at END""",
    "Schedule": """ON CONFLICT (name) DO UPDATE SET
    task_path = excluded.task_path, expression = excluded.expression, time_zone = excluded.time_zone,
    payload = excluded.payload, missed = excluded.missed, overlap = excluded.overlap, jitter_us = excluded.jitter_us,
    queue_name = excluded.queue_name, priority = excluded.priority, declared = excluded.declared,
    paused_at = excluded.paused_at, paused_by = excluded.paused_by, recent = excluded.recent,
    last_at = coalesce(excluded.last_at, vtqueue_schedule.last_at), next_at =
    CASE WHEN vtqueue_schedule.next_at > excluded.next_at THEN vtqueue_schedule.next_at ELSE excluded.next_at END""",
    "Throughput": COUNTS,
    "HourlyThroughput": COUNTS,
}


def put(tables: Tables, alias: str) -> tuple[Tables, Refusals]:
    """Insert rows, in the caller's transaction; return those that the database refuses, and why.

    With one job its whole family is refused.
    """
    tables = not_joined(tables, alias)
    there = existing(tables, alias)
    groups = list(families(tables))
    new = [group for group in groups if there.isdisjoint(ids_of(group))]
    try:
        insert_all(unnumbered(merged(new)), alias)
        refused = {}
    except (IntegrityError, DataError):
        refused = {index: reason for index, group in enumerate(new) if (reason := try_insert(unnumbered(group), alias))}
    left = [(group, "it is there already") for group in groups if not there.isdisjoint(ids_of(group))]
    left += [(new[index], reason) for index, reason in refused.items()]
    return merged([group for group, _ in left]), {name: why for group, why in left for name in names_of(group)}


def unnumbered(tables: Tables) -> Tables:
    """Return rows without the numbers that each database gives by itself."""
    numbers = {name: key_of(MODELS[name]) for name in tables if isinstance(MODELS[name]._meta.pk, models.AutoField)}
    return {
        name: [{column: value for column, value in row.items() if column != numbers.get(name)} for row in rows]
        for name, rows in tables.items()
    }


def try_insert(group: Tables, alias: str) -> str:
    """Insert a family; return why that is refused, "" if it is not."""
    try:
        insert_all(group, alias)
    except (IntegrityError, DataError) as error:
        said = " ".join(str(error).split())
        if "unique" not in said.lower():
            return said[:300]
        held = [row["queue_name"] for row in group.get("Job", ()) if is_reserved(row["queue_name"])]
        return f"an instance there has {held[0]!r}" if held else "another job there has its unique key"
    return ""


def put_back(tables: Tables, alias: str) -> None:
    """Insert rows where they came from; a job whose unique key another one has taken meanwhile does without it.

    So does a lease or a time slot that an instance has taken meanwhile: it is left out.
    """
    for group in families(not_joined(tables, alias)):
        if try_insert(group, alias):
            rest = {name: list(filter(None, map(without_key, rows))) for name, rows in group.items()}
            insert_all({name: rows for name, rows in rest.items() if rows}, alias)


def not_joined(tables: Tables, alias: str) -> Tables:
    """Return rows without the leases that are free there; the tokens there go on from both."""
    left = [row for row in tables.get("Job", ()) if not join(row, alias)]
    return {name: rows for name, rows in (tables | {"Job": left}).items() if rows}


def join(row: Row, alias: str) -> bool:
    """Have the row of a lease that is free there go on from this one; return False if there is none."""
    if not row["queue_name"].startswith(LEASE):  # of time slots those that are there already are the ones in use
        return False
    free = Job._base_manager.using(alias).filter(HAS_KEY, state__in=states.QUEUED, queue_name=row["queue_name"])
    return bool(free.filter(unique_key=row["unique_key"]).update(claims=Greatest("claims", row["claims"])))


def without_key(row: Row) -> Row | None:
    """Return a job that has its unique key no more than one that has started; a lease or a slot is nothing without."""
    if not row.get("unique_key"):
        return row
    return None if is_reserved(row["queue_name"]) else {**row, "unique_until": STARTED}


def existing(tables: Tables, alias: str) -> set[str]:
    """Return which of the jobs and dead letters are in a database already, as the one or the other."""
    ids = [UUID(job_id) for job_id in ids_of(tables)]
    rows = (model._base_manager.using(alias).all() for model in (Job, DeadLetter))
    return {key.hex for each in rows for key in present(each, ids)}


def families(tables: Tables) -> Iterator[Tables]:
    """Yield the rows in parts that belong together: a job with its parents and children; else each row by itself."""
    rows = [(name, row) for name, several in tables.items() for row in several]
    groups: dict[str, Tables] = {row["id"]: {} for name, row in rows if name in OF_JOBS}
    leader = {job_id: job_id for job_id in groups}

    def first(job_id: str) -> str:
        while leader[job_id] != job_id:
            job_id = leader[job_id] = leader[leader[job_id]]
        return job_id

    for name, row in rows:
        if name in OF_JOBS and row["parent_id"] in groups:
            leader[first(row["id"])] = first(row["parent_id"])
    for name, row in rows:
        if name in OF_JOBS:
            groups[first(row["id"])].setdefault(name, []).append(row)
        else:
            yield {name: [row]}
    yield from filter(None, groups.values())


def merged(groups: Iterable[Tables]) -> Tables:
    """Return the rows of several groups as one."""
    tables: Tables = {}
    for group in groups:
        for name, rows in group.items():
            tables.setdefault(name, []).extend(rows)
    return tables


def ids_of(tables: Tables) -> list[str]:
    return [row["id"] for name in OF_JOBS for row in tables.get(name, ())]


def names_of(tables: Tables) -> Iterator[str]:
    """Yield the names of rows in a report."""
    for name, rows in tables.items():
        yield from (name_of(name, row.get(key_of(MODELS[name]))) for row in rows)


def insert_all(tables: Tables, alias: str) -> None:
    """Insert rows of several models as they were read: all or none."""
    connection = connections[alias]
    with engine_for(alias).atomic(), connection.cursor() as cursor:
        for name, rows in tables.items():
            fields, columns = MODELS[name]._meta.concrete_fields, list(rows[0])
            flags = {field.column for field in fields if isinstance(field, models.BooleanField)}
            values = [[bool(row[each]) if each in flags else row[each] for each in columns] for row in rows]
            names, marks = ", ".join(map(connection.ops.quote_name, columns)), ", ".join(["%s"] * len(columns))
            table, if_there = MODELS[name]._meta.db_table, IF_THERE.get(name, "")
            cursor.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks}) {if_there}", values)
