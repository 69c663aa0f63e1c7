"""Dead letters, from code."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from pytest_django import Settings

from django_vtqueue import Queue, control, requeue
from django_vtqueue.models import DeadLetter, Job
from django_vtqueue.queue import dead_letters
from django_vtqueue.queue.discarding import discard_jobs, discard_letters
from django_vtqueue.tasks.lookup import loaded_task
from tests.project import tasks


@pytest.mark.django_db
def test_what_enqueue_and_claim_have_returned_names_a_job() -> None:
    """The result of a task names its job, or its dead letter, as well as its id does; so does a claimed job."""
    first, second = tasks.add.enqueue(1, 2), tasks.add.enqueue(3, 4)
    assert control.cancel(first) == [UUID(first.id)]
    assert control.cancel([second]) == [UUID(second.id)]
    assert requeue([first, second]) == [UUID(first.id), UUID(second.id)]
    queue = Queue("letters")
    job_id = queue.publish("x")
    claimed = queue.claim()
    assert claimed
    assert control.cancel(claimed) == [job_id]


@pytest.mark.django_db
@pytest.mark.parametrize("form", ["letter", "id", "text", "digits", "as logged", "several"])
def test_requeue_takes_one_or_several(form: str) -> None:
    """A letter, its id, the id's text, its last digits, or several of them: each comes back under the same id."""
    queue = Queue("letters", max_attempts=1)
    job_id = queue.publish("x")
    job = queue.claim()
    assert job
    job.nack(error="refused")
    letter = DeadLetter.objects.get()
    end = str(job_id)[-8:]
    forms = {"letter": letter, "id": job_id, "text": str(job_id), "digits": end.upper(), "as logged": f"…{end}"}
    assert requeue(forms.get(form, [letter, end])) == [job_id]
    assert not DeadLetter.objects.exists()


VERBS = {
    "run now": control.run_now,
    "change priority": partial(control.change_priority, priority=5),
    "move": partial(control.move, queue_name="other"),
    "discard": control.discard,
    "discard a job": discard_jobs,
    "cancel": control.cancel,
    "requeue": requeue,
    "discard a letter": discard_letters,
    "review": partial(dead_letters.mark_reviewed, by="anna", note="seen"),
}
GONE = {control.discard, discard_jobs, discard_letters}
every_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)


def one_of_each(verb: Any, *ids: UUID) -> list[UUID]:
    """Store something that a verb can be applied to under each of these ids, and return them."""
    template = Queue("q", max_attempts=1).publish("x", delay=60)
    row = Job.objects.values().get(pk=template)
    Job.objects.all().delete()
    row.pop("visible_at")
    for job_id in ids:
        job = Job.objects.create(**{**row, "id": job_id})
        if verb in (requeue, discard_letters, VERBS["review"]):
            control.cancel(job)
    return [*ids]


@pytest.mark.django_db
def test_jobs_and_letters_are_discarded_by_one_call() -> None:
    """Whatever has the id goes, but for what a worker holds; of a job and a letter of one end the caller is told."""
    queue = Queue("q")
    held = queue.publish("held")
    claimed = queue.claim()
    assert claimed
    assert claimed.id == held
    job, letter = queue.publish("job"), queue.publish("letter")
    control.cancel(letter)
    assert DeadLetter.objects.get().pk == letter
    assert control.discard([held, str(letter), job.hex[-20:]]) == [letter, job]
    assert [row.pk for row in [*Job.objects.all(), *DeadLetter.objects.all()]] == [held]


@pytest.mark.django_db
@every_verb
@pytest.mark.parametrize("value", [None, "", "abc", 7, 12345678, "no id", "x" * 32, 1.5])
def test_what_is_no_id_is_refused(verb: Any, value: Any) -> None:
    """What is no id is an error that shows it and says what one is, and nothing is done to the others."""
    [job_id] = one_of_each(verb, uuid4())
    before = [*Job.objects.values(), *DeadLetter.objects.values()]
    message = f"{value!r} is no id: give all of it, or its last 8 hexadecimal digits or more."
    with pytest.raises(ValueError, match=re.escape(message)):
        verb(value)
    with pytest.raises(ValueError, match="is no id"):
        verb([job_id, value])
    assert [*Job.objects.values(), *DeadLetter.objects.values()] == before


