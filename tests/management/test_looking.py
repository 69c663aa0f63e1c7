"""``manage.py vtqueue``: status, list and show, for people and for scripts."""

import io
import json
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core.management import CommandError, call_command

from django_vtqueue import Queue
from django_vtqueue.core import clock
from django_vtqueue.fields import StoredText
from django_vtqueue.management.subcommands import list as list_
from django_vtqueue.models import DeadLetter, Job, WorkerProcess
from tests.admin.rows import job, worker
from tests.pending import run_pending
from tests.project import tasks

pytestmark = pytest.mark.django_db


def vtqueue(*arguments: str) -> str:
    """Run a subcommand; return what it wrote."""
    out = io.StringIO()
    call_command("vtqueue", *arguments, stdout=out)
    return out.getvalue()


def read(*arguments: str) -> Any:
    return json.loads(vtqueue(*arguments, "--json"))


def test_status() -> None:
    """Each queue with what waits, runs and is dead, a pause in words, the workers, and what they run."""
    for name, count in (("emails", 2), ("reports", 1)):
        for _ in range(count):
            job(name)
    job("emails", due=3600)
    job("emails", due=60, worker_id=worker().pk, progress=0.25, progress_text="half of the half")
    Queue("reports").pause("moving", by="anna")
    found = read("status")
    queues = {queue.pop("queue"): queue for queue in found["queues"]}
    assert queues["emails"] == {
        **{"due": 2, "scheduled": 1, "retrying": 0, "waiting": 0, "running": 1, "expired": 0, "dead": 0},
        **{"later": 0, "depth": None, "max_depth": None, "paused": None},
    }
    assert (queues["reports"]["due"], "moving" in queues["reports"]["paused"]) == (1, True)
    assert [(each["worker"], each["running"]) for each in found["workers"]] == [("web1:4711", 1)]
    assert [(each["task"], each["progress"]) for each in found["running"]] == [("shop.tasks.welcome", 0.25)]
    said = vtqueue("status").splitlines()
    assert said[0].split() == ["queue", "due", "scheduled", "retrying", "waiting", "running", "expired", "dead"]
    assert any(line.startswith("reports") and "moving" in line for line in said)
    assert said[-1].endswith("25% half of the half")


def test_status_of_a_worker() -> None:
    """It runs what has begun; what it has claimed ahead is told apart, and what it was asked to."""
    held = worker(asked_to="quiet").pk
    job(due=60, worker_id=held)
    for _ in range(2):
        job(due=60, worker_id=held, started_at=None)
    [found] = read("status")["workers"]
    assert (found["running"], found["ahead"]) == (1, 2)
    [line] = [line for line in vtqueue("status").splitlines() if line.endswith("asked to be quiet")]
    assert line.endswith("ago  2 claimed ahead, asked to be quiet")


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 of 4 wait (0 %)"), (3, "3 of 4 wait (75 %)"), (4, "FULL: 4 wait"), (9, "FULL: more than 4 wait")],
)
def test_how_full_a_queue_is(settings: Any, count: int, said: str) -> None:
    """Where it has a max_depth; a full one stands out."""
    settings.TASKS = {
        "default": {**settings.TASKS["default"], "OPTIONS": {"queue_options": {"emails": {"max_depth": 4}}}}
    }
    for _ in range(count):
        job("emails", due=60)
    [queue] = [queue for queue in read("status")["queues"] if queue["queue"] == "emails"]
    assert (queue["depth"], queue["max_depth"]) == (min(count, 5), 4)
    assert said in vtqueue("status")


def test_names_that_can_be_typed() -> None:
    """The name in ``status`` is what ``quiet`` takes; of two workers with one name it is the whole id."""
    with pytest.raises(CommandError, match=r"There is no worker web1:1\. Workers: none"):
        vtqueue("quiet", "web1:1")
    first, second, other = (
        worker(pid, worker_id=f"web1:{pid}:{end}").pk for pid, end in [(1, "a"), (1, "b"), (2, "c")]
    )
    found = {each["worker"]: each["id"] for each in read("status")["workers"]}
    assert found == {first: first, second: second, "web1:2": other}
    for name, worker_id in found.items():
        assert vtqueue("quiet", name) == f"asked {name} to be quiet\n"
        assert WorkerProcess.objects.get(pk=worker_id).asked_to == "quiet"
        assert name in vtqueue("status")
    assert vtqueue("quiet", "--end", "web1:1").splitlines() == [f"asked {first} to work", f"asked {second} to work"]


def test_status_of_nothing() -> None:
    """Without a worker it says how one is started."""
    assert "No worker is there. Start one: python manage.py vtworker" in vtqueue("status")


