"""The statistics of what workers did: stored as totals, read by time, and the rate at which jobs arrive."""

from uuid import UUID

import pytest

from django_vtqueue import throughput as project
from django_vtqueue.core.counts import MINUTE, CountKey, Counts, minute_of
from django_vtqueue.core.histograms import Percentiles, bucket_of, middle_of
from django_vtqueue.core.ids import first_id
from django_vtqueue.core.job import NewJobs
from django_vtqueue.inspection import throughput
from django_vtqueue.models import Throughput
from django_vtqueue.worker import statistics
from tests.conformance import conftest as both
from tests.conformance.bench import SECOND, Bench
from tests.fake_clock import at

alias, traced, bench = both.alias, both.traced, both.bench  # of each engine

NOW = minute_of(at(0)) + 30 * SECOND
PRESENT = minute_of(NOW)


def store(bench: Bench, worker: str, **queues: Counts) -> None:
    """Store the counts of the present minute."""
    add(bench, worker, {(PRESENT, name, "t"): counts for name, counts in queues.items()})


def add(bench: Bench, worker: str, counts: dict[CountKey, Counts]) -> None:
    with bench.engine.atomic():
        statistics.store(Throughput, bench.engine.alias, worker, counts)


def test_totals_take_the_place_of_those_before(bench: Bench) -> None:
    """The counts of a minute, queue and worker are replaced: written twice they count once."""
    store(bench, "w1", a=Counts(1, 2, 3, {10: 1}, {20: 1}))
    for _ in range(2):
        store(bench, "w1", a=Counts(4, 5, 6, {10: 7, 11: 8}, {}), b=Counts(succeeded=9))
    rows = Throughput.objects.using(bench.engine.alias).order_by("queue_name")
    stored = rows.values_list("succeeded", "failed", "dead", "run_times", "wait_times")
    assert list(stored) == [(4, 5, 6, '{"10":7,"11":8}', "{}"), (9, 0, 0, "{}", "{}")]


def test_the_counts_of_all_workers_and_minutes_are_one_flow(bench: Bench) -> None:
    """Each minute is a number of its own, summed over the workers; percentiles are of all minutes."""
    short, long = bucket_of(1000), bucket_of(10**6)
    for worker in ("w1", "w2"):
        rows = {(PRESENT - back * MINUTE, "a", "t"): Counts(10 + back, 1, back, {short: 3}, {}) for back in range(4)}
        add(bench, worker, rows)
    add(bench, "w3", {(PRESENT - MINUTE, "a", "t"): Counts(1, 0, 0, {long: 1}, {long: 1})})
    add(bench, "w3", {(PRESENT + MINUTE, "a", "t"): Counts(99), (PRESENT - MINUTE, "b", "t"): Counts(dead=1)})
    flows = throughput.read(bench.engine.alias, NOW, minutes=3)
    assert flows.keys() == {"a", "b"}
    assert (flows["a"].succeeded, flows["a"].failed, flows["a"].dead) == ([24, 23, 20], [2, 2, 2], [4, 2, 0])
    assert flows["a"].run == (middle_of(short), middle_of(long), middle_of(long))
    assert flows["a"].wait == (middle_of(long),) * 3
    assert (flows["b"].dead, flows["b"].run) == ([0, 1, 0], Percentiles(None, None, None))
    assert [flows["a"].ended(minutes) for minutes in (1, 2, 5)] == [27, 57, 57]
    assert throughput.read(bench.engine.alias, NOW + 4 * 60 * MINUTE) == {}


def test_projects_read_seconds(bench: Bench) -> None:
    """The same counts, by the clock of the database: durations are seconds, and None without any."""
    now = minute_of(bench.engine.now())
    add(bench, "w", {(now, "a", "t"): Counts(3, 2, 1, {bucket_of(10**6): 6}, {})})
    [(name, flow)] = project.read(bench.engine.alias, minutes=5).items()
    assert (name, sum(flow.succeeded), sum(flow.failed), sum(flow.dead)) == ("a", 3, 2, 1)
    assert flow.run == (middle_of(bucket_of(10**6)) / SECOND,) * 3
    assert flow.wait == (None, None, None)
    bench.engine.insert(NewJobs("b", "", 0, 3, 60 * SECOND, now, now, [(first_id(bench.engine.now() - SECOND), "{}")]))
    assert project.arrivals(bench.engine.alias) == {"b": 1}


