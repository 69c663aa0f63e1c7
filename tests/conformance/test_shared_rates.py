"""Rate keys that several tasks share: random jobs and claims, and what the guide to limits promises of their starts."""

import random
from collections import Counter
from typing import Any, NamedTuple

import pytest

from tests.fake_clock import START, at

from .bench import (
    SECOND,
    Bench,
    Held,
    Limited,
    RateArithmetic,
    Row,
    failure,
    limits_clock,
    rate_of,
    release,
    seconds_at,
)

TASKS = ("app.a", "app.b", "app.c")
RATES = ("2/s", "10/s", "30/m")
STEPS = 20  # in which jobs are published
MOST = 40 * STEPS  # in which all must be done

Code = dict[str, dict[str, Any]]


class Start(NamedTuple):
    now: int
    task: str
    name: str


class Line:
    """What has happened to the jobs of a rate key. ``came``: when each attempt was judged first, in that order."""

    def __init__(self) -> None:
        self.starts: list[Start] = []
        self.came: dict[tuple[str, int], int] = {}


class World:
    """Jobs of three tasks and two rate keys, and workers that claim when the clock of the test says so.

    ``prompt``: as soon as anything is due. ``codes``: what the code of each worker says of the tasks.
    """

    def __init__(self, bench: Bench, seed: object, *codes: Code, prompt: bool, patch: pytest.MonkeyPatch) -> None:
        self.random, self.prompt, self.bench = random.Random(str(seed)), prompt, bench
        self.now = self.look_at = START
        bench.clock_by(lambda: self.now)
        limits_clock(patch, lambda: self.now / SECOND)
        self.workers = [Limited(bench) for _ in codes]
        for worker, code in zip(self.workers, codes, strict=True):
            worker.tasks.update(code)
            worker.largest_burst = max(options.get("burst", 1) for options in code.values())
        self.looks = [worker.looks() for worker in self.workers]
        self.lines = {"r": Line(), "s": Line()}
        self.moved: Counter[tuple[str, int]] = Counter()
        self.held: list[Held] = []
        self.published = 0

    def rate(self, task: str) -> RateArithmetic:
        return rate_of(self.workers[0].tasks[task])

    def run(self) -> None:
        """Publish for some steps, and go on until all is done."""
        for step in range(MOST):
            if step < STEPS and self.random.random() < 0.5:
                self.publish()
            while self.claim() and self.prompt:
                pass
            self.end()
            if self.now >= self.look_at:
                self.look_at = self.now + SECOND
                for looks in self.random.sample(self.looks, len(self.looks)):
                    looks.look()
            if step >= STEPS and not self.bench.jobs.exclude(state="SUCCESSFUL").exists():
                return
            self.go_on(1.0 if step < STEPS else 5.0)
        pytest.fail(f"these have not come to their end: {self.rows()}")

    def publish(self) -> None:
        count = self.random.choice((1, 1, 2, 5))
        names = [f"{self.published + number:03}" for number in range(count)]
        self.published += count
        task = self.random.choice(TASKS)
        keyed = {"concurrency", "order_key"} & {*self.workers[0].tasks[task]}
        self.workers[0].publish(
            task,
            *names,
            due=(self.now - START) / SECOND + self.random.choice((0, 0, 0, 0.3, 1.7)),
            priority=self.random.choice((0, 0, 0, 5)),
            key=self.random.choice("xy") if keyed else None,
            rate_keys=[self.random.choice("rs")] * count,
        )

    def claim(self) -> int:
        """Claim by one of the workers, and note what becomes of each job; return how many start."""
        before, worker = self.rows(), self.random.choice(self.workers)
        jobs = worker.claim((self.now - START) / SECOND, self.random.choice((1, 2, 3, 10, 100)))
        for name, job in jobs.items():
            line = self.lines[before[name].rate_key]
            line.came.setdefault((name, before[name].claims), self.now)
            line.starts.append(Start(self.now, job.task_path, name))
        self.held += jobs.values()
        after = self.rows()
        for name in sorted(after, key=lambda name: after[name].due_at):
            row = after[name]
            if row.booked and row.due_at != before[name].due_at:
                self.moved[name, row.claims] += 1
                self.lines[row.rate_key].came.setdefault((name, row.claims), self.now)
        return len(jobs)

    def rows(self) -> dict[str, Row]:
        return self.workers[0].unfinished()

    def end(self) -> None:
        """End some of what runs: most is done, some is to be tried again, or is given back."""
        for job in [job for job in self.held if self.random.random() < 0.7]:
            self.held.remove(job)
            chance = self.random.random()
            if chance < 0.1 and job.attempts < job.max_attempts:
                delay = self.random.choice((0, 0.5, 2))
                self.workers[0].end(failure(job, (self.now - START) / SECOND, delay))
            elif chance < 0.15:
                self.workers[0].end(release(job))
            else:
                self.workers[0].done(job)

    def go_on(self, longest: float) -> None:
        """Have time pass: if claims are prompt, no longer than until the next job is due."""
        seconds = self.random.choice((0.01, 0.1, 0.35, longest))
        if self.prompt:
            waiting = self.bench.jobs.filter(lease_until=None, finished_at=None).order_by("visible_at")
            due = waiting.values_list("visible_at", flat=True).first()
            until = self.now + 10 * SECOND if due is None else max(at(seconds_at(due)), self.now)
            self.now = min(self.now + round(seconds * SECOND), until)
        else:
            self.now += round(min(self.random.choice((seconds, 10 * seconds, 0.001)), 10) * SECOND)

    # What is promised

    def assert_no_rate_is_exceeded(self) -> None:
        """When a job starts, there are no more starts of its key than its own rate allows, in any time up to then.

        Of those that start at one instant the ones with the smallest burst count as the first.
        """
        for line in self.lines.values():
            starts = sorted(line.starts, key=lambda start: (start.now, self.rate(start.task).burst))
            for index, (now, task, name) in enumerate(starts):
                rate = self.rate(task)
                for count, start in enumerate(reversed(starts[: index + 1]), 1):
                    assert (count - rate.burst) * rate.interval <= now - start.now, (name, start)

    def assert_moved_once(self) -> None:
        assert {key: count for key, count in self.moved.items() if count > 1} == {}

    def assert_in_order_and_at_once(self) -> None:
        """Each starts as soon as the rate allows it, in the order in which they came."""
        rate = self.rate(TASKS[0])
        for line in self.lines.values():
            next_at, moment, expected = START, START, []
            for (name, _), came in line.came.items():
                moment = max(came, moment, rate.allowed_at(next_at))
                next_at = rate.started(next_at, moment)
                expected.append((moment, name))
            assert [(now, name) for now, _, name in line.starts] == expected


