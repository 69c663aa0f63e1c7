"""What is promised of every job, against what happened: each promise is a function that says where it was broken.

Plain values in, sentences out; docs/explanation/guarantees.md has the promises.
"""

import json
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from ...processes import slot_instance
from ...processes.instance import Term, overlaps
from ...processes.slot_instance import Look
from .. import words
from ..ledger import Event
from ..words import SECOND
from .faults import KILL, KILL_CHILD, LEASE_LOCK, LOCK, PAUSE, STANDSTILL, STOP, TERM, TERM_TWICE, Fault
from .journal import Execution
from .kinds import ASIDE, KINDS, MAX_DEPTH, PAYLOADS, SHORT_LEASE, Kind

Entry = dict[str, Any]  # of a history

TOLERANCE = SECOND // 20  # between two readings of the clock in two processes, each of which may have measured it
LATEST = 120 * SECOND  # after its time, that no fault takes from it, a job is begun at the latest: hundreds may wait
ORPHANED = 2 * SECOND  # for which the children of a killed supervisor may go on
UNTIL_NEXT = 5 * SECOND  # for which it may not be seen that a worker was killed
ATTEMPTS = (words.FAILED, words.RETRY, words.GAVE_UP, words.TIMED_OUT)  # that ended with a word of their own
WAITS = "Suspend"  # by which a durable task leaves when it waits
ENDED_FOR_IT = (words.LEASE_EXPIRED, words.WORKER_DIED)  # that others ended


@dataclass
class Job:
    """A job as its publisher saw it; instants in microseconds. ``due``: 0 if it was not scheduled.

    ``cancelled_at``: when it was cancelled while it waited. ``asked``: whether it was asked to stop while it ran.
    ``key``: no other unfinished job has it; "": none. ``priority``: most jobs have 0.
    """

    id: str
    kind: str
    queue: str
    at: int
    due: int = 0
    cancelled_at: int | None = None
    asked: bool = False
    key: str = ""
    priority: int = 0

    @property
    def promises(self) -> Kind:
        return KINDS[self.kind]


@dataclass
class Row:
    """What the tables say of a job in the end; ``state`` is FAILED for a dead letter, ``worker`` its last holder."""

    state: str
    worker: str
    lease: int
    exception: str
    history: list[Entry]


@dataclass
class Story:
    """Everything that is known of a mix. ``executions``: by their begin. ``effects``: how many rows each job has left.

    ``counted``: by the tasks that read and write. ``terms``: for how long each instance of a lease was the leader.
    ``looks``: when instances with time slots found themselves in their turns. ``forked``: the ids of processes that
    tasks made. ``starved``: those of workers that lacked memory now and then. ``stayed``: the workers that did not
    leave. ``deepest``: how many jobs that were never begun have waited in the queue with a ``max_depth``, at the most.
    ``over_time``: the processes that a supervisor killed, as it says itself, because a job of them ran for too long;
    that job may have come to its end at the last moment.
    """

    jobs: list[Job]
    executions: list[Execution] = field(default_factory=list)
    rows: dict[str, Row] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    claims: list[Event] = field(default_factory=list)
    acknowledged: Counter[str] = field(default_factory=Counter)
    buried: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    counted: int = 0
    terms: list[Term] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    forked: set[int] = field(default_factory=set)
    starved: set[int] = field(default_factory=set)
    stayed: list[str] = field(default_factory=list)
    deepest: int = 0
    over_time: set[int] = field(default_factory=set)

    @cached_property
    def runs(self) -> dict[str, list[Execution]]:
        """The executions of each job."""
        runs: dict[str, list[Execution]] = defaultdict(list)
        for execution in self.executions:
            runs[execution.job].append(execution)
        return runs

    @cached_property
    def ended_by_time(self) -> list[Fault]:
        """What it looks like to the other jobs of a child that one was killed because its time was up.

        If that one was transactional, none of their outcomes could be written since it began.
        """
        last: dict[int, Execution] = {}
        for run in self.executions:
            if run.pid in self.over_time and (run.pid not in last or run.last > last[run.pid].last):
                last[run.pid] = run
        return [Fault(KILL_CHILD, frozenset({pid}), run.begin, run.last) for pid, run in last.items()] + [
            Fault(KILL_CHILD, frozenset({pid_of(entry["worker"])}), entry.get("started") or 0, entry["ended"])
            for row in self.rows.values()
            for entry in row.history
            if entry.get("outcome") == words.TIMED_OUT
        ]

    @cached_property
    def faults_of(self) -> dict[int, list[Fault]]:
        """The faults that met each holder."""
        met: dict[int, list[Fault]] = defaultdict(list)
        for fault in self.faults + self.ended_by_time:
            for pid in fault.pids:
                met[pid].append(fault)
        return met

    @cached_property
    def matched(self) -> dict[str, tuple[list[tuple[Entry, Execution | None]], list[Execution]]]:
        """What belongs together: for each job the entries of its history with their executions, and those without."""
        return {job_id: match(row, self.runs.get(job_id, [])) for job_id, row in self.rows.items()}

    def met(self, worker: str, names: Collection[str], since: int, until: int) -> bool:
        """Return whether one of these faults met a worker at that time."""
        return any(
            fault.name in names and fault.begin <= until and since <= fault.end
            for fault in self.faults_of.get(pid_of(worker), ())
        )

    def time_lost(self, since: int, until: int, names: Collection[str]) -> int:
        """Return for how long these faults lasted in that time."""
        return sum(
            max(min(until, fault.end) - max(since, fault.begin), 0) for fault in self.faults if fault.name in names
        )

    @cached_property
    def without_turns(self) -> list[tuple[int, int]]:
        """From when until when a worker may have had no turn: it stood still, or another one had the write lock."""
        spans = [(fault.begin, fault.end) for fault in self.faults if fault.name in (STANDSTILL, LOCK, LEASE_LOCK)]
        spans += [(run.begin, run.last) for run in self.executions if KINDS[run.kind].effects]  # transactional
        return sorted(spans)

    def next_turn(self, since: int) -> int:
        """Return when a worker has had its next turn at the latest: ``UNTIL_NEXT``, but for when it can have none."""
        at, left = since, UNTIL_NEXT
        for begin, end in self.without_turns:
            if end <= at:
                continue
            if begin - at >= left:
                break
            left -= max(begin - at, 0)
            at = end
        return at + left