def test_list() -> None:
    """Jobs and dead letters by state, queue, task, time and text, with their arguments; as lines, or as JSON."""
    tasks.add.enqueue(1, b=2)
    later = tasks.add.using(queue_name="emails", run_after=timedelta(hours=1)).enqueue(3, 4)
    tasks.raise_it.enqueue("BaseException")
    run_pending()
    assert [entry["state"] for entry in read("list")] == ["dead", "scheduled", "done"]
    assert [entry["state"] for entry in read("list", "--limit", "2")] == ["dead", "scheduled"]
    assert [entry["state"] for entry in read("list", "--task", "tests.project.tasks.raise_it")] == ["dead"]
    assert [entry["state"] for entry in read("list", "--state", "dead")] == ["dead"]
    assert [entry["id"] for entry in read("list", "--queue", "emails")] == [later.id]
    assert [entry["arguments"] for entry in read("list", "--state", "scheduled")] == [{"a": 3, "b": 4}]
    assert read("list", "--task", "no.such.task") == read("list", "--text", "no such text") == []
    assert len(read("list", "--since", "10m")) == 3
    assert len(read("list", "--limit", "1")) == 1
    for number in ("0", "-5", "many", f"{10**30}"):
        with pytest.raises(CommandError, match="--limit: must be a whole number, 1 to 100000, not '"):
            vtqueue("list", f"--limit={number}")
    for option in ("--queue", "--task"):
        with pytest.raises(CommandError, match=f"{option}: must not be empty"):
            vtqueue("list", option, "")
    [line] = vtqueue("list", "--state", "scheduled").splitlines()
    assert line.split()[:4] == ["scheduled", "tests.project.tasks.add", later.id, "emails"]
    assert line.endswith("a=3, b=4")
    with pytest.raises(CommandError, match="--since is 'soon', but must be as 30m"):
        vtqueue("list", "--since", "soon")


def test_what_is_secret_is_shown_and_found_by_none_of_them() -> None:
    """What ``mask`` hides is hidden in lines and in JSON, and no text finds it."""
    Queue("raw").publish({"password": "swordfish", "user": "anna"})
    [entry] = read("list", "--text", "anna")
    assert entry["arguments"] == {"password": "••••", "user": "anna"}
    assert read("list", "--text", "swordfish") == []
    for said in (vtqueue("list"), vtqueue("show", entry["id"]), vtqueue("show", entry["id"], "--json")):
        assert "anna" in said
        assert "swordfish" not in said


def test_what_is_secret_in_a_payload_that_is_no_json() -> None:
    """Where the key of a secret cannot be told from what is beside it, nothing of a payload that names one is shown."""
    damaged = job(payload=StoredText('{"password": "swordfish", "user"'))
    for said in (vtqueue("list"), vtqueue("show", damaged.pk), vtqueue("show", damaged.pk, "--json")):
        assert "••••" in said
        assert "swordfish" not in said


def test_show() -> None:
    """All of a job, by its id or its last digits: arguments, attempts and tracebacks, why it does not run."""
    tasks.raise_it.enqueue("BaseException")
    run_pending()
    letter = DeadLetter.objects.get()
    found = read("show", str(letter.pk)[-8:])
    assert (found["id"], found["state"], found["exception"]) == (str(letter.pk), "dead", "builtins.BaseException")
    assert [(entry["number"], entry["outcome"]) for entry in found["history"]] == [(1, "failed")]
    said = vtqueue("show", str(letter.pk))
    assert "requeue it to have it run again" in said
    assert said.rstrip().endswith("BaseException: bare")
    with pytest.raises(CommandError, match="There is no job 12345678"):
        vtqueue("show", "12345678")


@pytest.mark.parametrize("zone", ["Asia/Kathmandu", "UTC"])
def test_the_times_of_a_job(settings: Any, zone: str) -> None:
    """People read all of them in the time zone of the project; programs read UTC."""
    settings.TIME_ZONE = zone
    tasks.raise_it.enqueue("BaseException")
    run_pending()
    letter = DeadLetter.objects.get()
    said, died = vtqueue("show", str(letter.pk)), letter.died_at
    here = died.astimezone(ZoneInfo(zone))
    assert f"died_at {here:%Y-%m-%d %H:%M:%S}".split() in map(str.split, said.splitlines())
    assert "+00:00" not in said
    assert datetime.fromisoformat(read("show", str(letter.pk))["died_at"]) == died


def test_show_a_result() -> None:
    """What a task has returned is among what is shown."""
    tasks.add.enqueue(1, 2)
    run_pending()
    assert read("show", str(Job.objects.get().pk))["result"] == 3


def test_djangos_options_behind_a_subcommand() -> None:
    """They may stand before it or behind it."""
    assert vtqueue("status", "--verbosity", "1", "--traceback", "--no-color") == vtqueue("status")