@pytest.mark.parametrize("prompt", [True, False], ids=["prompt", "late"])
@pytest.mark.parametrize("seed", range(3))
def test_one_rate(bench: Bench, monkeypatch: pytest.MonkeyPatch, seed: int, prompt: bool) -> None:
    """Tasks with one rate are as one: nothing exceeds it, each job is moved once, nothing is idle or out of order."""
    options: list[dict[str, Any]] = [{"rate": "2/s"}, {"rate": "10/s", "burst": 3}, {"rate": "3/s", "burst": 5}]
    world = World(bench, seed, dict.fromkeys(TASKS, options[seed]), prompt=prompt, patch=monkeypatch)
    world.run()
    world.assert_no_rate_is_exceeded()
    if prompt:
        world.assert_moved_once()
        world.assert_in_order_and_at_once()


@pytest.mark.parametrize("prompt", [True, False], ids=["prompt", "late"])
@pytest.mark.parametrize("seed", range(2))
def test_other_bursts(bench: Bench, monkeypatch: pytest.MonkeyPatch, seed: int, prompt: bool) -> None:
    """Each start is one that its own task's burst allows, after the starts of all; each job is moved once."""
    code = {task: {"rate": "5/s", "burst": 1 + (number + seed) % 3 * 2} for number, task in enumerate(TASKS)}
    world = World(bench, seed, code, prompt=prompt, patch=monkeypatch)
    world.run()
    world.assert_no_rate_is_exceeded()
    if prompt:
        world.assert_moved_once()


@pytest.mark.parametrize("seed", range(3))
def test_with_places(bench: Bench, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Jobs that need a place first, or their turn, exceed no rate, and all come to their end."""
    kinds: list[dict[str, Any]] = [{}, {"concurrency": 1}, {"concurrency": 2}, {"order_key": str}]
    code = {task: {"rate": "5/s", "burst": 2, **kinds[(number + seed) % 4]} for number, task in enumerate(TASKS)}
    world = World(bench, seed, code, prompt=seed % 2 == 0, patch=monkeypatch)
    world.run()
    world.assert_no_rate_is_exceeded()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("seed", range(2))
def test_other_rates(bench: Bench, monkeypatch: pytest.MonkeyPatch, seed: int, workers: int) -> None:
    """Tasks, or workers with old and new code, that say different things of one key: it has one of the rates.

    Nothing exceeds the highest, no job is moved again and again, and all come to their end.
    """
    chance = random.Random(seed)
    codes: list[Code] = [
        {task: {"rate": chance.choice(RATES), "burst": chance.choice((1, 4))} for task in TASKS} for _ in range(workers)
    ]
    world = World(bench, seed, *codes, prompt=True, patch=monkeypatch)
    world.run()
    said = [options for code in codes for options in code.values()]
    rates = [rate_of(options) for options in said]
    interval, tolerance = min(rate.interval for rate in rates), max(rate.tolerance for rate in rates)
    for line in world.lines.values():
        for index, (now, *_) in enumerate(line.starts):
            for count, start in enumerate(reversed(line.starts[: index + 1])):
                assert count * interval <= now - start.now + tolerance
    assert max(world.moved.values(), default=0) <= 8