Broken = Iterator[str]
PROMISES: list[Callable[[Story], Broken]] = []


def promise(function: Callable[[Story], Broken]) -> Callable[[Story], Broken]:
    PROMISES.append(function)
    return function


def broken(story: Story) -> dict[str, list[str]]:
    """Return what was broken of each promise that was."""
    found = {(function.__doc__ or "").partition("\n")[0]: list(function(story)) for function in PROMISES}
    return {promise: sentences for promise, sentences in found.items() if sentences}


@promise
def nothing_is_lost(story: Story) -> Broken:
    """Each job ends: it is acknowledged, or a dead letter with its history."""
    for job in story.jobs:
        row = story.rows.get(job.id)
        if row is None:
            if job.queue != ASIDE or not story.acknowledged[job.id]:  # its results are kept for a moment only
                yield f"{name(job)} is in neither table"
        elif row.state not in (words.SUCCESSFUL, words.DEAD):
            yield f"{name(job)} is {row.state}"
        elif row.state == words.DEAD and not row.history:
            yield f"{name(job)} is a dead letter without a history"


@promise
def each_ends_as_it_should(story: Story) -> Broken:
    """A job that can succeed succeeds, unless it had one attempt and that was lost with its holder."""
    for job in story.jobs:
        row = story.rows.get(job.id)
        if row is None or row.state not in (words.SUCCESSFUL, words.DEAD):
            continue
        if job.asked:
            continue  # it may have ended before it was told
        if job.cancelled_at or job.promises.ends != "succeeds":
            expected = "Cancelled" if job.cancelled_at else job.promises.ends
            if row.state != words.DEAD or not row.exception.endswith(expected):
                yield f"{name(job)} is {row.state} {row.exception}, not {expected}"
        elif row.state == words.DEAD and job.promises.expires and row.exception.endswith("JobExpired"):
            continue  # see what_expires_has_not_begun
        elif row.state == words.DEAD and not (
            job.promises.max_attempts == 1 and row.history[-1].get("outcome") in ENDED_FOR_IT
        ):
            yield f"{name(job)} is a dead letter: {row.exception}"


@promise
def settled_once(story: Story) -> Broken:
    """Each job is settled once."""
    for job in story.jobs:
        acknowledged, buried = story.acknowledged[job.id], story.buried[job.id]
        if acknowledged + buried > 1:
            yield f"{name(job)} was acknowledged {acknowledged} times and buried {buried} times"