def test_many_queues(bench: Bench) -> None:
    """A thousand queues that had work in the same minute are stored and read, whatever their names are."""
    names = [f"queue {number} \u2603 '\"" for number in range(1000)]
    add(bench, "w", {(PRESENT, name, "t"): Counts(1, 0, 0, {5: 1}, {6: 1}) for name in names})
    assert throughput.read(bench.engine.alias, NOW).keys() == set(names)


@pytest.mark.parametrize(
    "damage",
    [
        "run_times = '{'", "run_times = '[3]'", "wait_times = ''", "wait_times = '{\"1\": -1}'",
        "wait_times = CAST(x'ff' AS TEXT)", "succeeded = 'many'", "failed = 1.5", "starts_at = starts_at + 0.5",
    ],
)  # fmt: skip
def test_a_damaged_row_hides_no_other(bench: Bench, damage: str) -> None:
    """Whatever somebody wrote into a row, the others are shown."""
    store(bench, "w1", bad=Counts(1, 1, 1, {1: 1}, {1: 1}), good=Counts(2))
    bench.damage(f"UPDATE vtqueue_throughput SET {damage} WHERE queue_name = 'bad'")
    flows = throughput.read(bench.engine.alias, NOW, minutes=1)
    assert flows["good"].succeeded == [2]


def test_old_counts_are_pruned_in_slices(bench: Bench) -> None:
    """About ``limit`` at a time (minutes are deleted whole), the oldest first, and none of a later time."""
    add(bench, "w", {(PRESENT - back * MINUTE, "a", "t"): Counts(back) for back in range(5)})
    add(bench, "w", {(PRESENT - 3 * MINUTE, "b", "t"): Counts(3)})
    left = []
    for _ in range(3):
        deleted = statistics.prune(Throughput, bench.engine.alias, PRESENT - MINUTE, 2)
        rows = Throughput.objects.using(bench.engine.alias).order_by("-starts_at")
        left.append((deleted, list(rows.values_list("succeeded", flat=True))))
    assert left == [(3, [0, 1, 2]), (1, [0, 1]), (0, [0, 1])]


def made(instant: int, number: int) -> str:
    """Return an id as it is made at an instant."""
    return f"{instant // 1000:012x}7{number:03x}{number:016x}"


def test_arrivals_are_counted_by_their_ids(bench: Bench) -> None:
    """What was enqueued in the last minute is counted per queue, wherever it is now; what came earlier is not.

    The row of a lease is no job.
    """
    ago = {"a": [0.001, 1, 59.999, 60.1, 3600, -5], "b": [30], "lease:nightly": [1]}
    for name, times in ago.items():
        jobs = [(made(NOW - round(seconds * SECOND), n), "{}") for n, seconds in enumerate(times)]
        bench.engine.insert(NewJobs(name, "", 0, 3, 60 * SECOND, NOW, NOW, jobs))
    letter = made(NOW - 2 * SECOND, 9)
    bench.engine.insert(NewJobs("dead", "", 0, 1, 60 * SECOND, NOW, NOW, [(letter, "{}")]))
    [job] = bench.claim(now=(NOW - at(0)) / SECOND, queues=("dead",))
    assert bench.bury(job)
    assert bench.letters.get().pk == UUID(letter)
    assert throughput.arrivals(bench.engine.alias, NOW) == ({"a": 3, "b": 1, "dead": 1}, False)
    assert throughput.arrivals(bench.engine.alias, NOW, seconds=2) == ({"a": 2, "dead": 1}, False)
    found, limited = throughput.arrivals(bench.engine.alias, NOW, limit=4)
    assert (sum(found.values()), limited) == (4, True)
