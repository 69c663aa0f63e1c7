"""The models read like Django's: moments, stored JSON, and what a job or a dead letter says of itself."""

import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import FieldError
from django.core.management import call_command
from django.db import NotSupportedError, connection, transaction
from django.db.models import Avg, Count, Exists, F, Max, Min, OuterRef, Q, Subquery, Sum
from django.db.models.functions import Coalesce, ExtractHour, Greatest, Now, TruncDay, TruncHour, TruncMinute
from django.test import override_settings
from django.utils import timezone

from django_vtqueue import Queue, requeue, task
from django_vtqueue.core import clock
from django_vtqueue.fields import StoredText
from django_vtqueue.models import DeadLetter, Job
from tests.pending import run_pending

from .admin.rows import job, letter

pytestmark = pytest.mark.django_db
SQLITE, POSTGRESQL = "sqlite", "postgresql"
ONLY_SQLITE = pytest.mark.parametrize("vendor", [SQLITE], indirect=True)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
NUL = "\0"
TYPES = {SQLITE: ("typeof", "integer"), POSTGRESQL: ("pg_typeof", "bigint")}
ODD = timedelta(hours=1, microseconds=1)  # none of Django's roundings leaves it as it is


@pytest.fixture(params=[SQLITE, POSTGRESQL], autouse=True)
def vendor(request: pytest.FixtureRequest) -> str:
    """Return the kind of the default database."""
    if request.param == POSTGRESQL:
        request.getfixturevalue("postgresql_by_default")
    return str(request.param)


@pytest.fixture(autouse=True)
def _in_utc() -> Iterator[None]:
    """The reader is in UTC, unless a test says otherwise."""
    with timezone.override(UTC):
        yield


def at(moment: datetime, **values: Any) -> Job:
    """Store a job that was enqueued at a moment."""
    return job(enqueued_at=clock.to_instant(moment), **values)


def found(*conditions: Q, **lookups: Any) -> list[datetime]:
    """Return when the jobs were enqueued that meet conditions."""
    return list(
        Job.objects.filter(*conditions, **lookups).order_by("enqueued_at").values_list("enqueued_at", flat=True)
    )


# -- moments ---------------------------------------------------------------------------------------------------------


def test_moments_have_the_lookups_of_a_datetime_field() -> None:
    """Parts of a moment can be sought, one after the other too, as those of a DateTimeField."""
    old, new = NEW_YEAR - timedelta(microseconds=1), NEW_YEAR + ODD
    at(old), at(new)
    assert found(enqueued_at__date=date(2025, 12, 31)) == found(enqueued_at__date__lt=date(2026, 1, 1)) == [old]
    assert found(enqueued_at__year=2025) == found(enqueued_at__year__lte=2025) == found(enqueued_at__month=12) == [old]
    assert (
        found(enqueued_at__year__gte=2026) == found(enqueued_at__hour=1) == found(enqueued_at__iso_week_day=4) == [new]
    )
    assert found(enqueued_at__date__in=[date(2025, 12, 31), date(2026, 1, 1)]) == [old, new]
    assert found(enqueued_at__time__lt="02:00") == [new]
    with pytest.raises(FieldError, match="Unsupported lookup 'yaer'"):
        Job.objects.filter(enqueued_at__yaer=2026)


@pytest.mark.parametrize(("zone", "day"), [("Pacific/Auckland", 2), ("America/New_York", 1)])
def test_parts_of_moments_are_those_of_the_current_time_zone(zone: str, day: int) -> None:
    """The date of a moment is that of the reader, as for a DateTimeField."""
    noon = NEW_YEAR.replace(hour=12)
    at(noon)
    with timezone.override(zone):
        assert found(enqueued_at__date=date(2026, 1, day)) == [noon]
        [local] = Job.objects.annotate(day=TruncDay("enqueued_at")).values_list("day", flat=True)
        assert local.day == day