@promise
def no_claim_number_comes_twice(story: Story) -> Broken:
    """Each claim of a job has a number of its own."""
    for (job, number), times in Counter((claim.job, claim.claims) for claim in story.claims).items():
        if times > 1:
            yield f"{job} was claimed {times} times as number {number}"


@promise
def one_at_a_time(story: Story) -> Broken:
    """No job runs twice at once (with copies: more often than allowed), unless its holder was killed, or stopped alone.

    The one was stopped for longer than its lease.
    """
    for runs in story.runs.values():
        for number, other in enumerate(runs):
            before = [run for run in runs[:number] if other.begin < run.last and not excused(story, run, other.begin)]
            for execution in before if len(before) >= KINDS[other.kind].copies else ():
                yield f"{told(execution)} ran until {moment(execution.last)} while {told(other)} did"


def stood_still(story: Story, execution: Execution, until: int) -> bool:
    """Return whether an execution gave no sign of life for a while, although not all others were stopped with it."""
    return any(
        start <= until and end - start - story.time_lost(start, end, [STANDSTILL]) > SECOND
        for start, end in execution.pauses
    )


def woken_late(story: Story, worker: str, kind: str, at: int) -> bool:
    """Return whether all stood still, and a holder did not renew in the third of a lease that others then leave it.

    On a busy machine it may come too late.
    """
    third = round((KINDS[kind].lease or SHORT_LEASE) * SECOND / 3) - TOLERANCE
    return story.met(worker, [STANDSTILL], at - third - SECOND, at) and not story.met(
        worker, [STANDSTILL], at - third, at
    )


def excused(story: Story, execution: Execution, begin: int) -> bool:
    """Return whether another execution may begin although this one goes on."""
    since = execution.begin
    if execution.leases:  # it keeps its lease itself, and no claim waits for it when that has ended
        known = [end for at, end in execution.leases if at <= begin]
        return bool(known) and begin >= max(known)
    if stood_still(story, execution, begin) or story.met(execution.worker, [STOP], since, begin):
        return True
    if woken_late(story, execution.worker, execution.kind, begin):
        return True
    return execution.last <= begin + ORPHANED and story.met(execution.worker, [KILL], since - UNTIL_NEXT, begin)


@promise
def none_is_taken_from_a_living_holder(story: Story) -> Broken:
    """A lease of ``vtworker`` and ``Queue.run`` ends only if its holder was killed, left, or was stopped alone."""
    causes = (KILL, KILL_CHILD, TERM_TWICE, STOP)
    for job in story.jobs:
        entries, _ = story.matched.get(job.id, ([], []))
        for entry, execution in entries:
            if entry.get("outcome") not in ENDED_FOR_IT:
                continue
            if execution and (execution.leases or stood_still(story, execution, entry["ended"])):
                continue
            if execution is None and pid_of(entry["worker"]) in story.starved:
                continue  # it had no memory to note what it has claimed
            if woken_late(story, entry["worker"], job.kind, entry["ended"]):
                continue
            since = (execution.begin if execution else entry.get("started") or 0) - UNTIL_NEXT
            if not story.met(entry["worker"], causes, since, entry["ended"]):
                yield f"{name(job)} was taken from {entry['worker']} at {moment(entry['ended'])}: {entry['outcome']}"


@promise
def what_is_done_is_not_buried(story: Story) -> Broken:
    """A job whose only attempt came to a good end is no dead letter, unless its holder was killed or stopped."""
    for job in story.jobs:
        row = story.rows.get(job.id)
        if row and row.state == words.DEAD and job.promises.ends == "succeeds":
            for run in story.runs.get(job.id, []):
                causes = (KILL, KILL_CHILD, TERM_TWICE, STOP)
                if run.outcome == "ok" and not story.met(run.worker, causes, run.begin, story.next_turn(run.last)):
                    yield f"{told(run)} was done at {moment(run.last)}, and is a dead letter: {row.exception}"


@promise
def what_came_to_a_good_end_has_not_failed(story: Story) -> Broken:
    """No attempt that came to a good end is one that has failed; what is to be committed with it may."""
    for job in story.jobs:
        entries, _ = story.matched.get(job.id, ([], []))
        for entry, run in entries if job.promises.copies == 1 and not job.promises.effects else ():
            if run and run.outcome == "ok" and entry.get("outcome") in (words.FAILED, words.RETRY, words.GAVE_UP):
                yield f"{told(run)} was done at {moment(run.last)}, and has failed as attempt {entry['number']}"


