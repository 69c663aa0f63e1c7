"""The checker itself, on stories written by hand: what finds nothing proves nothing if it could not."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ...processes.instance import Term
from ...processes.slot_instance import Look
from .. import words
from ..ledger import Event
from ..words import SECOND
from .checker import LATEST, PROMISES, WAITS, Entry, Job, Row, Story, broken
from .faults import KILL, KILL_CHILD, LEASE_LOCK, LOCK, PAUSE, STANDSTILL, STOP, TERM_TWICE, Fault
from .journal import Execution
from .kinds import ASIDE, LONG_LEASE, MAX_DEPTH, ROWS, SHORT_LEASE

LATE = LATEST // SECOND + 1

ONE, OTHER = "host:1:a", "host:2:b"


def at(seconds: float) -> int:
    return round(seconds * SECOND)


def job(kind: str = "medium", queue: str = "default", due: float = 0, cancelled: float | None = None) -> Job:
    return Job("j", kind, queue, at(0), at(due), None if cancelled is None else at(cancelled))


def run(
    begin: float,
    last: float,
    worker: str = ONE,
    outcome: str = "ok",
    pid: int = 1,
    attempt: int = 1,
    kind: str = "medium",
    **values: Any,
) -> Execution:
    return Execution("j", kind, worker, pid, attempt, at(begin), at(last), outcome, **values)


def ended(outcome: str, when: float, worker: str = ONE, number: int = 1) -> Entry:
    return Entry(number=number, worker=worker, started=at(0), ended=at(when), outcome=outcome)


def row(
    *entries: Entry,
    state: str = words.SUCCESSFUL,
    worker: str = ONE,
    exception: str = "",
    lease: float = LONG_LEASE,
) -> Row:
    return Row(state, worker, at(lease), exception, list(entries))


def fault(name: str, begin: float, end: float, *pids: int) -> Fault:
    return Fault(name, frozenset(pids), at(begin), at(end))


def claim(when: float, number: int = 1) -> Event:
    return Event("claimed", "j", number, ONE, at(when))


def term(token: int, begin: float, end: float) -> Term:
    return Term(token, begin, end, Path(f"instance{token}"))


def look(pid: int, began: float, until: float) -> Look:
    return Look(began, began, until, pid, number=0, starts_at=began, missed=0)


def story(job: Job, found: Row | None, *runs: Execution, **values: Any) -> Story:
    given = {"acknowledged": Counter({"j": 1}), **values}
    return Story([job], list(runs), {} if found is None else {"j": found}, **given)


def slow(begin: float, last: float) -> Execution:
    return Execution("k", "slow", ONE, 1, 1, at(begin), at(last), "ok")


EXPIRED = ended(words.LEASE_EXPIRED, 3)
DEAD = row(EXPIRED, state=words.DEAD, exception="LeaseExpired", lease=SHORT_LEASE)
EXPIRED_JOB = row(ended(words.EXPIRED, 1.2, number=0), state=words.DEAD, exception="JobExpired")
HELD_BACK = Story(  # by a transactional job that began beside it, until the process was killed for that one
    [job(), Job("k", "slow", "default", at(0))],
    [run(0.5, 0.6), run(9, 10, OTHER), slow(0.1, 8), slow(11, 13)],
    {"j": row(worker=OTHER), "k": row(ended(words.TIMED_OUT, 8))},
    acknowledged=Counter({"j": 1, "k": 1}),
    effects=Counter({"k": 1}),
)
AT_THE_LAST_MOMENT = Story(  # the process was killed for a job that ended well just then
    [job(), Job("k", "slow", "default", at(0))],
    [run(0.5, 0.5, outcome=""), run(9, 10, OTHER, pid=2), slow(0.6, 8)],
    {"j": row(worker=OTHER), "k": row()},
    acknowledged=Counter({"j": 1, "k": 1}),
    effects=Counter({"k": 1}),
    over_time={1},
)
ALL = [str(number) for number in range(ROWS)]
GOOD = [
    HELD_BACK,
    story(job("iterates"), row(), run(1, 2, kind="iterates", items=ALL)),
    story(
        job("iterates"),
        row(ended(words.WORKER_DIED, 2), worker=OTHER),
        run(1, 2, outcome="", kind="iterates", items=ALL[:9]),
        run(3, 4, OTHER, kind="iterates", items=ALL[8:]),
        faults=[fault(KILL, 2, 2, 1)],
    ),
    story(job("gathers"), row(), run(1, 1, outcome=WAITS, kind="gathers"), run(2, 2, kind="gathers")),
    AT_THE_LAST_MOMENT,
    story(replace(job(), priority=-1), row(), run(31, 32)),
    story(job("writes"), row(ended(words.TIMED_OUT, 6)), run(1, 6), run(7, 8), effects=Counter({"j": 1}), counted=1),
    story(job("hurried"), EXPIRED_JOB),
    story(
        job("hurried"),
        row(ended(words.RETRY, 1)),
        run(0.9, 1, outcome="Retry"),
        run(3, 3),
        claims=[claim(0.9), claim(3, 2)],
    ),
    story(job("keyed"), row(), run(1, 2), claims=[claim(1)]),
    story(job(), row(), run(1, 5), terms=[term(1, 1, 5), term(3, 5.1, 6)]),
    story(job(), row(), run(1, 5), looks=[look(1, 1, 5), look(1, 2, 5), look(2, 5.1, 6)]),
    story(job(), row(), run(1, 5)),
    story(job(), row(EXPIRED, worker=OTHER), run(1, 2, outcome=""), run(3, 5, OTHER), faults=[fault(KILL, 2, 2, 1)]),
    story(
        job(), row(EXPIRED, worker=OTHER), run(1, 4, outcome=""), run(3, 5, OTHER), faults=[fault(STOP, 1.5, 3.5, 1)]
    ),
    story(job(), row(ended(words.RELEASED, 2)), run(1, 2, outcome=""), run(3, 5), faults=[fault(TERM_TWICE, 2, 2, 1)]),
    story(job("later"), row(ended(words.RETRY, 2)), run(1, 2, outcome="Retry", delay=5.0), run(7, 8)),
    story(job("once"), DEAD, run(1, 2, outcome=""), faults=[fault(KILL, 2, 2, 1)]),
    story(job("slow"), row(ended(words.TIMED_OUT, 4.1)), run(1, 4), run(5, 7), effects=Counter({"j": 1})),
    story(
        job("gives_up"),
        row(ended(words.GAVE_UP, 1), state=words.DEAD, exception="GiveUp"),
        run(1, 1, outcome="GiveUp"),
    ),
    story(job(cancelled=2), row(ended(words.CANCELLED, 2), state=words.DEAD, exception="Cancelled")),
    story(job(queue=ASIDE), row(), run(1, 2), faults=[fault(PAUSE, 2, 3)], claims=[claim(1)]),
    story(job(), row(EXPIRED, worker=OTHER), run(1, 4, leases=[(at(1), at(3))]), run(3.1, 5, OTHER)),
    story(job(), row(), run(70, 71), faults=[fault(STANDSTILL, 5, 60)]),
    story(job(), row(worker=OTHER), run(3.7, 3.8), run(3.9, 5, OTHER), faults=[fault(STANDSTILL, 1, 3, 1, 2)]),
    story(
        job(),
        row(worker=OTHER),
        run(1, 2),
        run(12, 13, OTHER),
        faults=[fault(STANDSTILL, 3, 8.5, 1), fault(KILL, 9, 9, 1)],
    ),
    story(
        job("slow"),
        row(ended(words.TIMED_OUT, 6)),
        run(7, 9),
        effects=Counter({"j": 1}),
        faults=[fault(STANDSTILL, 1, 5.5, 1)],
    ),
    story(  # its worker had a second to tell of it, and half of one
        job(),
        row(worker=OTHER),
        run(1, 2),
        run(18, 19, OTHER),
        faults=[
            fault(LOCK, 2, 5),
            fault(STANDSTILL, 4, 10, 1),
            fault(LEASE_LOCK, 11, 14),
            fault(KILL, 14.5, 14.5, 1),
        ],
    ),
    story(  # nobody had the write lock for it within a third of its lease
        job("long"),
        row(ended(words.LEASE_EXPIRED, 6.1), worker=OTHER, lease=SHORT_LEASE),
        run(1, 7, kind="long"),
        run(6.1, 8, OTHER, kind="long"),
        faults=[fault(STANDSTILL, 1.5, 5, 1, 2)],
    ),
    story(job(), row(EXPIRED, worker=OTHER), run(3, 5, OTHER), starved={1}),
    story(job(queue=ASIDE), None, run(1, 2)),
    story(job("writes"), row(), run(1, 2), effects=Counter({"j": 1}), counted=1),
    story(job("shared"), row(), run(1, 5, kind="shared"), run(3, 6, OTHER, kind="shared")),
    story(
        job("later"),
        row(ended(words.WORKER_DIED, 2), ended(words.RETRY, 2.1, number=2)),
        run(2.005, 2.1, outcome="Retry", attempt=2),
        run(8, 9, attempt=3),
        faults=[fault(KILL_CHILD, 2, 2, 1)],
    ),
]
BAD = {
    "nothing_is_lost": [
        story(job(), None),
        story(job(), row(state=words.READY)),
        story(job(), row(state=words.DEAD)),
    ],
    "each_ends_as_it_should": [
        story(job(), DEAD),
        story(job("once"), row(ended(words.FAILED, 2), state=words.DEAD)),
        story(job("gives_up"), row(), run(1, 1)),
        story(job(cancelled=2), row(), run(3, 3)),
    ],
    "settled_once": [
        story(job(), row(), acknowledged=Counter({"j": 2})),
        story(job(), row(), buried=Counter({"j": 1})),
    ],
    "no_claim_number_comes_twice": [story(job(), row(), claims=[claim(1), claim(2)])],
    "one_at_a_time": [
        story(job(), row(EXPIRED), run(1, 5), run(3, 5, OTHER)),
        story(job(), row(EXPIRED), run(1, 9), run(3, 5, OTHER), faults=[fault(KILL, 2, 2, 1)]),
        story(job(), row(EXPIRED), run(1, 5), run(3, 5, OTHER), faults=[fault(KILL, 2, 2, 7)]),
        story(job(), row(EXPIRED), run(1, 5), run(3, 5, OTHER), faults=[fault(STANDSTILL, 1, 3, 1, 2)]),
        story(job(), row(EXPIRED), run(1, 4, leases=[(at(1), at(3))]), run(2.9, 5, OTHER)),
        story(job(), row(ended(words.RELEASED, 2)), run(1, 4), run(3, 5, OTHER)),
        story(job("shared"), row(), *(run(1 + second, 5, kind="shared", pid=second) for second in range(3))),
    ],
    "none_is_taken_from_a_living_holder": [
        story(job(), row(EXPIRED), run(1, 2.9), run(3, 5, OTHER), starved={1}),
        story(job(), row(EXPIRED, worker=OTHER), run(3, 5, OTHER), starved={2}),
        story(
            job("long"),
            row(ended(words.LEASE_EXPIRED, 5.9), worker=OTHER, lease=SHORT_LEASE),
            run(1, 7, kind="long"),
            run(5.9, 8, OTHER, kind="long"),
            faults=[fault(STANDSTILL, 1.5, 5, 1, 2)],
        ),
        story(
            job(),
            row(EXPIRED),
            run(1, 4, pauses=[(at(1.5), at(2.9))]),
            run(3, 5, OTHER),
            faults=[fault(STANDSTILL, 1.5, 2.9, 1, 2)],
        ),
    ],
    "what_is_done_is_not_buried": [story(job("once"), DEAD, run(1, 4))],
    "what_came_to_a_good_end_has_not_failed": [story(job(), row(ended(words.FAILED, 2)), run(1, 2), run(3, 4))],
    "none_begins_before_its_time": [story(job(due=5), row(), run(4.9, 5))],
    "no_retry_before_its_delay": [
        story(job("later"), row(ended(words.RETRY, 2)), run(1, 2, outcome="Retry", delay=5.0), run(6.9, 8)),
        story(job("backs_off"), row(ended(words.FAILED, 2)), run(1, 2, outcome="E", delay=4.0), run(2.5, 8)),
    ],
    "none_begins_late": [
        story(job(), row(), run(LATE, LATE + 1)),
        story(
            job("later"), row(ended(words.RETRY, 2)), run(1, 2, outcome="Retry", delay=5.0), run(LATE + 9, LATE + 10)
        ),
    ],
    "attempts_are_those_that_began": [
        story(job("slow"), row(ended(words.TIMED_OUT, 3)), run(5, 7), effects=Counter({"j": 1})),
        story(job("slow"), row(ended(words.TIMED_OUT, 3, OTHER)), run(1, 2), effects=Counter({"j": 1})),
    ],
    "each_gets_its_time": [
        story(job("slow"), row(ended(words.TIMED_OUT, 3)), run(1, 3), run(5, 7), effects=Counter({"j": 1})),
        story(job(), row(ended(words.TIMED_OUT, 3)), run(1, 3), run(5, 7)),
    ],
    "what_ran_is_in_the_history": [
        story(job(), row(), run(1, 2), run(3, 4)),
        replace(AT_THE_LAST_MOMENT, over_time=set()),
        story(job(), row(), run(1, 2), run(12, 13), faults=[fault(LOCK, 2.5, 5), fault(KILL, 9.6, 9.6, 1)]),
    ],
    "one_attempt_is_one": [story(job("once"), row(), run(1, 2), run(3, 4))],
    "effects_are_exactly_once": [
        story(job("writes"), row(), run(1, 2)),
        story(job("writes"), row(), run(1, 2), effects=Counter({"j": 2})),
        story(job("writes"), row(state=words.DEAD), run(1, 2), effects=Counter({"j": 1})),
    ],
    "no_increment_is_lost": [story(job("writes"), row(), run(1, 2), effects=Counter({"j": 1}))],
    "what_is_cancelled_does_not_begin": [story(job(cancelled=2), row(), run(2.1, 3))],
    "none_starts_too_late": [story(job("hurried"), row(), run(1, 2), claims=[claim(1.1)])],
    "what_expires_has_not_begun": [story(job("hurried"), EXPIRED_JOB, run(0.5, 0.6))],
    "one_job_a_key": [
        Story(
            [Job("j", "keyed", "default", at(0), key="1"), Job("k", "keyed", "default", at(1), key="1")],
            claims=[claim(1.1)],
        )
    ],
    "paused_queues_rest": [
        story(job(queue=ASIDE), row(), run(1, 2), faults=[fault(PAUSE, 0.5, 3)], claims=[claim(1)]),
    ],
    "leases_stay_what_they_were": [story(job(), row(lease=2), run(1, 2))],
    "one_leader_at_a_time": [story(job(), row(), run(1, 2), terms=[term(1, 1, 5), term(2, 4, 6)])],
    "one_turn_at_a_time": [story(job(), row(), run(1, 2), looks=[look(1, 1, 5), look(2, 4, 6)])],
    "tokens_grow": [
        story(job(), row(), run(1, 2), terms=[term(2, 1, 3), term(1, 4, 6)]),
        story(job(), row(), run(1, 2), terms=[term(1, 1, 3), term(1, 4, 6)]),
    ],
    "forked_children_are_no_workers": [story(job(), row(), run(1, 2, pid=9), forked={9})],
    "loops_come_to_each_row": [
        story(job("iterates"), row(), run(1, 2, kind="iterates", items=ALL[1:])),
        story(job("iterates"), row(), run(1, 2, kind="iterates", items=[*ALL, "1"])),
    ],
    "a_full_queue_takes_no_more": [story(job(), row(), run(1, 2), deepest=MAX_DEPTH + 1)],
    "workers_leave": [story(job(), row(), run(1, 2), stayed=["vtworker"])],
}


@pytest.mark.parametrize("told", GOOD)
def test_what_is_as_promised_breaks_nothing(told: Story) -> None:
    """What docs/explanation/guarantees.md allows is no fault, so a mix that fails has found one."""
    assert broken(told) == {}


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_each_broken_promise_is_found(promise: Any) -> None:
    """There is no promise that the checker knows and could not find broken."""
    for told in BAD[promise.__name__]:
        assert list(promise(told)) != []