def test_a_moment_that_there_is_not() -> None:
    """It is None in every expression, as any NULL, and before no other moment."""
    at(NEW_YEAR)
    for lookup in ("year__lt", "year", "date__lt", "hour__gte"):
        assert found(**{f"finished_at__{lookup}": NEW_YEAR.date() if "date" in lookup else 1970}) == []
    jobs = Job.objects.annotate(
        end=F("finished_at"), hour=TruncHour("finished_at"), took=F("finished_at") - F("due_at")
    )
    assert jobs.values_list("end", "hour", "took").get() == (None, None, None)
    ends = {"first": Min("finished_at"), "last": Max("finished_at"), "wait": Avg(F("started_at") - F("enqueued_at"))}
    assert Job.objects.aggregate(**ends) == dict.fromkeys(ends)
    assert Job.objects.annotate(end=Coalesce("finished_at", "enqueued_at")).get().end == NEW_YEAR


def test_moments_are_compared_to_the_microsecond() -> None:
    """Equality, ranges and lists take datetimes, and find moments that are a microsecond apart."""
    moments = [NEW_YEAR + timedelta(microseconds=number) for number in (-1, 0, 1)]
    for moment in moments:
        at(moment)
    assert found(enqueued_at=NEW_YEAR) == moments[1:2]
    assert found(enqueued_at__gte=NEW_YEAR) == moments[1:]
    assert found(enqueued_at__lt=NEW_YEAR) == moments[:1]
    assert found(enqueued_at__range=(moments[0], NEW_YEAR)) == moments[:2]
    assert found(enqueued_at__in=[moments[0], moments[2]]) == moments[::2]
    assert found(~Q(enqueued_at=NEW_YEAR)) == moments[::2]
    named = Job.objects.annotate(named=F("enqueued_at"))
    assert [row.named for row in named.filter(named=NEW_YEAR)] == moments[1:2]
    assert [row.named for row in named.filter(named__gte=NEW_YEAR).order_by("named")] == moments[1:]
    assert list(Job.objects.order_by("-enqueued_at").values_list("enqueued_at", flat=True)) == moments[::-1]


def test_moments_are_compared_with_the_database_clock() -> None:
    """Now(), with a duration or without, is compared with a moment in every lookup that takes one."""
    present = clock.from_instant(clock.now())
    old, later = present - timedelta(hours=1), present + timedelta(hours=1)
    at(old), at(later)
    minutes = timedelta(minutes=90)
    assert found(enqueued_at__lt=Now()) == found(enqueued_at__lte=Now() - timedelta(minutes=30)) == [old]
    assert found(enqueued_at__gt=Now()) == found(enqueued_at__range=(Now(), Now() + minutes)) == [later]
    assert found(enqueued_at__range=(old, Now())) == [old]
    assert found(enqueued_at__in=[Now(), old]) == found(~Q(enqueued_at__gt=Now())) == [old]
    assert found(enqueued_at__lt=Coalesce("finished_at", Now())) == [old]
    assert found(enqueued_at=Now()) == []


def test_differences_of_moments_are_durations() -> None:
    """A difference is a timedelta that can be selected, compared, ordered by, summed up and averaged."""
    for seconds in (1, 3):
        wait = timedelta(seconds=seconds, microseconds=seconds)
        at(NEW_YEAR, state="RUNNING", worker_id="w", started_at=clock.to_instant(NEW_YEAR + wait))
    jobs = Job.objects.annotate(wait=F("started_at") - F("enqueued_at"))
    waits = [timedelta(seconds=1, microseconds=1), timedelta(seconds=3, microseconds=3)]
    assert list(jobs.order_by("wait").values_list("wait", flat=True)) == waits
    assert [row.wait for row in jobs.filter(wait__gt=timedelta(seconds=2))] == waits[1:]
    assert [row.wait for row in jobs.filter(enqueued_at__lt=F("started_at") - timedelta(seconds=2))] == waits[1:]
    assert jobs.aggregate(Avg("wait"), Sum("wait"), Max("wait")) == {
        "wait__avg": timedelta(seconds=2, microseconds=2),
        "wait__sum": sum(waits, timedelta()),
        "wait__max": waits[1],
    }
    grouped = Job.objects.values("queue_name").annotate(wait=Avg(F("started_at") - F("enqueued_at")))
    assert [row["wait"] for row in grouped] == [timedelta(seconds=2, microseconds=2)]


