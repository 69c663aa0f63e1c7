"""Loops of durable tasks over rows: whatever the queryset and its keys are, each row comes once, failures or not."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connections
from django.db.models import Count, F, Max, Model, Q, QuerySet, Window
from django.db.models.functions import RowNumber, Upper
from hypothesis import given, settings
from hypothesis import strategies as st

from django_vtqueue import GiveUp, PayloadTooLarge, TaskResultStatus, call, control, requeue, send_event
from django_vtqueue.models import DeadLetter, Job
from tests.pending import run_pending
from tests.project import durable, models
from tests.project.durable import CODE
from tests.project.models import Effect, Mark
from tests.project.tasks import add

from .bench import ROWS_AT_A_TIME, loops_read, made_steps

pytestmark = pytest.mark.usefixtures("backend")

Change = Callable[["QuerySet[Any]"], "QuerySet[Any]"]

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=50)
DAYS = {"min_value": datetime(1, 1, 2), "max_value": datetime(9999, 12, 30)}
KEYS: dict[type[Model], st.SearchStrategy[Any]] = {
    models.ByInteger: st.integers(-(2**63), 2**63 - 1),
    models.AlsoByInteger: st.integers(-5, 5),
    models.ByText: TEXTS | st.text("aAbB %_2é", max_size=4),
    models.Special: TEXTS,
    models.ByUUID: st.uuids(),
    models.ByBytes: st.binary(max_size=4),
    models.ByDuration: st.timedeltas(timedelta(days=-9999), timedelta(days=9999)),
    models.ByMoment: st.datetimes(**DAYS, timezones=st.just(UTC)),
    models.ByDate: st.dates(date(1, 1, 1)),
    models.ByTime: st.times(),
    models.ByFloat: st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False),
    models.ByDecimal: st.decimals(-99_999_999, 99_999_999, places=4),
    models.ByAddress: st.ip_addresses().map(str),
    models.ByBoolean: st.booleans(),
    models.ByPair: st.tuples(TEXTS, st.integers(-2, 2)),
    models.ByOwner: st.integers(-(2**63), 2**63 - 1),
}
ORDERS: list[Change] = [
    lambda rows: rows,
    lambda rows: rows.reverse(),
    lambda rows: rows.order_by("-pk"),
    lambda rows: rows.order_by("pk").reverse(),
    lambda rows: rows.order_by("-pk").reverse().reverse(),
    lambda rows: rows.order_by("?").reverse(),
    lambda rows: rows.distinct().reverse(),
    lambda rows: rows.extra(order_by=["-name"]) if hasattr(rows.model, "name") else rows.extra(where=["1 = 1"]),
]


def walk(source: "QuerySet[Any] | list[Any]", fatal: set[int] = frozenset()) -> list[Any]:  # type: ignore[assignment]
    """Loop over a source by a durable task which fails once at each of some items; return the keys, in their order.

    Each item has a step. An item at which it fails, before its step or behind it, is in what is returned once.
    """
    made: list[Any] = []
    begun: list[int] = []

    def code(context: Any) -> None:
        for row in context.iterate("rows", source):
            begun.append(len(begun))
            if begun[-1] in fatal and begun[-1] % 2:
                raise ConnectionError("before its step")
            context.step("see", lambda: made.append(getattr(row, "pk", row)))  # noqa: B023
            if begun[-1] in fatal:
                raise ConnectionError("behind it")

    CODE["run"] = code
    result = durable.fails_often.enqueue()
    results = run_pending(until=timedelta(minutes=1))
    assert {each.status for each in results[:-1]} <= {TaskResultStatus.READY}
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL, result.errors[-1].traceback
    return made


def refused(source: Any) -> str:
    """Loop over what cannot be looped over; return why. Fail if there was an item."""
    begun = []
    CODE["run"] = lambda context: [begun.append(item) for item in context.iterate("rows", source)]
    result = durable.changed_code.enqueue()
    run_pending()
    result.refresh()
    assert (begun, result.status, len(result.errors)) == ([], TaskResultStatus.FAILED, 1)
    assert result.errors[0].exception_class_path == "django_vtqueue.exceptions.StepError"
    return result.errors[0].traceback


def stored(model: type[Model], keys: "list[Any]", alias: str) -> "QuerySet[Any]":
    """Store rows by these keys only; return the queryset of them."""
    model.objects.using(alias).delete()  # type: ignore[attr-defined]
    if model is models.ByOwner:
        stored(models.ByInteger, keys, alias)
    if model is models.Special:  # rows of two tables are not stored together
        for key in keys:
            models.Special.objects.using(alias).create(id=key)
    elif model is models.ByPair:
        pairs = [models.ByPair(name=name, number=number) for name, number in keys]
        models.ByPair.objects.using(alias).bulk_create(pairs)
    else:
        model.objects.using(alias).bulk_create(model(pk=key) for key in keys)  # type: ignore[attr-defined]
    return model.objects.using(alias).all()  # type: ignore[attr-defined,no-any-return]


def is_rounded(model: type[Model], alias: str) -> bool:
    """Return whether a database may not have the very keys that it returns."""
    return model is models.ByDecimal and connections[alias].vendor == "sqlite"


@pytest.mark.parametrize("model", KEYS, ids=lambda model: model.__name__)
def test_keys_of_any_kind(alias: str, monkeypatch: pytest.MonkeyPatch, model: type[Model]) -> None:
    """Whatever the keys, the order and the size of a batch are, each row comes once, by key, failures or not."""

    @settings(max_examples=8)
    @given(
        keys=st.lists(KEYS[model], unique=True, max_size=6),
        order=st.sampled_from(ORDERS),
        batch=st.sampled_from([1, 2, 3, 500]),
        fatal=st.sets(st.integers(0, 8)),
    )
    def check(keys: list[Any], order: Change, batch: int, fatal: set[int]) -> None:
        loops_read(monkeypatch, batch)
        source = stored(model, keys, alias)
        expected = list(source.order_by("pk").values_list("pk", flat=True))
        assert walk(order(source), fatal) == expected

    if is_rounded(model, alias):
        assert "a DecimalField as primary key on SQLite" in refused(stored(model, [Decimal("1.5")], alias))
    else:
        check()


def effects(alias: str, count: int = 3, marks: int = 3) -> "QuerySet[Effect]":
    """Store effects, and several marks of each; return the queryset of them."""
    made = Effect.objects.using(alias).bulk_create(Effect(name=f"{number}", value=number) for number in range(count))
    Mark.objects.using(alias).bulk_create(Mark(effect=each, name=f"{n}") for each in made for n in range(marks))
    return Effect.objects.using(alias)


MADE: dict[str, Change] = {
    "a join that yields rows several times": lambda rows: rows.filter(marks__name__gte=""),
    "the same, of other tables": lambda rows: rows.filter(Q(marks__name="1") | Q(marks__name="2")).reverse(),
    "an aggregate": lambda rows: rows.annotate(many=Count("marks")).filter(many__gt=1).order_by("many").reverse(),
    "distinct": lambda rows: rows.filter(marks__name__gte="").distinct().order_by("-name").reverse(),
    "an annotation of its own column": lambda rows: rows.annotate(loud=Upper("name")).order_by("-loud"),
    "deferred columns": lambda rows: rows.only("value").reverse(),
    "what is read beside": lambda rows: rows.prefetch_related("marks").reverse(),
    "a slice inside": lambda rows: rows.filter(pk__in=rows.order_by("pk")[:5]).reverse(),
}


@pytest.mark.parametrize("change", MADE.values(), ids=MADE)
def test_querysets_of_any_kind(alias: str, monkeypatch: pytest.MonkeyPatch, change: Change) -> None:
    """Whatever a queryset joins, groups or leaves out, each row comes once, in batches and with failures on the way."""
    loops_read(monkeypatch, 2)
    source = effects(alias)
    assert walk(change(source), {0, 1, 4}) == list(source.order_by("pk").values_list("pk", flat=True))


def test_more_of_a_row_than_a_batch_has(alias: str) -> None:
    """A row that a join yields more often than a batch is large comes once, and so do those behind it."""
    source = effects(alias, count=2, marks=ROWS_AT_A_TIME + 10)
    assert walk(source.filter(marks__name__gte="").reverse(), {1}) == list(source.values_list("pk", flat=True))


def test_none() -> None:
    """A loop over no rows has no items."""
    assert walk(Effect.objects.none()) == []


def test_an_order_that_is_not_by_key(alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the database yields rows in another order, whoever made it so, the loop is refused before its first item."""
    source = effects(alias)
    monkeypatch.setattr(QuerySet, "order_by", lambda self, *names: self._chain())
    source.query.add_ordering("-pk")
    assert "after" in refused(source)
    assert "not by primary key" in refused(source)


