"""The statistics of what workers did: stored as totals, read by time, and the rate at which jobs arrive."""

from uuid import UUID

import pytest

from django_vtqueue import throughput
from django_vtqueue.models import Throughput
from tests.fake_clock import at

from .bench import Bench, Work, as_counted, count, latest_arrivals, prune_counts

NOW = 30  # half a minute after the start of one


@pytest.fixture(autouse=True)
def _time(bench: Bench) -> None:
    """The clock stands still; each test that needs another moment moves it."""
    bench.clock_at(NOW)


def read(bench: Bench, minutes: int = 180) -> dict[str, throughput.Flow]:
    return throughput.read(bench.alias, minutes=minutes)


def test_totals_take_the_place_of_those_before(bench: Bench) -> None:
    """The counts of a minute, queue and worker are replaced: written twice they count once."""
    count(bench, "w1", Work("a", 0, 1, 2, 3, ran={1: 1}, waited={20: 1}))
    for _ in range(2):
        count(bench, "w1", Work("a", 0, 4, 5, 6, ran={1: 7, 2: 8}), Work("b", 0, 9))
    rows = Throughput.objects.using(bench.alias).order_by("queue_name")
    assert list(rows.values_list("succeeded", "failed", "dead")) == [(4, 5, 6), (9, 0, 0)]
    flows = read(bench)
    assert flows["a"].run == (as_counted(2),) * 3  # with the one from before, half of all would take a second
    assert flows["a"].wait == flows["b"].run == flows["b"].wait == (None, None, None)


def test_the_counts_of_all_workers_and_minutes_are_one_flow(bench: Bench) -> None:
    """Each minute is a number of its own, summed over the workers; percentiles are of all minutes."""
    short, long = 0.001, 1
    for worker in ("w1", "w2"):
        count(bench, worker, *(Work("a", ago, 10 + ago, 1, ago, ran={short: 3}) for ago in range(4)))
    count(bench, "w3", Work("a", 1, 1, ran={long: 1}, waited={long: 1}))
    count(bench, "w3", Work("a", -1, 99), Work("b", 1, dead=1))
    flows = read(bench, minutes=3)
    assert flows.keys() == {"a", "b"}
    assert (flows["a"].succeeded, flows["a"].failed, flows["a"].dead) == ([24, 23, 20], [2, 2, 2], [4, 2, 0])
    assert flows["a"].run == (as_counted(short), as_counted(long), as_counted(long))
    assert flows["a"].wait == (as_counted(long),) * 3
    assert (flows["b"].dead, flows["b"].run) == ([0, 1, 0], (None, None, None))
    assert [flows["a"].ended(minutes) for minutes in (1, 2, 5)] == [27, 57, 57]
    bench.clock_at(NOW + 4 * 3600)
    assert read(bench) == {}


def test_projects_read_seconds(bench: Bench) -> None:
    """Durations are seconds, within a tenth, and None without any."""
    count(bench, "w", Work("a", 0, 3, 2, 1, ran={1: 6}))
    [(name, flow)] = read(bench, minutes=5).items()
    assert (name, sum(flow.succeeded), sum(flow.failed), sum(flow.dead)) == ("a", 3, 2, 1)
    assert flow.run == pytest.approx((1, 1, 1), rel=0.091)
    assert flow.wait == (None, None, None)
    bench.publish("x", queue="b", now=NOW, ids=[made(NOW - 1, 0)])
    assert throughput.arrivals(bench.alias) == {"b": 1}


def test_many_queues(bench: Bench) -> None:
    """A thousand queues that had work in the same minute are stored and read, whatever their names are."""
    names = [f"queue {number} \u2603 '\"" for number in range(1000)]
    count(bench, "w", *(Work(name, 0, 1, ran={5: 1}, waited={6: 1}) for name in names))
    assert read(bench).keys() == set(names)


@pytest.mark.parametrize(
    "damage",
    [
        "run_times = '{'", "run_times = '[3]'", "wait_times = ''", "wait_times = '{\"1\": -1}'",
        "wait_times = CAST(x'ff' AS TEXT)", "succeeded = 'many'", "failed = 1.5", "starts_at = starts_at + 0.5",
    ],
)  # fmt: skip
def test_a_damaged_row_hides_no_other(bench: Bench, damage: str) -> None:
    """Whatever somebody wrote into a row, the others are shown."""
    count(bench, "w1", Work("bad", 0, 1, 1, 1, ran={1: 1}, waited={1: 1}), Work("good", 0, 2))
    bench.damage(f"UPDATE vtqueue_throughput SET {damage} WHERE queue_name = 'bad'")
    assert read(bench, minutes=1)["good"].succeeded == [2]


def test_old_counts_are_pruned_in_slices(bench: Bench) -> None:
    """About ``limit`` at a time (minutes are deleted whole), the oldest first, and none of a later time."""
    count(bench, "w", *(Work("a", ago, ago) for ago in range(5)))
    count(bench, "w", Work("b", 3, 3))
    left = []
    for _ in range(3):
        deleted = prune_counts(bench, ago=1, limit=2)
        rows = Throughput.objects.using(bench.alias).order_by("-starts_at")
        left.append((deleted, list(rows.values_list("succeeded", flat=True))))
    assert left == [(3, [0, 1, 2]), (1, [0, 1]), (0, [0, 1])]


def made(now: float, number: int) -> str:
    """Return an id as it is made at a moment."""
    return f"{at(now) // 1000:012x}7{number:03x}{number:016x}"


def test_arrivals_are_counted_by_their_ids(bench: Bench) -> None:
    """What was enqueued in the last minute is counted per queue, wherever it is now; what came earlier is not.

    The row of a lease is no job.
    """
    ago: dict[str, list[float]] = {"a": [0.001, 1, 59.999, 60.1, 3600, -5], "b": [30], "lease:nightly": [1]}
    for name, times in ago.items():
        ids = [made(NOW - seconds, number) for number, seconds in enumerate(times)]
        bench.publish(*times, queue=name, now=NOW, ids=ids)
    letter = made(NOW - 2, 9)
    bench.publish("x", queue="dead", now=NOW, ids=[letter], max_attempts=1)
    assert bench.bury(bench.one(NOW, queues=("dead",)))
    assert bench.letters.get().pk == UUID(letter)
    assert throughput.arrivals(bench.alias) == {"a": 3, "b": 1, "dead": 1}
    assert throughput.arrivals(bench.alias, seconds=2) == {"a": 2, "dead": 1}
    assert latest_arrivals(bench, jobs=10) == ({"a": 3, "b": 1, "dead": 1}, False)
    found, limited = latest_arrivals(bench, jobs=4)
    assert (sum(found.values()), limited) == (4, True)