def test_differences_between_a_moment_and_the_clock() -> None:
    """How old a job is: Now() less a moment, either way round, and any other datetime less a moment."""
    at(clock.from_instant(clock.now()) - ODD)
    row = Job.objects.annotate(
        age=Now() - F("enqueued_at"), ahead=F("enqueued_at") - Now(), since=F("enqueued_at") - NEW_YEAR
    ).get()
    assert ODD <= row.age + timedelta(milliseconds=1) < ODD + timedelta(minutes=1)
    assert -row.ahead == row.age
    assert row.since == row.enqueued_at - NEW_YEAR
    assert Job.objects.annotate(age=Now() - F("enqueued_at")).filter(age__gt=timedelta(hours=2)).count() == 0
    assert Job.objects.aggregate(oldest=Max(Now() - F("enqueued_at")))["oldest"] >= ODD - timedelta(milliseconds=1)


def test_durations_are_added_to_moments() -> None:
    """A moment and a duration make a moment: selected, compared and stored, of before 1970 too."""
    for moment in (NEW_YEAR, NEW_YEAR + ODD, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)):
        row = at(moment)
        jobs = Job.objects.filter(pk=row.pk)
        assert jobs.annotate(then=F("enqueued_at") + ODD).get().then == moment + ODD
        assert jobs.annotate(then=F("enqueued_at") - ODD).get().then == moment - ODD
        assert jobs.filter(enqueued_at=F("enqueued_at") + ODD - ODD).exists()
        assert jobs.update(due_at=F("enqueued_at") + ODD, kept_until=F("enqueued_at"), started_at=Now()) == 1
        row = jobs.get()
        assert (row.due_at, row.kept_until, row.visible_at) == (moment + ODD, moment, moment + ODD)
        assert abs(clock.to_instant(row.started_at) - clock.now()) < 60 * clock.SECOND


def test_moments_are_stored_as_integers_whatever_they_come_from(vendor: str) -> None:
    """What an expression stores is an integer, for the queue's own SQL compares nothing else."""
    row = at(NEW_YEAR)
    Job.objects.filter(pk=row.pk).update(due_at=Now(), started_at=F("due_at"), kept_until=TruncHour(Now()))
    row.cancelled_at = Now()
    row.save(update_fields=["cancelled_at"])
    row.cancelled_at = clock.from_instant(1)
    Job.objects.bulk_update([row], ["cancelled_at"])
    other = Job.objects.create(
        id=uuid4(), queue_name="other", max_attempts=1, lease_us=1, enqueued_at=Now(), due_at=Now()
    )
    assert abs(clock.to_instant(Job.objects.get(pk=other.pk).due_at) - clock.now()) < 60 * clock.SECOND
    with connection.cursor() as cursor:
        typeof, integer = TYPES[vendor]
        cursor.execute(f"SELECT DISTINCT {typeof}(due_at), {typeof}(enqueued_at) FROM vtqueue_job")
        assert cursor.fetchall() == [(integer, integer)]
        cursor.execute(
            f"SELECT {typeof}(started_at), {typeof}(kept_until), cancelled_at FROM vtqueue_job WHERE state != ''",
        )
        assert (integer, integer, 1) in cursor.fetchall()


def test_moments_are_counted_by_the_hour() -> None:
    """Django's functions of datetimes take moments: truncated, taken apart, the first of several."""
    for minutes in (0, 59, 61):
        letter(died_at=clock.to_instant(NEW_YEAR + timedelta(minutes=minutes)))
    hours = (
        DeadLetter.objects.annotate(hour=TruncHour("died_at")).values("hour").annotate(n=Count("pk")).order_by("hour")
    )
    assert [(row["hour"], row["n"]) for row in hours] == [(NEW_YEAR, 2), (NEW_YEAR + timedelta(hours=1), 1)]
    assert DeadLetter.objects.annotate(hour=ExtractHour("died_at")).filter(hour=1).count() == 1
    assert list(DeadLetter.objects.values_list("died_at__hour", flat=True).order_by("died_at__minute")) == [0, 1, 0]
    assert DeadLetter.objects.aggregate(first=Min("died_at"), last=Max("died_at")) == {
        "first": NEW_YEAR,
        "last": NEW_YEAR + timedelta(minutes=61),
    }
    first = DeadLetter.objects.annotate(shown=Coalesce("reviewed_at", "died_at")).order_by("shown").first()
    assert first.shown == NEW_YEAR
    assert DeadLetter.objects.annotate(latest=Greatest("died_at", "enqueued_at")).filter(latest__year=2025).count() == 0