def test_more_that_wait_than_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not looked at counts neither as scheduled nor as retried; the numbers say that there are more."""
    for limit in ("READ", "LEAST_READ"):
        monkeypatch.setattr(f"django_vtqueue.inspection.overview.{limit}", 2)
    for _ in range(5):
        job("emails", due=3600, attempts=1, claims=1)
    [queue] = read("status")["queues"]
    assert (queue["scheduled"], queue["retrying"], queue["later"]) == (0, 2, 3)
    assert vtqueue("status").splitlines()[1].split()[1:4] == ["0", "0+", "2+"]


def test_a_list_that_looked_at_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows what it found, and fails with what to narrow down; a whole id is found, and half a surrogate shown."""
    monkeypatch.setattr(list_, "LOOKED_AT", 3)
    oldest = job("emails", task_path="", payload='["\\ud83d"]')
    assert [entry["arguments"] for entry in read("list", "--text", str(oldest.pk))] == [["\ud83d"]]
    for _ in range(5):
        job("emails")
    with pytest.raises(CommandError, match="Looked at 3 jobs only; say the state"):
        vtqueue("list", "--text", str(oldest.pk))
    assert "\\ud83d" in vtqueue("show", str(oldest.pk))


def test_show_what_is_no_traceback_and_what_is_damaged() -> None:
    """The error of a nack, a deed of people as such, and nothing of a damaged result that may be secret."""
    queue = Queue("raw")
    queue.publish(1)
    claimed = queue.claim()
    assert claimed
    claimed.nack(error="disk is full")
    assert "disk is full" in vtqueue("show", str(claimed.id))
    row = job("emails", state="SUCCESSFUL", worker_id="w", finished_at=clock.now())
    Job.objects.filter(pk=row.pk).update(result=StoredText('oops {"token": "hunter2"'))
    assert "hunter2" not in vtqueue("show", str(row.pk))


def test_keys_and_expiry() -> None:
    """The unique key, until when no other job has it, and when it expires; of others nothing is said of them."""
    keyed, plain = Queue("raw").publish(1, unique_key="k", unique_until="start", expires=60), Queue("raw").publish(1)
    found = read("show", str(keyed))
    assert (found["unique_key"], found["unique_until"], found["start_by"][:2]) == ("k", "start", "20")
    assert {"unique_key", "start_by"}.isdisjoint(read("show", str(plain)))
    assert [entry.get("unique_key") for entry in read("list", "--state", "due", "--queue", "raw")] == ["k", None]
    assert ["unique_key", "k"] in [line.split() for line in vtqueue("show", str(keyed)).splitlines()]


def test_a_list_for_a_mistyped_name(settings: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """It says that there is no such queue or task, and which there are, where nothing is listed; a known name is."""
    options = {**settings.TASKS["default"], "QUEUES": []}
    settings.TASKS = {"default": options}
    Queue("emails").publish("x")
    assert vtqueue("list", "--queue", "nix") == ""
    assert capsys.readouterr().err == "No job of 'nix' is there. Queues with unfinished jobs: emails.\n"
    assert read("list", "--task", "nix") == []
    told = capsys.readouterr().err
    assert told.startswith("There is no task 'nix'. There are: ")
    assert "tests.project.tasks.add" in told
    vtqueue("list", "--queue", "emails", "--task", "tests.project.tasks.add")
    assert not capsys.readouterr().err
    settings.TASKS = {"default": {**options, "QUEUES": ["default"]}}
    with pytest.raises(CommandError, match=r"There is no queue 'nix'\. There are: default, emails\."):
        vtqueue("list", "--queue", "nix")


HOSTILE = "evil\x1b[2J\x9b2J\x7f\u202e\u2066\rq"


@pytest.mark.parametrize("command", [["status"], ["list"], ["list", "--text", "2J"], ["show"], ["why"], ["purge"]])
def test_what_a_terminal_obeys_is_escaped(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of a queue, a payload or a reason clears no screen and turns no line: control characters are escaped."""
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or "y")
    job_id = Queue(HOSTILE).publish({"text": HOSTILE})
    Queue(HOSTILE).pause(HOSTILE, by=HOSTILE)
    arguments = {"show": [str(job_id)], "why": [str(job_id)], "purge": [HOSTILE]}.get(command[0], [])
    said = vtqueue(*command, *arguments) + "".join(asked)
    assert r"evil\x1b[2J\x9b2J\x7f\u202e\u2066" in said
    assert said.replace("\n", "").isprintable()
    if command[0] in ("status", "list", "show"):
        said = vtqueue(*command, *arguments, "--json")
        assert json.dumps(HOSTILE)[1:-1] in json.dumps(json.loads(said))
        assert said.replace("\n", "").isprintable()


def test_an_error_has_no_control_characters_either() -> None:
    """What is refused is shown as all else is."""
    Queue(HOSTILE).publish("x")
    with pytest.raises(CommandError) as caught:
        vtqueue("purge")
    assert r"evil\x1b[2J\x9b2J\x7f\u202e\u2066\rq 1" in str(caught.value)
    assert str(caught.value).isprintable()
