"""What the overview of the queues is made of, as it was counted. Instants in microseconds."""

from typing import NamedTuple


class Backlog(NamedTuple):
    """The unfinished tasks, or raw payloads, of a queue by time alone: those held are among both numbers."""

    queue_name: str
    raw: bool
    past: int  # visible_at <= now: due, or expired
    future: int  # scheduled, retrying, or running
    oldest: int | None  # the earliest visible_at of the past ones


class Held(NamedTuple):
    """What one worker holds of one queue."""

    queue_name: str
    worker_id: str
    running: int
    expired: int
    begun: int  # of the running ones; the others were claimed ahead of a free slot


class Running(NamedTuple):
    """A job that a worker has begun."""

    id: str
    queue_name: str
    task_path: str
    worker_id: str
    started_at: int | None
    lease_ends_at: int
    progress: float | None
    progress_text: str | None
    cancelled: bool
