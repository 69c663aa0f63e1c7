"""``manage.py vtqueue``: purge and requeue, as people call them."""

import builtins
import io
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.utils import timezone
from pytest_django import Settings

from django_vtqueue import Queue, control
from django_vtqueue.models import DeadLetter, Job, Requeue, WorkerProcess
from tests.project import tasks

pytestmark = pytest.mark.django_db

LATER = timedelta(days=1)
ID = "01a1fd22-bc97-7029-ad19-b917ec0e877b"


def vtqueue(*arguments: str, **options: Any) -> str:
    """Run a subcommand; return what it wrote."""
    out = io.StringIO()
    call_command("vtqueue", *arguments, stdout=out, **options)
    return out.getvalue()


def refusal(*arguments: str) -> str:
    """Run a subcommand that must fail; return why."""
    with pytest.raises(CommandError) as raised:
        vtqueue(*arguments)
    return str(raised.value)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], list[str]]:
    """Return a function that says what is answered at the keyboard (None: there is no terminal)."""
    asked: list[str] = []

    def answers(text: str | None) -> list[str]:
        def answer(question: str) -> str:
            asked.append(question)
            if text is None:
                raise EOFError
            return text

        monkeypatch.setattr(builtins, "input", answer)
        return asked

    return answers


def dead(name: str = "letters", job_id: str | None = None) -> UUID:
    """Make a dead letter, with an id of one's own; return the id."""
    queue = Queue(name, max_attempts=1)
    queue.publish("x")
    job = queue.claim()
    assert job
    job.nack(error="refused")
    if job_id:
        DeadLetter.objects.filter(pk=job.id).update(id=job_id)
    return UUID(job_id) if job_id else job.id


# -- purge ----------------------------------------------------------------------------------------------------------


def test_purge_deletes_what_is_not_held() -> None:
    """Raw jobs and tasks, due and scheduled ones, of the queues named; not what is held, done, or elsewhere."""
    queue, other = Queue("a", visibility_timeout=60), Queue("b")
    for payload in "12":
        queue.publish(payload)
    held, done = queue.claim(), queue.claim()
    assert held
    assert done
    done.ack()
    queue.publish("3", delay=LATER)
    tasks.add.using(queue_name="a").enqueue(1, 2)
    other.publish("4")
    assert vtqueue("purge", "a", "--yes") == (
        "Deleted 2 jobs.\n1 job held by a worker stayed; jobs of a dead worker come back when their leases end.\n"
    )
    assert set(Job.objects.values_list("pk", "queue_name")) >= {(held.id, "a"), (done.id, "a")}
    assert (len(queue), len(other), Job.objects.count()) == (1, 1, 3)


def test_purge_takes_what_a_dead_worker_held(time: Any) -> None:
    """A job whose lease has ended is not held."""
    queue = Queue("a", visibility_timeout=60)
    queue.publish("1")
    queue.claim()
    time.advance(61)
    assert vtqueue("purge", "a", "--noinput") == "Deleted 1 job.\n"
    assert len(queue) == 0


def test_purge_all() -> None:
    """--all: every queue of the database; dead letters stay."""
    letter = dead()
    for name in "ab":
        Queue(name).publish(1)
    assert vtqueue("purge", "--all", "--no-input") == "Deleted 2 jobs.\n"
    assert not Job.objects.exists()
    assert DeadLetter.objects.get().pk == letter


def test_purge_asks_before(answers: Callable[[str | None], list[str]]) -> None:
    """It says how many of which queue and of which database it would delete, and deletes after a yes."""
    asked = answers("y")
    Queue("a").publish_many([1, 2])
    Queue("b").publish(3)
    assert vtqueue("purge", "b", "a") == "Deleted 3 jobs.\n"
    database = connections["default"].settings_dict["NAME"]
    assert asked == [f"Delete 3 jobs (a 2, b 1) from the database {database}? [y/N] "]


@pytest.mark.parametrize("answer", ["", "n", "nay", None])
def test_purge_deletes_nothing_without_a_yes(answers: Callable[[str | None], list[str]], answer: str | None) -> None:
    """Any other answer, and a missing terminal, is a no; the exit code says so."""
    answers(answer)
    Queue("a").publish(1)
    assert "othing was deleted" in refusal("purge", "a")
    assert len(Queue("a")) == 1


def test_purge_with_nothing_to_delete(answers: Callable[[str | None], list[str]]) -> None:
    """An empty queue is no error, and there is no question."""
    asked = answers("n")
    assert vtqueue("purge", "a") == vtqueue("purge", "--all") == "Deleted 0 jobs.\n"
    assert asked == []


def test_purge_wants_to_know_what(settings: Settings) -> None:
    """Without a queue, with --all beside one, and with one that does not exist, it says which have jobs."""
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["a"]}}
    Queue("a").publish_many([1, 2])
    Queue("raw").publish(1)
    there = "Queues with unfinished jobs: a 2, raw 1."
    assert refusal("purge") == refusal("purge", "a", "--all") == f"Name the queues to purge, or give --all. {there}"
    assert refusal("purge", "--yes", "a", "c") == f"There is no queue c. {there}"
    assert vtqueue("purge", "--yes", "raw") == "Deleted 1 job.\n"


