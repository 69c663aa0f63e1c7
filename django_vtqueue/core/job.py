"""A job on its way through the code: new, held, due, stored. Plain values; no database, no clock."""

from dataclasses import dataclass, field, fields
from typing import NamedTuple

from . import states

ClaimKey = tuple[str, int]  # id and claim number: another claim of the same job is another right to change it
Progress = tuple[float, str]  # 0 to 1, and a text
SHORT = 255  # characters of an indexed text column
MOST_CLAIMS = 1 << 53  # of a row, and attempts: they are counted up to that
LONGEST_LEASE = 10**17  # microseconds: 3000 years


@dataclass(slots=True)
class NewJobs:
    """What is published together: everything but the ids, payloads and unique keys is shared.

    Instants in microseconds. ``start_by``: what has not started by then is never run. ``unique_keys``: one for each
    job, or None; no other job of the queue, whatever its task, may have it until this one has ended ("done"), or
    started ("start"). ``replace``: a waiting job that has the key is overwritten; it gets all that the new job has, but
    keeps its id. ``concurrency_keys``, ``rate_keys``: also one for each job, or None; they limit how many jobs of a key
    run at once, and how often they start. ``ordered``: the jobs of such a key run one at a time, in the order in which
    they were stored. ``parent_id``: the job that waits for their end.
    """

    queue_name: str
    task_path: str
    priority: int
    max_attempts: int
    lease_us: int
    enqueued_at: int
    due_at: int
    jobs: list[tuple[str, str]]  # id, payload
    start_by: int | None = None
    unique_keys: list[str | None] | None = None
    unique_until: str = "done"
    replace: bool = False
    concurrency_keys: list[str | None] | None = None
    ordered: bool = False
    rate_keys: list[str | None] | None = None
    parent_id: str | None = None

    @property
    def has_options(self) -> bool:
        """Whether one of them has a key or a parent, for which an INSERT with more columns is needed."""
        if not (self.unique_keys or self.concurrency_keys or self.rate_keys):  # most have none
            return self.parent_id is not None
        keys = [*(self.unique_keys or ()), *(self.concurrency_keys or ()), *(self.rate_keys or ())]
        return self.parent_id is not None or keys.count(None) < len(keys)

    @property
    def state(self) -> str:
        """The state in which they are stored."""
        return states.READY if self.wake_at is None else states.SCHEDULED

    @property
    def wake_at(self) -> int | None:
        """When they enter the line, if they are due later."""
        return self.due_at if self.due_at > self.enqueued_at else None


@dataclass(slots=True)
class HeldJob:
    """A claimed row as its holder knows it: ``id``, ``claims``, ``worker_id`` together are the right to change it.

    The fields are in the order of ``COLUMNS`` in engines/…/statements.py: a row is unpacked by position.
    ``cancelled_by``: the name of the user who has cancelled it ("": not known), None if no one has.
    ``progress``: the last one that its code has reported; ``progress_in_row``: the stored one.
    ``worker_stops``: its worker is to stop, so code that can go on later shall give it back. ``to_load``: its claim did
    not know its limits, since its task was not loaded: that is imported, and the job is released, as one that a limit
    has moved if it was (``moved_from``).
    """

    id: str
    queue_name: str
    task_path: str
    priority: int
    visible_at: int  # when its lease ends, as its claim gave it, or an extension that was noted here
    claims: int
    attempts: int
    max_attempts: int
    worker_id: str
    lease_us: int
    enqueued_at: int
    started_at: int | None
    payload: str
    history: str
    due_at: int  # its place in the line
    copies: str | None = None  # of a queue with overflow, as its row has them
    concurrency_key: str | None = None
    parent_id: str | None = None
    cancelled_by: str | None = field(default=None, kw_only=True)
    progress: Progress | None = field(default=None, kw_only=True)
    progress_in_row: Progress | None = field(default=None, kw_only=True)
    worker_stops: bool = field(default=False, kw_only=True)
    to_load: bool = field(default=False, kw_only=True)
    moved_from: int | None = field(default=None, kw_only=True)

    @property
    def key(self) -> ClaimKey:
        """This claim of the job, and no other."""
        return self.id, self.claims

    @property
    def unsaved_progress(self) -> Progress | None:
        """The progress that is to be stored."""
        return None if self.progress == self.progress_in_row else self.progress

    @property
    def begun(self) -> bool:
        """Whether its code was started; not yet if it was claimed ahead, or waits for its turn."""
        return self.started_at is not None

    def begin(self, now: int) -> None:
        """Note that its code starts: an attempt that its claim has not counted."""
        self.attempts, self.started_at = self.attempts + 1, now

    def take_over(self, claimed: "HeldJob") -> None:
        """Hold the row by another claim of it, for code that goes on; what that has said here stays."""
        if self.started_at is not None and not claimed.begun:
            claimed.begin(self.started_at)
        for each in fields(HeldJob):
            if not each.kw_only:
                setattr(self, each.name, getattr(claimed, each.name))


@dataclass(slots=True)
class StoredJob(HeldJob):
    """A row of either table as it was read; ``state`` is FAILED for a dead letter."""

    state: str = ""
    finished_at: int | None = None
    result: str | None = None


class Scope(NamedTuple):
    """Which jobs a claim takes: those of ``queues`` (None: all), either tasks or raw payloads.

    ``worker``: one that takes no second copy of a job that it runs. The last three are set for one limited queue only.
    ``jobs_left``: how many more of its jobs may run; raw jobs with a ``concurrency_key`` are not counted.
    ``starts_left``: how many of its jobs may start now. None: any number. ``not_before``: no job may start before that
    instant.
    """

    queues: tuple[str, ...] | None
    raw: bool
    worker: str = ""
    jobs_left: int | None = None
    starts_left: int | None = None
    not_before: int = 0

    @property
    def limited(self) -> bool:
        """Whether its one queue has a limit of its own."""
        return self.jobs_left is not None or self.starts_left is not None


Handle = int | str  # names a row; only its engine understands it


class Due(NamedTuple):
    """A row that a claim may take; its fields are in the order of ``DUE_ROW`` in engines/sqlite/due.py.

    ``fresh``: it was never claimed, has more than one attempt, no ``expires``, no key with ``unique_until="start"``.
    Only such a job may be claimed ahead, and only if no limit can hold for it. Its attempt is counted a moment after
    its code begins, and a crash in that moment is not counted: a job with one attempt only could be run twice.
    ``start_by``: when it expires. ``queue_name``: of a job with a key, and where the claim asks for the names.
    ``one_more_copy``: it runs already, and this claim adds a copy.
    """

    handle: Handle
    priority: int
    due_at: int
    claims: int
    fresh: int
    task_path: str
    start_by: int | None = None
    queue_name: str = ""
    concurrency_key: str | None = None
    rate_key: str | None = None
    moved_from: int | None = None
    ordered: int = 0
    one_more_copy: int = 0

    @property
    def may_be_limited(self) -> bool:
        """Whether it has a key that may have a limit."""
        return self.concurrency_key is not None or self.rate_key is not None

    def overdue(self, now: int) -> bool:
        """Return whether it was to start by ``now``."""
        return self.start_by is not None and self.start_by <= now