def test_moments_in_subqueries() -> None:
    """A moment of an outer query, and what a subquery says of moments, are compared as moments."""
    for minutes, fingerprint in ((0, "a"), (1, "a"), (2, "b")):
        letter(died_at=clock.to_instant(NEW_YEAR + timedelta(minutes=minutes)), fingerprint=fingerprint)
    later = DeadLetter.objects.filter(fingerprint=OuterRef("fingerprint"), died_at__gt=OuterRef("died_at"))
    minutes = [row.died_at.minute for row in DeadLetter.objects.filter(~Exists(later)).order_by("died_at")]
    assert minutes == [1, 2]
    last = DeadLetter.objects.values("fingerprint").annotate(last=Max("died_at")).values("last")
    assert DeadLetter.objects.filter(died_at__in=last).count() == 2
    assert (
        DeadLetter.objects.filter(died_at__in=DeadLetter.objects.filter(fingerprint="a").values("died_at")).count() == 2
    )
    newest = DeadLetter.objects.order_by("-died_at").values("died_at")[:1]
    assert DeadLetter.objects.get(died_at=newest).fingerprint == "b"
    assert DeadLetter.objects.filter(died_at__lt=Subquery(newest)).count() == 2
    shown = DeadLetter.objects.annotate(before=Subquery(newest.values(last=F("died_at"))) - F("died_at")).order_by(
        "died_at"
    )
    assert [row.before for row in shown] == [timedelta(minutes=2), timedelta(minutes=1), timedelta()]


def test_what_is_no_moment_is_in_an_expression_what_is_shown_of_it() -> None:
    """A stamp that no datetime can hold is the nearest one that exists, in expressions too."""
    rows = [at(NEW_YEAR) for _ in range(2)]
    for row, damaged in zip(rows, ["2 << 61", "-2 << 60"], strict=True):
        with connection.cursor() as cursor:
            cursor.execute(f"UPDATE vtqueue_job SET started_at = {damaged} WHERE id = %s", [row.pk.hex])
        shown = Job.objects.annotate(same=F("started_at")).get(pk=row.pk)
        assert shown.same == shown.started_at


@pytest.mark.parametrize("zone", ["Europe/Paris", "America/New_York"])
def test_moments_without_time_zones(zone: str) -> None:
    """Where USE_TZ is off, moments in expressions are local times as everywhere, and Now() is the present."""
    with override_settings(USE_TZ=False, TIME_ZONE=zone):
        present = clock.from_instant(clock.now())
        at(present - ODD)
        row = Job.objects.annotate(same=F("enqueued_at"), hour=TruncMinute("enqueued_at")).get()
        assert row.same == row.enqueued_at == present - ODD
        assert row.hour == row.enqueued_at.replace(second=0, microsecond=0)
        assert found(enqueued_at__date=row.enqueued_at.date()) == found(enqueued_at__lt=Now()) == [present - ODD]
        assert found(enqueued_at__lt=Now() - timedelta(hours=2)) == []
        assert Job.objects.filter(enqueued_at=F("enqueued_at") + ODD - ODD).exists()


@ONLY_SQLITE
def test_a_database_with_a_time_zone_of_its_own_is_refused() -> None:
    """Moments are compared there as everywhere; an expression of them would be off by hours, and is an error."""
    at(NEW_YEAR)
    connection.settings_dict["TIME_ZONE"], connection.timezone_name = "Europe/Paris", "Europe/Paris"
    try:
        assert found(enqueued_at__gte=NEW_YEAR) == [NEW_YEAR]
        with pytest.raises(NotSupportedError, match="TIME_ZONE of its own"):
            found(enqueued_at__year=2026)
    finally:
        connection.settings_dict["TIME_ZONE"] = None
        del connection.timezone_name


def test_comparisons_of_moments_use_their_indexes(vendor: str) -> None:
    """A range of moments, given as datetimes or by Now(), and an order are read from the index of the column."""
    for days in range(300):
        letter(died_at=clock.to_instant(NEW_YEAR - timedelta(days=days)))
    if vendor == POSTGRESQL:  # it reads so few rows as a whole
        connection.cursor().execute("ANALYZE vtqueue_deadletter; SET enable_seqscan = off")
    for letters in (
        DeadLetter.objects.filter(died_at__gte=Now() - timedelta(hours=1)),
        DeadLetter.objects.filter(died_at__range=(NEW_YEAR, NEW_YEAR + ODD)),
        DeadLetter.objects.order_by("died_at", "pk"),
    ):
        plan = letters.explain()
        assert "vtqueue_letter_died" in plan
        assert "TEMP B-TREE" not in plan
        assert "Sort" not in plan
    assert "datetime(" not in str(DeadLetter.objects.filter(died_at__gt=F("enqueued_at")).query)


