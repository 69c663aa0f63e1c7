"""Dead letters, from code."""

from typing import Any

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


@pytest.mark.django_db
@pytest.mark.parametrize(
    "values", [{"priority": 101}, {"priority": "1"}, {"queue_name": ""}, {"queue_name": "x" * 256}]
)
def test_a_letter_goes_only_where_jobs_may_be(values: dict[str, Any]) -> None:
    """A priority or a queue that no job can have is an error, whether or not there is a letter."""
    with pytest.raises(ValueError, match=r"must be|text of 1 to 255"):
        requeue([], **values)


def test_the_control_loop_imports_nothing() -> None:
    """A task is found only in a module that is loaded already; what a row names is never imported for its options."""
    assert loaded_task("tests.project.tasks.add") is tasks.add
    assert loaded_task("tests.project.nowhere.add") is None
    assert loaded_task("os.system") is None
