"""django-overseer retries as the queue does: with one of them doing it, no two jobs of a call are alive."""

from pathlib import Path

import pytest

from .projects import Client

SETTINGS = """
INSTALLED_APPS = [*INSTALLED_APPS, "overseer"]
MIDDLEWARE = TEMPLATES = []
TASKS["default"]["QUEUES"] = []
TASKS["default"]["OPTIONS"] = {"backoff": 0, "queue_options": {"overseer": {"max_attempts": 1}}}
"""
TASKS = """
from pathlib import Path
import overseer

def fail_twice():
    file = Path("executions")
    file.touch()
    done = len(file.read_text())
    file.write_text("x" * (done + 1))
    if done < 2:
        raise LookupError("not yet")

@overseer.task(retries=3, backoff_base=0, queue_name="overseer")
def by_overseer():
    fail_twice()

@overseer.task(retries=0)
def by_the_queue():
    fail_twice()
"""
COUNT = """
from django_vtqueue.models import DeadLetter, Job
print(Job.objects.filter(finished_at=None).count(), DeadLetter.objects.count())
"""


@pytest.mark.parametrize(("name", "dead"), [("by_overseer", 2), ("by_the_queue", 0)])
def test_one_of_the_two_retries(tmp_path: Path, name: str, dead: int) -> None:
    """A call that fails twice is executed three times, whichever of them retries it."""
    project = Client(tmp_path, SETTINGS)
    project.write("shop/tasks.py", TASKS)
    assert (said := project.manage("migrate", "-v0")).startswith("exit 0"), said
    project.python(f"from shop.tasks import {name}; {name}.enqueue()")
    for _ in range(3):  # Overseer enqueues when the worker has told it that a job has ended: it may be leaving by then
        said = project.manage("vtworker", "--drain", "--drain-retries", "5")
        assert said.startswith("exit 0"), said
    assert len((tmp_path / "executions").read_text()) == 3
    assert project.python(COUNT) == f"exit 0\n0 {dead}\n"