def over_rows(rows: "QuerySet[Any]") -> "QuerySet[Any]":
    return rows.annotate(number=Window(RowNumber(), order_by="name"))


UNFIT: dict[str, tuple[Change, str]] = {
    "values": (lambda rows: rows.values("name"), "values() or the like"),
    "groups": (lambda rows: rows.values("name").annotate(Max("value")), "values() or the like"),
    "a slice": (lambda rows: rows[:5], "a slice [:n]"),
    "union": (lambda rows: rows.union(rows), "union()"),
    "intersection": (lambda rows: rows.intersection(rows), "intersection()"),
    "distinct by a field": (lambda rows: rows.distinct("name"), "distinct(…) by fields"),
    "locks": (lambda rows: rows.select_for_update(), "select_for_update()"),
    "a key by another name": (lambda rows: rows.annotate(pk=F("value")), "an annotation that is called pk"),
    "a window": (over_rows, "a window function"),
    "a filter by a window": (lambda rows: over_rows(rows).filter(number__lte=2), "a window function"),
    "several values": (lambda rows: rows.annotate(mark=F("marks__name")), "an annotation that has several values"),
    "another table": (
        lambda rows: rows.extra(select={"mark": "project_mark.name"}, tables=["project_mark"]),
        "an annotation that has several values",
    ),
}