@promise
def none_begins_before_its_time(story: Story) -> Broken:
    """A scheduled job does not begin before its time."""
    for job in story.jobs:
        for run in story.runs.get(job.id, [])[:1]:
            if job.due and run.begin < job.due - TOLERANCE:
                yield f"{told(run)} began {(job.due - run.begin) / SECOND:.3f} s before its time"


@promise
def no_retry_before_its_delay(story: Story) -> Broken:
    """After a failed attempt the next one does not begin before its delay or backoff is over."""
    for _, failed_at, due, following in retries(story):
        if following and following.begin < due - TOLERANCE:
            waited, delay = (following.begin - failed_at) / SECOND, (due - failed_at) / SECOND
            yield f"{told(following)} began after {waited:.3f} s instead of {delay:g} s"


@promise
def none_begins_late(story: Story) -> Broken:
    """While there are workers a job begins soon after its time, and a retry after its delay.

    One that stands behind all others, by its priority, waits for as long as there are others.
    """
    for job in story.jobs:
        if job.priority < 0:
            continue
        due, runs = max(job.due, job.at), story.runs.get(job.id, [])
        if runs and (late := lateness(story, job, due, runs[0].begin)) > 0:
            yield f"{told(runs[0])} began {late / SECOND:.1f} s too late"
    for job, _, due, following in retries(story):
        if following and job.priority >= 0 and (late := lateness(story, job, due, following.begin)) > 0:
            yield f"{told(following)} began {late / SECOND:.1f} s too late after a failure"


def lateness(story: Story, job: Job, due: int, begin: int) -> int:
    """Return by how much a job began after what is bearable; there are few consumers of payloads to be stopped."""
    late = begin - due - LATEST
    causes = (LOCK, LEASE_LOCK, STANDSTILL, PAUSE, *([STOP] if job.kind in PAYLOADS else []))
    return late - story.time_lost(due, begin, causes) if late > 0 else late


def retries(story: Story) -> Iterator[tuple[Job, int, int, Execution | None]]:
    """Yield each failed attempt: its job, when it ended, when the next one is due at the earliest, and that one."""
    jobs = {job.id: job for job in story.jobs}
    for job_id, (entries, _) in story.matched.items():
        begins = [run.begin for run in story.runs.get(job_id, [])]
        for entry, execution in entries:
            if execution and execution.delay is not None and entry.get("outcome") in (words.FAILED, words.RETRY):
                following = bisect(begins, execution.begin)
                runs = story.runs[job_id][following : following + 1]
                yield (
                    jobs[job_id],
                    entry["ended"],
                    entry["ended"] + round(execution.delay * SECOND),
                    next(iter(runs), None),
                )


@promise
def attempts_are_those_that_began(story: Story) -> Broken:
    """An attempt that failed, or whose time was up, is one that began, unless it stood still before its first line."""
    for job in story.jobs:
        entries, _ = story.matched.get(job.id, ([], []))
        for entry, execution in entries:
            if entry.get("outcome") in ATTEMPTS and execution is None and not stood_still_at_first(story, entry):
                yield f"{name(job)} has the entry {entry['outcome']!r} of {entry['worker']}, who never began it"


def stood_still_at_first(story: Story, entry: Entry) -> bool:
    """Return whether the time of an attempt may have run out between its begin and its first line."""
    stopped = story.met(entry["worker"], (STANDSTILL, STOP), entry.get("started") or 0, entry["ended"])
    return stopped and entry.get("outcome") == words.TIMED_OUT


@promise
def each_gets_its_time(story: Story) -> Broken:
    """The time of an attempt is up only after it has run for so long."""
    for job in story.jobs:
        entries, _ = story.matched.get(job.id, ([], []))
        for entry, execution in entries:
            if entry.get("outcome") == words.TIMED_OUT and execution:
                ran, limit = entry["ended"] - execution.begin, job.promises.limit
                # Its time runs from the claim: the process may have been stopped before the code was called.
                woken = story.met(execution.worker, (STANDSTILL,), execution.begin - SECOND, execution.begin)
                if limit is None or (ran < limit * SECOND - TOLERANCE and not woken):
                    yield f"{told(execution)} was ended after {ran / SECOND:.3f} s of {limit} s"