# -- requeue --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [ID, ID.replace("-", ""), ID.upper(), "ec0e877b", "…ec0e877b", "...ec0e877b", "b917ec0e877b", "-b917ec0e877b"],
)
def test_requeue_by_what_the_log_shows(given: str) -> None:
    """The whole id, or its end, with or without what stands before it in the log."""
    dead(job_id=ID)
    other = dead()
    assert vtqueue("requeue", "--", given) == f"requeued letters {ID}\n"
    assert str(Job.objects.get(finished_at=None).pk) == ID
    assert DeadLetter.objects.get().pk == other


def test_requeue_several() -> None:
    """Several at once, one of them named twice."""
    letters = [dead(), dead()]
    said = vtqueue("requeue", *map(str, letters), str(letters[0]))
    assert said == "".join(f"requeued letters {letter}\n" for letter in letters)
    assert not DeadLetter.objects.exists()


def test_requeue_of_an_ambiguous_end() -> None:
    """Two letters that end alike: neither is moved, and both are named."""
    ids = [ID, ID.replace("01a1", "01a2")]
    for job_id in ids:
        dead(job_id=job_id)
    assert refusal("requeue", "…ec0e877b") == (
        f"…ec0e877b is the end of several ids; give more digits: {ids[0]}, {ids[1]}"
    )
    assert DeadLetter.objects.count() == 2


@pytest.mark.parametrize("given", ["", "…", "c0e877b", "xc0e877b", "letters", "%c0e877b", ID + "0"])
def test_requeue_of_what_is_no_id(given: str) -> None:
    """What is too short, too long or not hexadecimal is refused with what is allowed."""
    dead(job_id=ID)
    assert refusal("requeue", given).endswith("give all of it, or its last 8 hexadecimal digits or more.")


def test_requeue_moves_all_or_none() -> None:
    """If one of several is not found, none is moved; the text says what is known of it."""
    letter, job = dead(), Queue("a").publish(1)
    assert refusal("requeue", str(letter), ID).startswith(f"There is no dead letter {ID}")
    said = refusal("requeue", str(letter), str(job))
    assert said == f"{job} is no dead letter but a job, READY in queue 'a'."
    assert DeadLetter.objects.get().pk == letter


def test_requeue_where_the_unique_key_is_taken() -> None:
    """A letter whose unique key a job has taken stays one; the others go, and the exit code says that one did not."""
    taken, free = dead(), dead()
    DeadLetter.objects.filter(pk=taken).update(unique_key="report:7")
    Queue("letters").publish(1)
    Job.objects.filter(finished_at=None).update(unique_key="report:7")
    assert refusal("requeue", str(taken), str(free)).startswith(f"Not requeued: {taken}. A job with its unique key")
    assert DeadLetter.objects.get().pk == taken


# -- both -----------------------------------------------------------------------------------------------------------


def test_requeue_of_many() -> None:
    """All of a queue, a task, an exception go in the background, as slowly as asked for; a dry run says how many."""
    dead(), dead(), dead("other")
    assert vtqueue("requeue", "--all", "--dry-run") == "3 dead letters would be requeued.\n"
    assert vtqueue("requeue", "--queue", "other", "--exception", "nack", "--dry-run").startswith("1 dead letter would")
    assert not Requeue.objects.exists()
    said = vtqueue("requeue", "--queue", "letters", "--rate", "50", "--canary")
    run = Requeue.objects.get()
    assert said == f"2 dead letters will be requeued by the workers of queue 'letters': run {run.pk}\n"
    assert (run.rate, run.state, run.criteria.partition(",")[0]) == (50, "canary", '{"queue_name": "letters"')


def test_requeue_of_an_exception_by_its_name() -> None:
    """The last part of its path is enough, as the admin and the log show it, unless two classes have it."""
    for path in ("shop.errors.GiveUp", "stock.errors.GiveUp", "shop.errors.Refused"):
        DeadLetter.objects.filter(pk=dead()).update(exception_class=path)
    assert vtqueue("requeue", "--exception", "Refused", "--dry-run") == "1 dead letter would be requeued.\n"
    assert vtqueue("requeue", "--exception", "shop.errors.GiveUp", "--dry-run") == "1 dead letter would be requeued.\n"
    why = "--exception GiveUp may be shop.errors.GiveUp or stock.errors.GiveUp."
    assert why in refusal("requeue", "--exception", "GiveUp", "--dry-run")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--all", ID], "Give either the IDs"),
        ([ID, "--rate", "5"], "--rate, --canary"),
        (["--task", "shop.tasks.gone", "--dry-run"], "There is no such dead letter"),
        (["--all", "--rate", "0"], "rate is 0"),
        (["--task", "shop.tasks.gone"], "There is no such dead letter"),
        (["--task", ""], "--task: must not be empty"),  # raw payloads have none
        (["--queue", ""], "--queue: must not be empty"),
        (["--exception", ""], "--exception: must not be empty"),
    ],
)
def test_requeue_of_many_that_makes_no_sense(arguments: list[str], why: str) -> None:
    """Ids and a description, a rate for single ones, a rate below one, or nothing that matches: the command says so.

    There is no run of it then.
    """
    dead()
    assert why in refusal("requeue", *arguments)
    assert (DeadLetter.objects.count(), Requeue.objects.count()) == (1, 0)


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["requeue"]])
def test_a_command_line_that_is_none(arguments: list[str]) -> None:
    """A missing or unknown subcommand, and a missing id, are errors of the command line."""
    with pytest.raises(CommandError, match=r"SUBCOMMAND|requeue|ID"):
        vtqueue(*arguments)