@pytest.mark.django_db
@every_verb
def test_the_end_of_several_ids_is_refused(verb: Any) -> None:
    """Digits in which two ids end are an error that names both; with more of them it is clear which one is meant."""
    first, other = one_of_each(verb, *(UUID(f"0190000{number}-0000-7000-8000-0000ec0e877b") for number in (1, 2)))
    with pytest.raises(ValueError, match=f"ec0e877b is the end of several ids; give more digits: {first}, {other}"):
        verb("ec0e877b")
    assert verb(first.hex[-26:]) == [first]


@pytest.mark.django_db
@every_verb
def test_an_unknown_id_is_no_error(verb: Any) -> None:
    """An id that nothing has, or digits in which none ends, are left out: the others are done."""
    [job_id] = one_of_each(verb, uuid4())
    unknown = uuid4()
    done = verb([job_id, unknown, "0123456789abcdef"])
    gone = [unknown] if verb in GONE else []  # what was never there is gone, too
    assert done == [job_id, *gone]


@pytest.mark.django_db
@pytest.mark.parametrize("verb", [discard_jobs, discard_letters], ids=["delete", "discard"])
def test_what_is_in_the_other_table_is_not_gone(verb: Any) -> None:
    """A dead letter is no job that was deleted, nor a job a letter that was discarded: it is there as before."""
    other: Any = discard_letters if verb is discard_jobs else discard_jobs
    [job_id] = one_of_each(other, uuid4())
    assert verb([job_id]) == []
    assert Job.objects.filter(pk=job_id).exists() or DeadLetter.objects.filter(pk=job_id).exists()
    assert other([job_id]) == [job_id]


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


PARAMETERS = 1_000  # of a statement


@pytest.fixture
def few_parameters(db: None) -> Iterator[None]:
    """Have SQLite refuse statements with more parameters than that."""
    connection.ensure_connection()
    limit = connection.connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, PARAMETERS)
    yield
    connection.connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, limit)


@pytest.mark.usefixtures("few_parameters")
@every_verb
def test_any_number_of_ids(verb: Callable[[list[str]], list[UUID]]) -> None:
    """However many there are, those that are meant are found among them."""
    queue = Queue("q", max_attempts=1)
    waiting, dead = queue.publish("waiting", delay=60), queue.publish("dead")
    job = queue.claim()
    assert job
    job.nack(error="refused")
    others = [f"{number:032x}" for number in range(3 * PARAMETERS)]
    done = verb([*others, str(waiting), str(dead)])
    assert {waiting, dead} & set(done)
    assert len(done) == 1 or verb in GONE  # what was never there is gone, too


@pytest.mark.django_db
@pytest.mark.parametrize("verb", [control.move, requeue])
def test_no_job_goes_to_a_queue_that_no_backend_has(settings: Settings, verb: Any) -> None:
    """A mistyped queue, in which no worker would look for the job, is an error that says which there are."""
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["default", "q"]}}
    [job_id] = one_of_each(verb, UUID(int=1))
    for name in ("nope", "Q"):
        with pytest.raises(ValueError, match=f"TASKS has no queue '{name}'; its queues are default, q"):
            verb([job_id], queue_name=name)
    assert verb([job_id], queue_name="default") == [job_id]


@pytest.mark.django_db
def test_who_does_it_is_a_text() -> None:
    """What is none is an error in words, and nothing is done; a longer name than is stored is cut."""
    verbs = [control.cancel, requeue, partial(dead_letters.mark_reviewed, note="seen")]
    for verb in verbs:
        [job_id] = one_of_each(requeue, uuid4()) if verb is not control.cancel else one_of_each(verb, uuid4())
        for by in (None, 7, b"anna"):
            with pytest.raises(TypeError, match=f"by is {by!r}, but must be a text"):
                verb([job_id], by=by)
        assert verb([job_id], by="x" * 200) == [job_id]