@promise
def what_ran_is_in_the_history(story: Story) -> Broken:
    """Each execution is an attempt in the history, or the end of the job, unless it was killed as it began, or lost."""
    for job in story.jobs:
        if job.promises.copies > 1:
            continue
        _, without = story.matched.get(job.id, ([], []))
        for run in without:
            causes = (KILL, KILL_CHILD, TERM_TWICE, STOP)
            # Others wait for a third of a lease after a standstill: on a busy machine a holder may come too late.
            woken = story.met(run.worker, (STANDSTILL,), run.begin - SECOND, run.begin)
            met = woken or story.met(run.worker, causes, run.begin - UNTIL_NEXT, story.next_turn(run.last))
            if not (run.leases or met or run.outcome == WAITS):
                yield f"{told(run)} left no trace"


@promise
def one_attempt_is_one(story: Story) -> Broken:
    """With ``max_attempts=1`` a job begins once, but for being given back by a worker that is stopped."""
    for job in story.jobs:
        row, runs = story.rows.get(job.id), story.runs.get(job.id, [])
        if row and job.promises.max_attempts == 1:
            given_back = sum(entry.get("outcome") == words.RELEASED for entry in row.history)
            if len(runs) > 1 + given_back:
                yield f"{name(job)} was begun {len(runs)} times, and given back {given_back} times"


@promise
def effects_are_exactly_once(story: Story) -> Broken:
    """What a transactional task writes is there once if it succeeded, and else not at all."""
    for job in story.jobs:
        row = story.rows.get(job.id)
        expected = job.promises.effects if row and row.state == words.SUCCESSFUL else 0
        if story.effects[job.id] != expected:
            yield f"{name(job)} has written {story.effects[job.id]} rows instead of {expected}"


@promise
def no_increment_is_lost(story: Story) -> Broken:
    """A counter that transactional tasks read and write ends at the number of those that succeeded."""
    done = {job_id for job_id, row in story.rows.items() if row.state == words.SUCCESSFUL}
    expected = sum(job.kind == "writes" and job.id in done for job in story.jobs)
    if story.counted != expected:
        yield f"{story.counted} increments of {expected} are there"


@promise
def loops_come_to_each_row(story: Story) -> Broken:
    """A loop comes to each of its rows once, and to one of them again for each time that its task is called again."""
    for job in story.jobs:
        row, runs = story.rows.get(job.id), story.runs.get(job.id, [])
        if not (job.promises.items and row and row.state == words.SUCCESSFUL):
            continue
        times = Counter(item for run in runs for item in run.items)
        again = times.total() - len(times)
        if len(times) != job.promises.items or again >= max(len(runs), 1):
            yield f"{name(job)} came to {len(times)} of {job.promises.items} rows, and {again} times to one again"


@promise
def what_is_cancelled_does_not_begin(story: Story) -> Broken:
    """A job that was cancelled while it waited is not begun."""
    for job in story.jobs:
        for run in story.runs.get(job.id, []):
            if job.cancelled_at and run.begin > job.cancelled_at:
                yield f"{told(run)} was cancelled at {moment(job.cancelled_at)}"


@promise
def none_starts_too_late(story: Story) -> Broken:
    """A job that expires is not claimed for its first attempt when its time is over."""
    first = {claim.job: claim for claim in story.claims if claim.claims == 1}
    for job in story.jobs:
        if job.promises.expires and (claim := first.get(job.id)):
            late = claim.at - job.at - round(job.promises.expires * SECOND)
            if late > TOLERANCE:
                yield f"{name(job)} was claimed {late / SECOND:.3f} s after its time"


@promise
def what_expires_has_not_begun(story: Story) -> Broken:
    """A job that has expired was not begun, but for what was given back by a worker that was stopped."""
    for job in story.jobs:
        row, runs = story.rows.get(job.id), story.runs.get(job.id, [])
        if row and row.exception.endswith("JobExpired"):
            given_back = sum(entry.get("outcome") == words.RELEASED for entry in row.history)
            if len(runs) > given_back:
                yield f"{name(job)} has expired, but was begun {len(runs)} times"


@promise
def one_job_a_key(story: Story) -> Broken:
    """When a job with a key is published, no other one with that key is claimed any more."""
    last = {claim.job: claim.at for claim in sorted(story.claims, key=lambda claim: claim.at)}
    of_key: dict[str, list[Job]] = defaultdict(list)
    for job in sorted(story.jobs, key=lambda job: job.at):
        for before in of_key[job.key] if job.key else ():
            if last.get(before.id, 0) > job.at + TOLERANCE:
                yield f"{name(before)} was claimed at {moment(last[before.id])}, after {name(job)} was published"
        of_key[job.key].append(job)


