"""Jobs that run until the test lets them end, and what their executions have written."""

from pathlib import Path

from tests.project import tasks

from ..waiting import wait_until
from .database import Database


def begin(database: Database, folder: Path, name: str = "") -> str:
    """Have a worker begin a job that runs until there is a file ``go``; return the job's id."""
    job_id = database.enqueue(tasks.hold, str(folder), name)
    wait_until(lambda: executions(folder, name))
    return job_id


def executions(folder: Path, name: str = "") -> list[int]:
    """Return the process of each execution of such a job."""
    return [int(line) for line in lines(folder / f"{name}started")]


def lines(path: Path) -> list[str]:
    """Return the words of a file; none if there is no file yet."""
    return path.read_text().split() if path.exists() else []