def test_another_backend(settings: Settings) -> None:
    """--backend must be one of ours."""
    assert refusal("purge", "--backend", "other", "--all").startswith("TASKS['other'] is not a django_vtqueue backend")


def test_without_tables(sqlite_file: str, settings: Settings) -> None:
    """Where the tables are missing it names the command that makes them."""
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": {"database": sqlite_file}}}
    call_command("migrate", "vtqueue", "zero", database=sqlite_file, verbosity=0)
    assert "run: python manage.py migrate vtqueue --database file" in refusal("purge", "--all")
    with pytest.raises(CommandError, match=r"migrate vtqueue --database file"):
        call_command("vtleader", "nightly", "true", using=sqlite_file)


@pytest.mark.parametrize("command", [["status"], ["list"], ["resume", "emails"], ["purge", "--all"]], ids=" ".join)
def test_a_database_that_cannot_be_opened(
    sqlite_file: str, settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str]
) -> None:
    """It is said in one sentence which one, and why."""
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": {"database": sqlite_file}}}
    connections[sqlite_file].close()
    monkeypatch.setitem(connections[sqlite_file].settings_dict, "NAME", tmp_path / "gone" / "db.sqlite3")
    assert refusal(*command) == "Database 'file': unable to open database file"


def test_a_name_that_is_none() -> None:
    """Pausing and resuming refuse it alike."""
    for subcommand in ("pause", "resume"):
        assert "''" in refusal(subcommand, "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_an_output_without_these_letters(encoding: str) -> None:
    """What its encoding lacks is written as an escape, which JSON has, too."""
    Queue("Łódź").publish({"city": "Łódź 日本 🙂 é"})
    for arguments in (["status"], ["list"], ["list", "--json"]):
        written = io.BytesIO()
        out = io.TextIOWrapper(written, encoding=encoding)
        call_command("vtqueue", *arguments, stdout=out)
        out.flush()
    [row] = json.loads(written.getvalue().decode(encoding))
    assert (row["queue"], row["arguments"]) == ("Łódź", {"city": "Łódź 日本 🙂 é"})


def worker(name: str) -> WorkerProcess:
    """Make the row of a worker."""
    now = timezone.now()
    return WorkerProcess.objects.create(worker_id=name, host="h", pid=1, slots=4, started_at=now, heartbeat_at=now)


def test_workers_are_asked_by_the_names_of_the_log() -> None:
    """Workers are named by host and pid, or by their whole id; the others are left alone."""
    workers = [worker(name) for name in ("web1:1:aa", "web1:2:bb", "web2:1:cc")]

    def words() -> list[str]:
        return [WorkerProcess.objects.get(pk=row.pk).asked_to for row in workers]

    assert vtqueue("quiet", "web1:1", "web2:1:cc") == "asked web1:1 to be quiet\nasked web2:1 to be quiet\n"
    assert words() == ["quiet", "", "quiet"]
    assert vtqueue("quiet", "--end", "web2:1") == "asked web2:1 to work\n"
    assert vtqueue("stop", "web1:2") == "asked web1:2 to stop\n"
    assert words() == ["quiet", "stop", ""]


@pytest.mark.parametrize("later", ["quiet", ""])
def test_a_stop_is_not_taken_back(later: str) -> None:
    """Whatever a worker is asked later, its row says that it stops, which it does."""
    row = worker("web1:1:aa")
    for to in ("stop", later):
        assert control.ASKED_TO[to](row.pk) == [row.pk]  # one id, or several
    row.refresh_from_db()
    assert row.asked_to == "stop"


def test_all_workers_are_there_or_none_is_asked() -> None:
    """A name that no worker has is an error that says which there are, and then no worker is asked."""
    assert refusal("stop", "web1:1") == "There is no worker web1:1. Workers: none."
    worker("web1:1:aa")
    assert refusal("stop", "web1:1", "web9:9") == "There is no worker web9:9. Workers: web1:1."
    assert WorkerProcess.objects.get().asked_to == ""
