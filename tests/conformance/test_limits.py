"""Limits: how many jobs of a queue or a key are held at once, and in which order; what is over them is parked."""

import random
from collections import Counter
from typing import Any

import pytest

from django_vtqueue import control
from tests.fake_clock import at

from .bench import (
    WITHOUT_END,
    Bench,
    Held,
    Limited,
    Looks,
    Served,
    by_name,
    failure,
    looks_fail,
    names,
    nothing_is_parked,
    nothing_is_written,
    parks_at_most,
    payloads_of,
    release,
    seconds_at,
    small_looks,
    success,
    tasks_of,
    while_limits_are_read,
)


@pytest.fixture
def limited(bench: Bench) -> Limited:
    return Limited(bench)


# -- full queues ------------------------------------------------------------------------------------------------------


def test_a_claimer_that_found_a_queue_full_finds_its_next_place(limited: Limited) -> None:
    """It claims from other queues meanwhile, and from that one as soon as it has room, however often it has looked."""
    limited.queues(one={"concurrency": 1})
    take = limited.claimer()

    def claim() -> dict[str, Held]:
        return by_name(take(0, 2, served=[tasks_of()]).collect())

    limited.publish("app.plain", "a", "b", "c", queue="one")
    first = claim()
    limited.publish("app.plain", "d")
    assert (names(first), names(claim()), names(claim())) == ("a", "d", "")
    limited.done(first["a"])
    limited.publish("app.plain", "e")
    second = claim()
    assert (names(second), names(claim())) == ("b e", "")
    limited.done(second["b"])
    assert names(claim()) == "c"


# -- keys -------------------------------------------------------------------------------------------------------------


def test_a_key_is_never_held_more_often(limited: Limited) -> None:
    """Not by one claim, nor by a later one; what is over the limit is parked, and other work goes on."""
    limited.publish("app.two", "a", "b", "c", "d", key="k")
    limited.publish("app.plain", "x")
    limited.publish("app.two", "e", key="other")
    assert names(limited.claim()) == "a b x e"
    assert limited.parked == {"c", "d"}
    assert limited.claim() == {}


