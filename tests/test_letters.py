"""Dead letters, from code."""

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from django_vtqueue import Queue, control, letters, requeue
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


MANY = 260_000  # ids: more than a statement of SQLite takes as parameters


@pytest.mark.django_db
@pytest.mark.parametrize(
    "verb",
    [
        control.run_now,
        partial(control.change_priority, priority=5),
        partial(control.move, queue_name="other"),
        control.delete,
        control.cancel,
        requeue,
        letters.discard,
        partial(letters.acknowledge, by="anna", note="seen"),
    ],
    ids=["run now", "change priority", "move", "delete", "cancel", "requeue", "discard", "acknowledge"],
)
def test_any_number_of_ids(verb: Callable[[list[str]], list[UUID]]) -> None:
    """However many there are, those that are meant are found among them."""
    queue = Queue("q", max_attempts=1)
    waiting, dead = queue.publish("waiting", delay=60), queue.publish("dead")
    job = queue.claim()
    assert job
    job.nack(error="refused")
    others = [f"{number:032x}" for number in range(MANY)]
    done = verb([*others, str(waiting), str(dead)])
    assert {waiting, dead} & set(done)
    assert len(done) == 1 or verb in (control.delete, letters.discard)  # what was never there is gone, too