def test_queries_can_be_pickled() -> None:
    """A query, with lookups and expressions of moments and of JSON, is the same after a journey through a cache."""
    at(NEW_YEAR - ODD), at(NEW_YEAR + ODD, payload={"args": [], "kwargs": {"to": "Köln"}})
    lookups: list[dict[str, Any]] = [
        {"enqueued_at__range": (NEW_YEAR, Now()), "due_at__lte": Now(), "enqueued_at__in": [NEW_YEAR + ODD]},
        {"enqueued_at__year": 2026, "visible_at__gte": F("enqueued_at") - ODD},
        {"payload__kwargs__to": "Köln", "payload__has_key": "args"},
        {"payload__kwargs__has_any_keys": ["to"], "payload__in": [{"args": [], "kwargs": {"to": "Köln"}}]},
    ]
    for given in lookups:
        jobs = Job.objects.filter(**given).annotate(age=Now() - F("enqueued_at"))
        again = Job.objects.all()
        again.query = pickle.loads(pickle.dumps(jobs.query))
        assert [row.pk for row in again] == [row.pk for row in jobs] == [Job.objects.latest("enqueued_at").pk]


# -- stored JSON -----------------------------------------------------------------------------------------------------

VALUES = [
    None,
    True,
    0,
    1.5,
    "text",
    '"quoted"',
    "größe 🐘 \ud800 \0",
    [],
    {},
    [1, [None, {"a": []}]],
    {"ключ": "значение"},
]
DAMAGED = ["{oops", "", "\0", "[" * 100_000, "{'a': 1}", '{"kwargs": {"order_id": 7}', "[" * 100_000 + "]" * 100_000]


@task
def ship(order_id: int, to: Any = None) -> Any:
    if to == "nowhere":
        raise ConnectionError("no road")
    return to