@pytest.mark.parametrize(("change", "says"), UNFIT.values(), ids=UNFIT)
@pytest.mark.parametrize("count", [0, 3])
def test_querysets_that_are_refused(alias: str, change: Change, says: str, count: int) -> None:
    """What would be other rows when it is read on behind a key is refused before the first item, if any."""
    assert f"iterate cannot take a queryset with {says}" in refused(change(effects(alias, count)))


@pytest.mark.parametrize(
    "source",
    [iter(range(3)), Effect.objects, Effect.objects.raw("SELECT * FROM project_effect"), {1, 2}, {1: 2}, None],
    ids=lambda source: type(source).__name__,
)
def test_what_has_no_places(source: Any) -> None:
    """What has no place to go on from is refused before the first item."""
    assert "iterate takes a queryset, a range or another sequence, not " in refused(source)


@pytest.mark.parametrize("source", [range(3), [0, 1, 2], (0, 1, 2), range(3, 0, -1)], ids=repr)
def test_sequences(source: Any) -> None:
    """Each item of a range, a list or a tuple comes once, with failures on the way."""
    assert walk(source, {0, 1, 3}) == list(source)


def test_rows_behind_an_annotation_of_one(alias: str) -> None:
    """An annotation over tables that have one row for each of the model is allowed."""
    effects(alias)
    source = Mark.objects.using(alias).annotate(effect_name=F("effect__name")).reverse()
    assert walk(source, {2}) == list(Mark.objects.using(alias).order_by("pk").values_list("pk", flat=True))


