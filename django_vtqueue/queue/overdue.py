"""What becomes of a job that was to start by a moment that has come: it is never run, but becomes a dead letter."""

from collections.abc import Sequence

from ..core.job import Due
from ..core.settlement import Settlement, expired
from ..engines import Engine
from .settling import settle_or_bury


def bury_overdue(engine: Engine, rows: Sequence[Due], worker_id: str, now: int) -> list[Settlement]:
    """Make dead letters of waiting rows that are overdue; return the settlements. To be called in a transaction."""
    if not rows:
        return []
    jobs, start_by = engine.read([row.handle for row in rows]), {row.handle: row.start_by for row in rows}
    endings = {handle: expired(job, start_by[handle], now) for handle, job in jobs.items()}
    return settle_or_bury(engine, endings, worker_id, now)