@promise
def paused_queues_rest(story: Story) -> Broken:
    """No job of a paused queue is claimed."""
    aside = {job.id for job in story.jobs if job.queue == ASIDE}
    for fault in story.faults:
        for claim in story.claims if fault.name == PAUSE else ():
            if claim.job in aside and fault.begin < claim.at < fault.end:
                yield f"{claim.job} was claimed by {claim.worker} at {moment(claim.at)}"


@promise
def leases_stay_what_they_were(story: Story) -> Broken:
    """Nothing that a holder does changes the visibility timeout that a job was published with."""
    for job in story.jobs:
        row, lease = story.rows.get(job.id), job.promises.lease
        if row and job.queue in ("default", "handled", ASIDE) and lease and row.lease != round(lease * SECOND):
            yield f"{name(job)} has a visibility timeout of {row.lease / SECOND} s instead of {lease} s"


@promise
def one_leader_at_a_time(story: Story) -> Broken:
    """At no moment two instances of a lease believe to be the leader."""
    for one, other in overlaps(story.terms):
        yield f"{one.file.name} until {one.end:.3f} s, {other.file.name} from {other.begin:.3f} s"


@promise
def one_turn_at_a_time(story: Story) -> Broken:
    """At no moment two instances of a cycle are in their turns."""
    gone = {pid for fault in story.faults if fault.name in (KILL, TERM, TERM_TWICE) for pid in fault.pids}
    for one, other in slot_instance.overlaps(story.looks, gone):
        first = f"{one.pid} was in slot {one.number} until {one.until:.3f} s"
        yield f"{first}, {other.pid} in slot {other.number} from {other.began:.3f} s"


@promise
def tokens_grow(story: Story) -> Broken:
    """Each leader has a greater token than those before."""
    ordered = sorted(story.terms, key=lambda term: term.begin)
    for before, term in pairwise(ordered):
        if term.token <= before.token:
            yield f"{term.file.name} has the token {term.token} after {before.token}"


@promise
def forked_children_are_no_workers(story: Story) -> Broken:
    """A process that a task forks begins no job."""
    for run in story.executions:
        if run.pid in story.forked:
            yield f"{told(run)}"


@promise
def a_full_queue_takes_no_more(story: Story) -> Broken:
    """What is published waits in a queue up to its ``max_depth``, whatever comes back into it."""
    if story.deepest > MAX_DEPTH:
        yield f"{story.deepest} jobs have waited, {MAX_DEPTH} may"


@promise
def workers_leave(story: Story) -> Broken:
    """A worker that is told to stop leaves when its jobs have ended."""
    yield from story.stayed


def match(row: Row, runs: list[Execution]) -> tuple[list[tuple[Entry, Execution | None]], list[Execution]]:
    """Return the attempts in a job's history, each with the last execution of its worker until then, and those left.

    An attempt that was killed before it could write down its begin has none; the next one may follow at once.

    The execution that ended a job well is not left; nor are those that the caps of the history may have left out.
    """
    left, entries = list(runs), []
    for entry in row.history:
        if not entry.get("number"):
            continue
        number, until = entry["number"], entry["ended"] + TOLERANCE
        mine = [run for run in left if run.worker == entry["worker"] and run.begin <= until and run.attempt <= number]
        last = ([run for run in mine if run.attempt == number] or mine)[-1:]
        for run in last:
            left.remove(run)
        entries.append((entry, last[0] if last else None))
    if row.state == words.SUCCESSFUL:
        for run in [run for run in left if run.worker == row.worker][-1:]:
            left.remove(run)
    return entries, [] if any("omitted" in entry for entry in row.history) else left


def pid_of(worker: str) -> int:
    """Return the process that a worker's id names."""
    return int(worker.split(":")[1])


def name(job: Job) -> str:
    return f"{job.kind} {job.id} of {job.queue}"


def told(run: Execution) -> str:
    return f"{run.kind} {run.job} of {run.worker} (process {run.pid}, begun {moment(run.begin)})"


def moment(instant: int) -> str:
    """Return an instant as the logs have it, to the millisecond."""
    return f"{instant / SECOND:.3f}"


def row_of(values: Any) -> Row:
    """Return what a row of either table says."""
    return Row(
        values["state"],
        values["worker_id"],
        values["lease_us"],
        values["exception_class"],
        json.loads(values["history"]),
    )