def test_a_key_that_cannot_be_stored(alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A field that does not read what it writes as text is refused before the first item."""
    monkeypatch.setattr(models.ByMoment._meta.pk, "to_python", lambda text: text)
    assert "iterate cannot store the primary key" in refused(
        stored(models.ByMoment, [datetime(2026, 1, 1, tzinfo=UTC)], alias)
    )


def test_a_nul_character_in_a_key(alias: str) -> None:
    """Such a key, which only SQLite has, is stored as well as others."""
    if connections[alias].vendor != "sqlite":
        pytest.skip("PostgreSQL has no such texts.")
    keys = ["a", "a\0", "a\0b", "a%00", "a%"]
    source = stored(models.ByText, keys, alias)
    assert walk(source.reverse(), {0, 1, 2, 3, 4}) == sorted(keys)


def test_rows_that_come_and_go(alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is added behind the item under way comes, what is added before it does not, what is deleted does not."""
    loops_read(monkeypatch, 2)
    source = stored(models.ByInteger, [2, 4, 6, 8], alias)
    seen = []

    def code(context: Any) -> None:
        for row in context.iterate("rows", source.reverse()):
            seen.append(row.pk)
            row.pk = 99  # the loop has noted the key before
            if seen[-1] == 4:
                source.bulk_create([models.ByInteger(pk=3), models.ByInteger(pk=7)])
                source.filter(pk=6).delete()
            if seen in ([2], [2, 2, 4, 7]):
                context.step("see", lambda: None)
                source.bulk_create([models.ByInteger(pk=seen[-1] - 2)])
                raise ConnectionError

    CODE["run"] = code
    durable.fails_often.enqueue()
    run_pending(until=timedelta(minutes=1))
    assert seen == [2, 2, 4, 7, 7, 8]


# -- what is done before a loop ---------------------------------------------------------------------------------------

MUCH = list(range(1_000_000, 1_002_000))  # ids, as a step may return them


def test_loops_behind_much(alias: str) -> None:
    """Whatever steps before a loop have returned, and however loops stand in one another, each step is made once.

    So do waits and children of an item, though the task fails wherever it can.
    """
    made: list[str] = []
    failed: set[str] = set()

    def fail_once(where: str) -> None:
        if where not in failed:
            failed.add(where)
            raise ConnectionError(where)

    def code(context: Any) -> int:
        def make(name: str, result: Any = None) -> Any:
            fail_once(f"before {name}")
            found = context.step(name[:1], lambda: made.append(name) or result, transactional=name[0] == "c")
            fail_once(f"behind {name}")
            return found

        ids = make("a", MUCH)
        for outer in context.iterate("outer", ids[:3]):
            more = make(f"b {outer}", MUCH if outer % 2 else [1, 2])
            for inner in context.iterate("inner", more[:2]):
                make(f"c {outer} {inner}")
                context.sleep("nap", 1)
                fail_once(f"behind the nap of {outer} {inner}")
                results = context.gather("children", [call(add, outer, inner)])
                assert [each.return_value for each in results] == [outer + inner]
            make(f"d {outer}")
        make("e")
        for item in context.iterate("again", make("f", MUCH)[:2]):
            make(f"g {item}")
        return len(ids)

    CODE["run"] = code
    result = durable.fails_often.enqueue()
    results = run_pending(until=timedelta(hours=1))
    assert (results[-1].status, results[-1].return_value) == (TaskResultStatus.SUCCESSFUL, 2000)
    first, second, third = MUCH[:3]
    expected = ["a"]
    for outer, inner in ((first, (1, 2)), (second, MUCH[:2]), (third, (1, 2))):
        expected += [f"b {outer}", *(f"c {outer} {each}" for each in inner), f"d {outer}"]
    assert made == [*expected, "e", "f", f"g {first}", f"g {second}"]
    assert Job.objects.using(alias).exclude(parent_id=None).count() == 6
    row = Job.objects.using(alias).get(pk=result.id)
    assert made_steps(row.steps, row.earlier_steps) == ["a", "outer", "e", "f", "again"]


def test_a_loop_behind_much_that_dies(alias: str) -> None:
    """A dead letter keeps all steps, and a job that is requeued goes on with the item at which it has died."""
    seen: list[int] = []

    def code(context: Any) -> None:
        for item in context.iterate("items", context.step("ids", lambda: MUCH)[:4]):
            seen.append(item)
            if len(seen) in (2, 4):
                raise GiveUp("no more")

    CODE["run"] = code
    result = durable.fails_often.enqueue()
    for _death in range(2):
        run_pending()
        letter = DeadLetter.objects.using(alias).get()
        assert made_steps(letter.steps, letter.earlier_steps) == ["ids", "items"]
        assert requeue(letter.pk, using=alias)
    run_pending()
    assert seen == [MUCH[0], MUCH[1], MUCH[1], MUCH[2], MUCH[2], MUCH[3]]
    assert Job.objects.using(alias).get(pk=result.id).state == "SUCCESSFUL"


def test_steps_before_a_loop_are_put_right(alias: str) -> None:
    """What was done before a loop is repeated as other steps are, and counts for their size as they do."""
    made: list[str] = []

    def code(context: Any) -> None:
        context.step("first", made.append, "first")
        ids = context.step("ids", lambda: made.append("ids") or MUCH)
        for item in context.iterate("items", ids[:2]):
            made.append(f"{item}")
            context.wait_for("go", timeout=60)

    CODE["run"] = code
    result = durable.fails_often.enqueue()
    run_pending()
    with pytest.raises(PayloadTooLarge):
        send_event(result.id, "go", "x" * (1_000_000 - 10_000), using=alias)
    assert control.repeat_steps(result.id, 2, using=alias)
    run_pending(until=timedelta(hours=1))
    assert made == ["first", "ids", f"{MUCH[0]}", "ids", *(f"{MUCH[n]}" for n in (0, 0, 1, 1))]


@pytest.mark.parametrize("with_steps", [False, True])
def test_an_item_writes_little(alias: str, with_steps: bool) -> None:
    """An item of a loop costs the log of the database a few pages, whatever a step before the loop has returned."""
    ids, written = list(range(1_000_000, 1_100_000)), []

    def code(context: Any) -> None:
        for index, item in enumerate(context.iterate("items", context.step("ids", lambda: ids))):
            if with_steps:
                context.step("see", int, item)
            if index in (5, 55):
                written.append(log_size(alias))
            if index == 55:
                break

    CODE["run"] = code
    with growing_log(alias):
        durable.changed_code.enqueue()
        run_pending()
    assert (written[1] - written[0]) / 50 < 60_000


@contextmanager
def growing_log(alias: str) -> Iterator[None]:
    """Let SQLite write its log behind what is there, for it is measured by the size of its file."""
    with connections[alias].cursor() as cursor:
        if connections[alias].vendor == "sqlite":
            cursor.execute("PRAGMA wal_autocheckpoint = 0")
        yield


def log_size(alias: str) -> int:
    """Return the bytes of the log of a database."""
    if connections[alias].vendor == "sqlite":
        return os.path.getsize(f"{connections[alias].settings_dict['NAME']}-wal")
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
        return int(cursor.fetchone()[0])