def text(column: str, row: Job | DeadLetter) -> Any:
    """Return what stands in a column of a row, as the database has it."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {column} FROM {row._meta.db_table} WHERE id = %s", [row.pk.hex])
        return cursor.fetchone()[0]


def damaged(value: str, *columns: str) -> Job:
    """Store a job whose columns somebody damaged."""
    return job(**dict.fromkeys(columns or ["payload"], StoredText(value)))


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_stored_json_is_a_value_in_python(value: Any, vendor: str) -> None:
    """What was published is read as it was, saving it again changes nothing, and it is found by its value."""
    job_id = Queue("raw").publish(value)
    row = Job.objects.get(pk=job_id)
    stored = text("payload", row)
    assert (row.payload, type(row.payload)) == (value, type(value))
    row.save()
    assert text("payload", row) == stored
    if value is not None and (vendor == SQLITE or NUL not in str(value)):
        assert Job.objects.get(payload=value).pk == job_id
        assert Job.objects.get(payload__in=[value, "other"]).pk == job_id
    assert Job.objects.values_list("payload", flat=True).get() == value


def test_what_a_task_returned_is_a_value() -> None:
    """A result is the value that was returned; there is none before the end, and the history is a list of entries."""
    ids = [ship.enqueue(7, to={"city": "Köln"}).id, ship.enqueue(8).id, ship.enqueue(9, to="nowhere").id]
    assert [row.result for row in Job.objects.filter(pk__in=ids)] == [None] * 3
    run_pending()
    done, bare, failed = (Job.objects.get(pk=job_id) for job_id in ids)
    assert (done.result, done.history, bare.result) == ({"city": "Köln"}, [], None)
    assert (text("result", bare), text("history", bare), text("result", failed)) == ("null", "[]", None)
    assert [entry["exception_class"] for entry in failed.history] == ["builtins.ConnectionError"]
    assert Job.objects.get(result__city="Köln") == done
    assert Job.objects.get(history__0__exception_class__endswith="ConnectionError") == failed


def test_jobs_are_found_by_their_arguments(vendor: str) -> None:
    """Lookups go down into the arguments by keys and places, beside rows that no database could parse."""
    for value in DAMAGED if vendor == SQLITE else ():
        damaged(value)
    for text in (NUL, "half of a pair: \udc18", "\\", "\\u0000"):
        Queue("raw").publish({"note": text})
    job(payload=StoredText('{"note":"\\uD83D"}'))
    for number in range(3):
        ship.enqueue(
            number, to={"city": ["Köln", "Łódź", "%_'\""][number], "floor": number, "note": [None, "x", "y"][number]}
        )
    ids = [row.pk for row in Job.objects.filter(task_path=ship.module_path).order_by("pk")]

    def which(**lookups: Any) -> list[int]:
        return [ids.index(row.pk) for row in Job.objects.filter(**lookups).order_by("pk")]

    assert which(payload__args__0=1) == which(payload__kwargs__to__city="Łódź") == [1]
    assert which(payload__kwargs__to__city="%_'\"") == which(payload__kwargs__to__floor__gt=1) == [2]
    assert which(payload__kwargs__to__floor__in=[1, 2]) == which(payload__args__0__gte=1) == [1, 2]
    assert (
        which(payload__kwargs__to={"city": "Köln", "floor": 0, "note": None})
        == which(payload__kwargs__to__note=None)
        == [0]
    )
    assert which(payload__kwargs__to__city__icontains="ö") == which(payload__kwargs__to__city__startswith="K") == [0]
    assert which(payload__has_key="kwargs") == which(payload__kwargs__has_keys=["to"]) == [0, 1, 2]
    assert which(payload__has_any_keys=["x", "args"]) == which(
        payload__kwargs__to__x__isnull=True, payload__has_key="args"
    )
    assert which(payload__kwargs__to__isnull=False) == [0, 1, 2]
    assert which(payload__icontains="Łódź") == [1]
    places = (
        Job.objects.filter(pk__in=ids).order_by("-payload__args__0").values_list("payload__kwargs__to__city", flat=True)
    )
    assert list(places) == ["%_'\"", "Łódź", "Köln"]
    counted = Job.objects.values("payload__kwargs__to__floor").annotate(n=Count("pk")).filter(pk__in=ids)
    assert {row["payload__kwargs__to__floor"]: row["n"] for row in counted} == {0: 1, 1: 1, 2: 1}


@ONLY_SQLITE
@pytest.mark.parametrize("value", DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_text_is_read_as_it_is(value: str) -> None:
    """What is no JSON is its text in Python; saved again it is the same, and no argument, attempt or key is in it."""
    row = Job.objects.get(pk=damaged(value, "payload", "history", "result").pk)
    assert (row.payload, row.history, row.result) == (value,) * 3
    assert isinstance(row.payload, StoredText)
    row.save()
    assert (text("payload", row), text("history", row), text("result", row)) == (value,) * 3
    assert (row.args, row.kwargs, row.traceback) == ([], {}, "")
    assert Job.objects.values_list("payload__kwargs", flat=True).get() is None
    assert not Job.objects.filter(payload__has_key="kwargs").exists()
    assert Job.objects.filter(payload=StoredText(value)).exists()


def test_what_is_not_json_is_refused() -> None:
    """The models store what comes out as it went in, and refuse the rest, as publish does."""
    for value in ({1, 2}, float("nan"), {1: 2}, b"bytes", NEW_YEAR):
        with pytest.raises(TypeError, match="is not JSON"), transaction.atomic():
            job(payload=value)
    assert not Job.objects.exists()


@ONLY_SQLITE
def test_the_columns_are_plain_text() -> None:
    """No insert pays for a constraint that parses JSON, made by migrations or without them."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT sql FROM sqlite_master WHERE name IN ('vtqueue_job', 'vtqueue_deadletter')")
        assert not [sql for (sql,) in cursor.fetchall() if "json" in sql.lower()]
    for model in (Job, DeadLetter):
        for name in {"payload", "history", "result"} & {field.name for field in model._meta.fields}:
            assert model._meta.get_field(name).db_parameters(connection) == {"type": "text", "check": None}


# -- what a job says of itself ---------------------------------------------------------------------------------------