def test_what_is_parked_is_written_once(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later claims do not look at it again."""
    limited.publish("app.one", "a", "b", "c", key="k")
    limited.claim()
    nothing_is_parked(limited, monkeypatch)
    limited.publish("app.plain", "x")
    assert names(limited.claim()) == "x"


@pytest.mark.parametrize("end", ["done", "retry", "dead", "released", "cancelled"])
def test_a_place_is_given_back(limited: Limited, end: str) -> None:
    """However a holder ends; its place in the line is the one that it had, whatever waits beside it."""
    limited.publish("app.one", "a", "b", "c", key="k")
    [job] = limited.claim(limit=1).values()
    limited.publish("app.plain", "x", due=5)
    assert names(limited.claim(6)) == "x"
    settlements = {
        "done": success(job),
        "retry": failure(job, 1, 100),
        "dead": failure(job, 1, None),
        "released": release(job),
    }
    if end == "cancelled":
        control.cancel(job.id, using=limited.bench.alias)
        limited.end(failure(job, 1, 0))
    else:
        limited.end(settlements[end])
    limited.publish("app.plain", "y")
    expected = "a" if end == "released" else "b"
    assert set(limited.claim(6)) == {expected, "y"}
    assert limited.claim(6) == {}


def test_as_many_are_given_back_as_have_ended(limited: Limited) -> None:
    """In the order of the line: by priority, then by time."""
    limited.publish("app.two", "a", "b", key="k")
    jobs = limited.claim()
    limited.publish("app.two", "c", key="k", due=2)
    limited.publish("app.two", "d", key="k", due=1)
    limited.publish("app.two", "e", key="k", due=3, priority=1)
    assert limited.claim(4) == {}
    limited.done(*jobs.values())
    assert names(limited.claim(4)) == "e d"
    assert limited.parked == {"c"}


@pytest.mark.parametrize("how", ["paused", "full", "not served"])
def test_a_place_is_given_to_what_can_run(bench: Bench, how: str) -> None:
    """Jobs of a queue that is paused or full, or that no worker serves, are not in the way of another queue's jobs.

    They have the same key, and more priority; each end of a job gives one of each queue back, without any look.
    """
    limited = Limited(bench)
    limited.publish("app.plain", "x", queue="a")
    limited.claim()
    limited.publish("app.two", *"cdefghi", key="k")
    limited.publish("app.two", *"stuv", key="k", queue="z")
    limited.publish("app.two", *(f"a{number}" for number in range(10)), key="k", queue="a", priority=5)
    for number in range(2):  # what is parked of it was so before
        limited.publish("app.two", f"before {number}", key="k", queue="q", priority=9)
    running = list(limited.claim().values())
    assert len(running) == 2
    assert len(limited.parked) == 21
    if how == "paused":
        control.pause("a", using=limited.bench.alias)
    elif how == "full":
        limited.queues(a={"concurrency": 1})
    served = [Served(("q", "z") if how == "not served" else None, False)]
    done: list[str] = []
    while running:
        limited.done(*running)
        found = limited.claim(served=served)
        done, running = [*done, *found], [*found.values()]
    assert sorted(done) == sorted("cdefghistuv")


def test_an_ended_lease_gives_the_place_back(limited: Limited) -> None:
    """The claim that ends it also takes the next one, or the same one again."""
    limited.publish("app.one", "a", key="k")
    limited.publish("app.one", "b", key="k", priority=1, due=1)
    assert names(limited.claim()) == "a"
    assert limited.claim(30) == {}
    assert names(limited.claim(100)) == "b"
    assert limited.parked == {"a"}


def test_a_holder_that_vanished(limited: Limited) -> None:
    """What was parked for one whose row is deleted comes back by the look once a second."""
    limited.publish("app.one", "a", "b", "c", key="k")
    limited.claim()
    limited.bench.jobs.filter(state="RUNNING").delete()
    assert limited.claim() == {}
    assert limited.look() == 1
    assert names(limited.claim()) == "b"
    assert limited.look() == 0


def test_the_look_writes_only_where_there_is_room(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is full costs no write, nor does an order whose first job waits for its time."""
    limited.publish("app.one", "a", "b", key="k")
    limited.publish("app.ordered", "c", key="order", due=100)
    limited.publish("app.ordered", "d", key="order")
    limited.claim()
    assert limited.parked == {"b", "d"}
    nothing_is_written(limited, monkeypatch)
    assert limited.look() == 0


def test_the_look_puts_back_as_many_as_may_run(limited: Limited) -> None:
    """Those that are held are counted, and no other: what is due already may have another queue, or wait for long."""
    limited.tasks["app.six"] = {"concurrency": 6}
    limited.publish("app.six", *"abcdefghijklmn", key="k")
    held = list(limited.claim().values())
    limited.bench.jobs.filter(pk__in=[job.id for job in held[:4]]).delete()
    assert len(limited.parked) == 8
    assert limited.look() == 4


@pytest.mark.parametrize(
    ("changed", "expected"), [({"concurrency": 3}, "b c"), ({}, "b c d e f"), ({"concurrency": 1}, "")]
)
def test_a_changed_limit_holds_at_once(limited: Limited, changed: dict[str, Any], expected: str) -> None:
    """Raised, removed or lowered: the next look judges what is parked anew; nothing stays parked for ever."""
    limited.publish("app.one", "a", "b", "c", "d", "e", "f", key="k")
    limited.tasks["app.one"] = {"concurrency": 1}
    assert names(limited.claim()) == "a"
    limited.tasks["app.one"] = changed
    limited.look()
    assert names(limited.claim()) == expected


def test_a_limit_of_many_keys_is_removed(limited: Limited) -> None:
    """One sweep puts all jobs back, some hundred with each look; no look waits before it goes on."""
    keys = [f"k{number % 1000:03}" for number in range(3000)]
    limited.publish("app.one", *keys, concurrency_keys=keys)
    limited.park_all()
    limited.tasks["app.one"] = {}
    assert limited.looks().sweep(most=Looks.most) <= 15
    assert limited.parked == set()


def test_a_limit_of_many_keys_is_raised(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sweep puts as many jobs of each key back as may run, and no more; no look waits before it goes on."""
    small_looks(monkeypatch, jobs=20, keys=10)
    keys = [f"k{number % 25:02}" for number in range(150)]
    limited.publish("app.one", *keys, concurrency_keys=keys)
    limited.publish("app.two", *["free"] * 100, key="k07 free")
    limited.park_all()
    limited.tasks |= {"app.one": {"concurrency": 4}, "app.two": {}}
    assert limited.looks().sweep(most=45) <= 15
    assert Counter(limited.keys_in_line()) == Counter({**dict.fromkeys(keys, 4), "k07 free": 100})


def test_a_look_that_fails_is_made_again_a_bit_later(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker neither spins nor forgets it."""
    looks = limited.looks()
    looks_fail(limited, monkeypatch)
    with pytest.raises(ZeroDivisionError):
        looks.look()
    assert looks.rests()


def test_a_task_that_is_not_loaded(limited: Limited) -> None:
    """Its jobs are claimed to load it, as many as there are; a job for later keeps no other waiting.

    Released they are as before, and judged by the next claim.
    """
    limited.publish("app.unknown", "later", key="k", due=1000)
    limited.publish("app.unknown", "a", "b", "c", key="k")
    limited.publish("app.plain", "x")
    jobs = limited.claim()
    assert not jobs.pop("x").to_load
    assert (names(jobs), limited.parked) == ("a b c", set())
    limited.load("app.unknown", jobs.values(), concurrency=2)
    jobs = limited.claim(1)
    assert [(name, job.to_load, job.attempts) for name, job in jobs.items()] == [("a", False, 1), ("b", False, 1)]
    assert limited.parked == {"c"}


def test_a_worker_that_dies_while_it_loads_a_task(limited: Limited) -> None:
    """It has cost the job an attempt: a module that ends each process that imports it makes dead letters."""
    limited.publish("app.unknown", "a", key="k", max_attempts=2)
    for now in (0, 100):
        [job] = limited.claim(now).values()
        assert (job.to_load, job.attempts) == (True, 1 + now // 100)
    [buried] = limited.take(200).buried
    assert (buried.id, limited.bench.jobs.count()) == (job.id, 0)


def test_a_task_that_is_loaded_while_its_jobs_are_claimed(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its order holds for the first of its jobs that are claimed: those of this claim only load it."""
    limited.publish("app.unknown", "first", key="k", due=1000, ordered=True)
    limited.publish("app.unknown", "second", key="k", ordered=True)
    while_limits_are_read(limited, monkeypatch, lambda: limited.tasks.update({"app.unknown": {"order_key": "k"}}))
    jobs = limited.claim()
    assert names(jobs) == "second"
    limited.load("app.unknown", jobs.values(), order_key="k")
    assert names(limited.claim(2)) == ""
    assert names(limited.claim(1000)) == "first"


def test_the_look_at_a_task_that_is_not_loaded(limited: Limited) -> None:
    """What another process has parked comes back, one at a time, once none of its key is held: it loads the task."""
    limited.publish("app.two", "a", "b", "c", "d", key="k")
    limited.claim()
    del limited.tasks["app.two"]
    assert limited.look() == 0
    limited.bench.jobs.exclude(state="BLOCKED").delete()
    assert limited.look() == 1
    jobs = limited.claim()
    assert (names(jobs), limited.parked, limited.look()) == ("c", {"d"}, 0)
    limited.load("app.two", jobs.values(), concurrency=2)
    assert names(limited.claim()) == "c d"


def test_many_blocked_jobs_are_parked_in_parts(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim parks so many at the most, and says that there may be more; then what is behind them is found."""
    parks_at_most(monkeypatch, jobs=10)
    limited.publish("app.one", *(str(n) for n in range(40)), key="k")
    limited.publish("app.plain", "x", due=1)
    found: list[str] = []
    for _ in range(5):
        taken = limited.take(2, 1)
        found += [job.payload for job in taken.collect()]
        if taken.everything:
            break
    assert found == ['"0"', '"x"']
    assert len(limited.parked) == 39


def test_nothing_with_a_key_is_claimed_ahead(limited: Limited) -> None:
    """What is claimed ahead does not run yet: it would take a place without using it."""
    limited.publish("app.plain", "w", "x")
    limited.publish("app.two", "a", key="k")
    assert names(limited.claim(limit=1, ahead=5)) == "w x"


def test_an_overdue_job_is_buried_not_parked(limited: Limited) -> None:
    """A job that expires keeps nothing up, and one that is parked expires as any other."""
    limited.publish("app.one", "a", "b", key="k")
    limited.publish("app.one", "late", key="k", start_by=5)
    assert names(limited.claim()) == "a"
    assert "late" in limited.parked
    limited.publish("app.one", "later", key="k", start_by=5)
    taken = limited.take(6)
    assert [job.payload for job in taken.buried] == ['"later"']
    assert limited.bench.overdue(10, now=6)


def test_a_hidden_job_counts(limited: Limited) -> None:
    """A worker that stops gives its job back hidden for a moment, for its code may still run: its place is taken."""
    limited.publish("app.one", "a", "b", key="k")
    [job] = limited.claim().values()
    limited.end(release(job, hidden_until=3))
    assert limited.claim(2) == {}
    assert names(limited.claim(4)) == "a"


def test_run_now_does_not_break_the_limit(limited: Limited) -> None:
    """A parked job that is to run now is judged by the claim, and parked again."""
    limited.publish("app.one", "a", "b", key="k")
    limited.claim()
    [parked] = limited.bench.jobs.filter(payload__in=limited.parked)
    assert control.run_now(parked.pk, using=limited.bench.alias) == [parked.pk]
    [row] = limited.bench.jobs.filter(pk=parked.pk)
    assert limited.claim(seconds_at(row.due_at)) == {}
    assert limited.parked == {"b"}


@pytest.mark.parametrize("claims_between", [True, False])
@pytest.mark.parametrize("task", ["app.one", "app.ordered"])
def test_run_now_keeps_the_place_of_a_parked_job(limited: Limited, task: str, claims_between: bool) -> None:
    """It runs before what stood behind it, whether a claim has parked it again meanwhile or not."""
    for due, text in enumerate("abc", -3):
        limited.publish(task, text, key="k", due=due)
    [held] = limited.claim().values()
    assert limited.parked == {"b", "c"}
    limited.bench.clock_at(5)
    row = limited.bench.jobs.get(payload="b")
    assert control.run_now(row.pk, using=limited.bench.alias) == [row.pk]
    assert not claims_between or limited.claim(5) == {}
    limited.done(held)
    assert names(limited.claim(6)) == "b"


# -- queues -----------------------------------------------------------------------------------------------------------


def test_a_queue_is_never_fuller(bench: Bench) -> None:
    """Tasks and payloads count together; nothing is parked for it, and other queues go on."""
    limited = Limited(bench, q={"concurrency": 3})
    limited.publish("app.plain", "a", "b")
    limited.publish("", "r", "s")
    limited.publish("app.plain", "x", "y", "z", queue="other")
    assert names(limited.claim(served=[tasks_of(), payloads_of("q")])) == "a b r x y z"
    assert limited.claim(served=[tasks_of(), payloads_of("q")]) == {}
    assert limited.parked == set()


@pytest.mark.parametrize("queues", [None, ("q", "other")])
def test_room_in_a_queue(bench: Bench, queues: tuple[str, ...] | None) -> None:
    """Each end makes room for one, in the usual order; a limit that was changed holds at once."""
    limited, served = Limited(bench, q={"concurrency": 2}), [Served(queues, False)]
    limited.publish("app.plain", "a", "b", "c", "d", "e")
    limited.publish("app.plain", "x", queue="other", due=1)
    limited.publish("app.plain", "u", priority=5)
    first = limited.claim(served=served)
    assert names(first) == "u a"
    limited.done(first["u"])
    assert names(limited.claim(2, served=served)) == "b x"
    limited.queues(q={"concurrency": 3})
    assert names(limited.claim(2, served=served)) == "c"
    limited.queues()
    assert names(limited.claim(2, served=served)) == "d e"


def test_earliest_of_a_full_queue(bench: Bench) -> None:
    """A worker sleeps while a queue is full, until a lease in it ends: what waits in it cannot be claimed."""
    limited = Limited(bench, q={"concurrency": 1})
    limited.publish("app.plain", "a", "b")
    assert limited.earliest(tasks_of()) == 0
    [job] = limited.claim().values()
    earliest = limited.earliest(tasks_of())
    assert 60 <= (earliest or 0) < 70
    limited.publish("app.plain", "x", queue="other", due=7)
    assert limited.earliest(tasks_of()) == 7
    limited.done(job)
    assert limited.earliest(tasks_of()) == 0


def test_a_limited_queue_is_not_claimed_ahead(bench: Bench) -> None:
    """RUNNING means running there."""
    limited = Limited(bench, q={"concurrency": 5})
    limited.publish("app.plain", "a", "b", "c")
    assert names(limited.claim(limit=1, ahead=5)) == "a"


def test_raw_keys_have_the_queues_limit_each(bench: Bench) -> None:
    """Payloads with a key count for their key, all other jobs of the queue for the queue."""
    limited = Limited(bench, q={"concurrency": 1})
    limited.publish("", "a", "b")
    limited.publish("", "t1", "t2", key="t")
    limited.publish("", "u1", key="u")
    jobs = limited.claim(raw=True)
    assert names(jobs) == "a t1 u1"
    assert limited.claim(raw=True) == {}
    limited.done(jobs["t1"])
    assert names(limited.claim(raw=True)) == "t2"
    limited.done(jobs["a"])
    assert names(limited.claim(raw=True)) == "b"


# -- order ------------------------------------------------------------------------------------------------------------


def test_ordered_jobs_run_in_order(limited: Limited) -> None:
    """As they were stored, whatever their priorities and times are; each when the one before it has ended."""
    limited.publish("app.ordered", "a", key="k", due=5)
    limited.publish("app.ordered", "b", key="k", priority=3)
    limited.publish("app.ordered", "c", key="k", priority=9)
    limited.publish("app.ordered", "x", key="other")
    assert names(limited.claim()) == "x"
    order = []
    for now in range(6, 9):
        [(name, job)] = limited.claim(now).items()
        assert limited.claim(now) == {}
        order.append(name)
        limited.done(job)
    assert order == ["a", "b", "c"]


def test_a_retry_blocks_those_behind_it(limited: Limited) -> None:
    """A job that waits for its retry is the first of its key; a dead letter is not.

    When it is requeued it goes last; where the id is the handle it takes its old place.
    """
    limited.publish("app.ordered", "a", "b", "c", key="k")
    [job] = limited.claim().values()
    limited.end(failure(job, 1, 30))
    assert limited.claim(2) == {}
    [job] = limited.claim(40).values()
    assert job.payload == '"a"'
    limited.end(failure(job, 41, None))
    [(name, second)] = limited.claim(42).items()
    assert name == "b"
    limited.bench.requeue(job.id, now=43)
    limited.done(second)
    [(name, third)] = limited.claim(44).items()
    limited.done(third)
    assert name + names(limited.claim(45)) == ("ca" if limited.bench.vendor == "sqlite" else "ac")


@pytest.mark.parametrize("how", ["cancel", "delete", "purge"])
def test_the_first_of_a_key_is_taken_away(limited: Limited, how: str) -> None:
    """While it waits: the next one runs, at once or after the next look."""
    limited.publish("app.ordered", "a", key="k", due=1000, queue="a")
    limited.publish("app.ordered", "b", "c", key="k")
    assert limited.claim() == {}
    [job] = limited.bench.jobs.filter(queue_name="a")
    if how == "cancel":
        control.cancel(job.pk, using=limited.bench.alias)
    elif how == "delete":
        control.discard(job.pk, using=limited.bench.alias)
    else:
        limited.bench.purge("a")
    limited.look()
    assert names(limited.claim(1)) == "b"


# -- all of it --------------------------------------------------------------------------------------------------------


def test_never_above_never_stuck(bench: Bench) -> None:
    """Whatever happens in whatever order: no limit is exceeded at any time, and in the end every job has run."""
    chance = random.Random(21)
    limited = Limited(bench, q={"concurrency": 4})
    most = {"one": 1, "two": 2, "ordered": 1}
    for number in range(120):
        task = chance.choice([*most, "plain"])
        key = None if task == "plain" else f"{task}{chance.randrange(3)}"
        queue = chance.choice(["q", "other"])
        limited.publish(f"app.{task}", f"{number}", key=key, queue=queue, priority=chance.randrange(3))
    held: list[Held] = []
    finished: list[int] = []
    now = 0.0
    while len(finished) < 120:
        now += 1
        assert now < 2000, f"stuck: {limited.bench.jobs.filter(state='READY').values('payload', 'due_at')[:5]}"
        held += limited.claim(now, chance.randrange(1, 6)).values()
        for key in {job.concurrency_key for job in held} - {None}:
            same = [job for job in held if job.concurrency_key == key]
            assert len(same) <= most[str(key)[:-1]]
        assert sum(job.queue_name == "q" for job in held) <= 4
        chance.shuffle(held)
        for job in [held.pop() for _ in range(min(len(held), chance.randrange(4)))]:
            if chance.random() < 0.2 and job.attempts < 2:
                limited.end(failure(job, now, chance.randrange(3)))
            elif chance.random() < 0.2:
                limited.end(release(job))
            else:
                limited.done(job)
                finished.append(int(job.payload.strip('"')))
                if job.task_path == "app.ordered":
                    before = limited.bench.jobs.filter(
                        concurrency_key=job.concurrency_key, finished_at=None, pk__lt=job.id
                    )
                    assert not before.exists()


def test_a_key_in_a_full_queue_is_not_slept_over(bench: Bench) -> None:
    """A worker that hands payloads to a handler is woken for one whose key is free, though the queue is full."""
    limited = Limited(bench, q={"concurrency": 1})
    limited.bench.clock_at(1)
    limited.publish("", "a", "b")
    limited.claim(1, raw=True)
    assert (limited.earliest(payloads_of()) or 0) > 1
    limited.publish("", "t", key="t")
    assert limited.earliest(payloads_of()) == 1
    assert names(limited.claim(1, raw=True)) == "t"
    assert (limited.earliest(payloads_of()) or 0) > 1


def test_a_clock_that_was_ahead(limited: Limited) -> None:
    """A blocked job stays blocked, at a place in the line that has come; a wait without an end is left alone.

    One with a moment of a rate is due, and judged again.
    """
    limited.publish("app.one", "a", "b", key="k")
    limited.publish("app.one", "never", key="other")
    limited.publish("app.rated", "r", rate_keys=["r"])
    limited.claim(limit=1)
    limited.park("b")
    limited.book("r", 4000)
    limited.stamp_places(3600)
    limited.bench.jobs.filter(concurrency_key="other").update(
        **{"state": "WAITING", "claims": 1, "due_at": WITHOUT_END, "wake_at": WITHOUT_END},
        history=[{"ended": at(3600), "outcome": "failed"}],
    )
    assert limited.bench.repair(0) == 2
    assert [limited.place(name)[0] for name in ("b", "never", "r")] == [None, None, 0]
    assert limited.place("b") == (None, 0)
