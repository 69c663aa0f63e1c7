"""What the overview of the queues is made of, as it was counted. Instants in microseconds."""

from typing import NamedTuple


class Backlog(NamedTuple):
    """The tasks, or raw payloads, that wait in a queue."""

    queue_name: str
    raw: bool
    due: int
    later: int  # scheduled, or retrying
    oldest: int | None  # since when the first of the due ones is
    read: int  # of the later ones, those that were looked at
    retrying: int  # of these


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