def test_arguments_of_a_job() -> None:
    """The call of a task, also where it waits to be sent round again; a raw payload has none."""
    result = ship.enqueue(7, to="nowhere")
    row = Job.objects.get(pk=result.id)
    assert (row.args, row.kwargs, row.traceback) == ([7], {"to": "nowhere"}, "")
    raw = Job.objects.get(pk=Queue("raw").publish({"args": [1], "kwargs": {"a": 1}}))
    assert (raw.args, raw.kwargs) == ([], {})
    Job.objects.filter(pk=row.pk).update(max_attempts=1)
    run_pending()
    dead = DeadLetter.objects.get(pk=result.id)
    assert (dead.args, dead.kwargs) == ([7], {"to": "nowhere"})
    assert dead.traceback.rstrip().endswith("ConnectionError: no road")
    assert dead.traceback == dead.history[-1]["traceback"]


def test_traceback_is_that_of_the_last_failure() -> None:
    """What people did with a job since does not hide it."""
    row = letter(history=[{"number": 1, "traceback": "first"}, {"number": 2, "traceback": "last"}])
    assert requeue(row) == [row.pk]
    assert Job.objects.get(pk=row.pk).history[-1]["outcome"] == "requeued"
    assert Job.objects.get(pk=row.pk).traceback == "last"


def test_a_letter_requeues_itself() -> None:
    """It becomes a job with the same id, and keeps the person's name; a second time there is nothing to requeue."""
    row = letter(queue_name="a")
    assert row.requeue(by="anna", queue_name="b", priority=5) is True
    again = Job.objects.get(pk=row.pk)
    assert (again.queue_name, again.priority, again.history[-1]["worker"]) == ("b", 5, "anna")
    assert row.requeue() is False
    taken, _ = letter(unique_key="k"), job("default", unique_key="k")
    assert taken.requeue() is False
    with pytest.raises(ValueError, match="priority"):
        taken.requeue(priority=1000)


def test_a_moment_from_a_subquery(vendor: str) -> None:
    """A datetime of another row, alone or as the end of a range, is stored and compared as the integer that it is."""
    first, second = job(), job(due=60)
    other = Job.objects.filter(pk=second.pk).values(moment=F("due_at"))
    for moment in (Subquery(other), other[:1]):
        Job.objects.filter(pk=first.pk).update(due_at=moment)
        with connection.cursor() as cursor:
            typeof, integer = TYPES[vendor]
            cursor.execute(f"SELECT {typeof}(due_at) FROM vtqueue_job WHERE id = %s", [first.pk.hex])
            assert cursor.fetchone() == (integer,)
        first.refresh_from_db(), second.refresh_from_db()
        assert first.due_at == second.due_at
    assert Job.objects.filter(due_at__range=(Subquery(other), Subquery(other))).count() == 2
    assert Job.objects.filter(due_at__in=other).count() == 2


def test_keys_of_every_language() -> None:
    """A key is found as it is stored, whatever its letters."""
    row = job(payload='{"args":[],"kwargs":{"größe":{"è":1}}}')
    assert Job.objects.get(payload__kwargs__größe__è=1).pk == row.pk
    assert Job.objects.filter(payload__kwargs__has_key="größe").count() == 1
    assert Job.objects.values_list("payload__kwargs__größe", flat=True).get() == {"è": 1}


@pytest.mark.parametrize("payload", [r'["\ud83d"]', "[NaN]", '["cut off'])
def test_a_dump_has_what_is_stored(payload: str, tmp_path: Path) -> None:
    """dumpdata and loaddata keep each payload as it is, be it damaged or half of a pair of surrogates."""
    row = job(payload=StoredText(payload))
    call_command("dumpdata", "vtqueue.job", output=str(tmp_path / "jobs.json"), verbosity=0)
    Job.objects.all().delete()
    call_command("loaddata", str(tmp_path / "jobs.json"), verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("SELECT payload FROM vtqueue_job WHERE id = %s", [row.pk.hex])
        assert cursor.fetchone() == (payload,)


def test_a_text_is_a_value_for_forms() -> None:
    """Validation changes no payload: a text is not taken for stored JSON."""
    row = job()
    row.payload = "a text"
    row.clean_fields(exclude=[field.name for field in Job._meta.fields if field.name != "payload"])
    assert (row.payload, type(row.payload)) == ("a text", str)
