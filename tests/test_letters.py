"""Dead letters, from code."""

import pytest

from django_vtqueue import Queue, requeue
from django_vtqueue.models import DeadLetter
from django_vtqueue.tasks import loaded_task
from tests.project import tasks


@pytest.mark.django_db
@pytest.mark.parametrize("form", ["letter", "id", "text", "several"])
def test_requeue_takes_one_or_several(form: str) -> None:
    """A letter, its id, the id's text, or several of them: each comes back under the same id."""
    queue = Queue("letters", max_attempts=1)
    job_id = queue.publish("x")
    job = queue.claim()
    assert job
    job.nack(error="refused")
    letter = DeadLetter.objects.get()
    given = {"letter": letter, "id": job_id, "text": str(job_id), "several": [letter]}[form]
    assert requeue(given) == [job_id]
    assert not DeadLetter.objects.exists()


def test_the_control_loop_imports_nothing() -> None:
    """A task is found only in a module that is loaded already; what a row names is never imported for its options."""
    assert loaded_task("tests.project.tasks.add") is tasks.add
    assert loaded_task("tests.project.nowhere.add") is None
    assert loaded_task("os.system") is None
