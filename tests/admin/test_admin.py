"""The admin: what it shows of jobs, dead letters and workers, and the few things it does to them."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.db.models import Model
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.html import strip_tags
from pytest_django import Settings

from django_vtqueue import Queue, control, task
from django_vtqueue.core import clock, states
from django_vtqueue.core.history import Entry, read
from django_vtqueue.core.ids import new_id
from django_vtqueue.models import DeadLetter, Job, WorkerProcess
from django_vtqueue.queue import dead_letters, doorbell
from django_vtqueue.queue.workers import SILENCE
from tests.pending import run_pending

from ..columns import as_stored, in_columns
from ..fake_clock import FakeClock
from ..project import durable
from ..project.tasks import add, raise_it, raise_later
from ..projects import Project

pytestmark = pytest.mark.django_db

SECOND, HOUR = 1_000_000, 3_600_000_000
EVIL = "<script>alert('x')</script>"
WAITING = ("due", "scheduled", "retrying")
WORDS = (*WAITING, "running", "expired", "done")


@task
def sign_in(user: str, password: str, *, api_token: str = "") -> dict[str, Any]:
    return {"user": user, "nested": [{"Session-TOKEN": "t0p-s3cret"}]}


def job(word: str = "due", **values: Any) -> Job:
    """Store a job in the state that people call ``word``."""
    now = clock.now()
    row: dict[str, Any] = {
        "id": UUID(new_id()),
        "queue_name": "default",
        "task_path": "tests.project.tasks.add",
        "payload": '{"args":[1,2],"kwargs":{}}',
        "max_attempts": 10,
        "lease_us": 60 * SECOND,
        "enqueued_at": now,
        "visible_at": now - SECOND if word in ("due", "expired") else now + HOUR,
        "state": states.READY if word == "due" else states.SCHEDULED,
    }
    if word not in ("due", "scheduled"):
        row |= {"attempts": 1, "claims": 1, "started_at": now}
    if word in ("running", "expired", "done"):
        row |= {"state": states.RUNNING, "worker_id": "web1:4711:abcd"}
    if word == "done":
        row |= {"state": states.SUCCESSFUL, "finished_at": now, "result": "3"}
    return Job.objects.create(**in_columns(row | values))


def letter(**values: Any) -> DeadLetter:
    """Store a dead letter."""
    row = {
        "id": UUID(new_id()),
        "queue_name": "default",
        "task_path": "tests.project.tasks.add",
        "payload": '{"args":[1,2],"kwargs":{}}',
        "claims": 3,
        "attempts": 3,
        "max_attempts": 3,
        "lease_us": 60 * SECOND,
        "enqueued_at": clock.now(),
        "died_at": clock.now(),
        "exception_class": "builtins.ConnectionError",
        "message": "refused",
        "fingerprint": "f",
    }
    return DeadLetter.objects.create(**as_stored(row | values))


def listed(client: Client, model: str = "job", **parameters: str) -> set[UUID]:
    """Return the ids of the rows on a page of the list."""
    response = client.get(reverse(f"admin:vtqueue_{model}_changelist"), parameters)
    assert response.status_code == 200
    return {row.pk for row in response.context["cl"].result_list}


def page(client: Client, row: Model) -> str:
    """Return the page of one row."""
    response = client.get(reverse(f"admin:vtqueue_{row._meta.model_name}_change", args=[row.pk]))
    assert response.status_code == 200
    return response.content.decode()


def text(html: str) -> str:
    """Return what people read on a page, in one line."""
    return re.sub(r"\s+", " ", strip_tags(re.sub("</t[dh]>", " ", html)))


def act(client: Client, action: str, *rows: Model, **more: str) -> HttpResponse:
    """Choose an action for rows, as the list's form posts it."""
    data = {"action": action, "_selected_action": [str(row.pk) for row in rows], **more}
    return client.post(  # type: ignore[return-value]
        reverse(f"admin:vtqueue_{rows[0]._meta.model_name}_changelist"), data, follow=True
    )


def said(response: HttpResponse) -> list[str]:
    """Return the messages that were shown after an action."""
    return [str(message) for message in response.context["messages"]]  # type: ignore[attr-defined]


@pytest.fixture
def client_with(client: Client) -> Callable[..., Client]:
    """Return a function that logs in a user who may see everything, and has the permissions named."""

    def log_in(*permissions: str) -> Client:
        user = User.objects.create_user("staff", is_staff=True)
        names = ["view_job", "view_deadletter", "view_workerprocess", *permissions]
        user.user_permissions.set(Permission.objects.filter(content_type__app_label="vtqueue", codename__in=names))
        client.force_login(user)
        return client

    return log_in


@pytest.fixture
def rung(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the aliases of the databases whose workers were woken."""
    aliases: list[str] = []
    for module in ("queue.batches", "queue.dead_letters"):
        monkeypatch.setattr(f"django_vtqueue.{module}.wake_workers", aliases.append)
    return aliases


# -- what is shown ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", WORDS)
def test_filter_by_state(admin_client: Client, word: str) -> None:
    """Each word people know is a filter, finds exactly the jobs that are shown with that word, and no other does."""
    jobs = {each: job(each) for each in WORDS}
    assert listed(admin_client, state=word) == {jobs[word].pk}
    assert f'vtq-word vtq-{word}">{word}</span>' in page(admin_client, jobs[word])


def test_words_at_the_very_moment(admin_client: Client, time: FakeClock) -> None:
    """What becomes due, or ends, at this microsecond is due, and has ended: for the filter as for a worker."""
    ready, held = job("due", visible_at=clock.now()), job("running", visible_at=clock.now())
    assert listed(admin_client, state="due") == {ready.pk}
    assert listed(admin_client, state="expired") == {held.pk}


def test_other_filters(admin_client: Client) -> None:
    """Jobs are filtered by queue and by task, dead letters by exception too; an unknown state filters nothing."""
    mail, other = job(queue_name="mail"), job(task_path="shop.tasks.sync")
    assert listed(admin_client, queue_name="mail") == {mail.pk}
    assert listed(admin_client, task_path="shop.tasks.sync") == {other.pk}
    assert listed(admin_client, state="asleep") == {mail.pk, other.pk}
    mistake, _ = letter(exception_class="builtins.KeyError"), letter()
    assert listed(admin_client, "deadletter", exception_class="builtins.KeyError") == {mistake.pk}


def test_tasks_in_other_modules(admin_client: Client, settings: Settings) -> None:
    """The tasks of ``task_modules`` are offered by the filter of jobs and by the form for a new one."""
    name = durable.order.module_path
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": {"task_modules": [durable.__name__]}}}
    for place in ("job/", "job/enqueue/"):
        assert name in admin_client.get(f"/admin/vtqueue/{place}").content.decode()


def test_search(admin_client: Client) -> None:
    """A job is found by its id, by the end of it that the log shows, and by its task."""
    wanted, _ = job(task_path="shop.tasks.sync"), job()
    for term in (str(wanted.pk), wanted.pk.hex, f"…{wanted.pk.hex[-8:]}", "tasks.sync"):
        assert listed(admin_client, q=term) == {wanted.pk}
    assert listed(admin_client, q="nothing like it") == set()


def test_list_leaves_large_columns_in_the_database(admin_client: Client) -> None:
    """However large payloads are, a list does not read them: of one for which it has no room the size alone."""
    large = json.dumps({"args": ["x" * 20_000, 1], "kwargs": {}})
    job(payload=large), letter(payload=large)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        pages = [admin_client.get(reverse(f"admin:vtqueue_{name}_changelist")) for name in ("job", "deadletter")]
    shown = "".join(response.content.decode() for response in pages)
    reading = [query["sql"] for query in queries if re.search('payload|history"|result', query["sql"])]
    assert len(reading) == 2
    assert all('CASE WHEN LENGTH("' in sql and "<= 10000" in sql and '"history"' not in sql for sql in reading)
    assert "x" * 20 not in shown
    assert text(shown).count(f"{len(large):,} characters") == 2


def test_arguments_by_name(admin_client: Client) -> None:
    """Arguments have the names of the task's parameters; where the task is gone only those passed by name are shown."""
    add.enqueue(1, b=2)
    assert "{ &quot;a&quot;: 1, &quot;b&quot;: 2 }" in text(page(admin_client, Job.objects.get()))
    gone = job(task_path="shop.tasks.gone", payload='{"args":[1,2],"kwargs":{"c":3}}')
    shown = text(page(admin_client, gone))
    assert "&quot;args&quot;: [ &quot;••••&quot;, &quot;••••&quot; ], &quot;kwargs&quot;: { &quot;c&quot;: 3 }" in shown
    raw = Queue("sensors").publish({"celsius": 21.5})
    assert "&quot;celsius&quot;: 21.5" in page(admin_client, Job.objects.get(pk=raw))


def test_arguments_that_do_not_fit(admin_client: Client) -> None:
    """Arguments that the task does not take (any more) are shown as they were passed, except those without a name."""
    for payload in ('{"args":[1,2,"three"],"kwargs":{"b":"four"}}', '{"args":[1],"kwargs":{"a":"four"}}'):
        shown = text(page(admin_client, job(payload=payload)))
        assert "&quot;args&quot;" in shown
        assert "four" in shown
        assert "three" not in shown


def test_secrets_are_masked(admin_client: Client) -> None:
    """What stands under password, token, secret is hidden: by position, by name, nested, in results, in any case."""
    sign_in.enqueue("ann", "hunter2", api_token="s3cret")
    run_pending()
    shown = page(admin_client, Job.objects.get())
    assert "ann" in shown
    assert not re.search("hunter2|s3cret", shown)
    assert shown.count("••••") == 3


def test_mask_option(admin_client: Client, settings: Any) -> None:
    """OPTIONS['mask'] says which keys are hidden, instead of the default ones."""
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": {"mask": ["IBAN"]}}}
    shown = page(admin_client, letter(payload='{"args":[],"kwargs":{"from_iban":"DE12-3456","token":"abc"}}'))
    assert "DE12-3456" not in shown
    assert "abc" in shown


DAMAGED = {
    "no JSON": "{oops",
    "another shape": "[1, 2]",
    "other types": '{"args": 3, "kwargs": []}',
    "too deep": "[" * 100_000,
    "deep": "[" * 1500 + "]" * 1500,
    "surrogate": '"\\ud800 \\u0000"',
    "empty": "",
}


@pytest.mark.parametrize("damaged", DAMAGED.values(), ids=DAMAGED)
def test_damaged_rows(admin_client: Client, damaged: str) -> None:
    """A row with a damaged payload, result or history is listed and shown."""
    rows = [job("done", payload=damaged, history=damaged, result=damaged), letter(payload=damaged, history=damaged)]
    for row in rows:
        assert str(row.pk) in page(admin_client, row)
    assert listed(admin_client) | listed(admin_client, "deadletter") == {row.pk for row in rows}


def test_damaged_text_with_secrets(admin_client: Client) -> None:
    """What cannot be read as JSON cannot be masked: it is not shown if it names what is to be hidden."""
    assert "hunter2" not in page(admin_client, job(payload='{"Password": "hunter2"'))
    assert "{oops" in page(admin_client, job(payload="{oops"))


@pytest.mark.parametrize(
    "history",
    [
        '[{"number":[],"worker":7,"started":"x","ended":{},"outcome":null,"traceback":3,"message":"\\ud800"}]',
        '[{"omitted":"many"},{}]',
        '[{"started":99999999999999999999,"ended":-99999999999999999999}]',
    ],
)
def test_history_of_other_types(admin_client: Client, history: str) -> None:
    """An entry of the history that has not the right types is shown all the same."""
    page(admin_client, job("running", history=history))


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Midway"])
@pytest.mark.parametrize("use_tz", [True, False])
def test_moments_at_the_end_of_time(admin_client: Client, settings: Any, use_tz: bool, zone: str) -> None:
    """A moment that no calendar has is shown as the last one, with USE_TZ and without."""
    settings.USE_TZ, settings.TIME_ZONE = use_tz, zone
    for end in (2**62, -(2**62)):
        row = job("scheduled", visible_at=end, enqueued_at=end, kept_until=end)
        assert str(row.pk) in page(admin_client, row)
        assert listed(admin_client) >= {row.pk}


def test_everything_is_escaped(admin_client: Client) -> None:
    """Nothing that a job brings along becomes markup: not its names, its arguments, its result, nor its exceptions."""
    history = json.dumps([Entry(worker=EVIL, outcome=EVIL, exception_class=EVIL, message=EVIL, traceback=EVIL)])
    payload = json.dumps({"args": [EVIL], "kwargs": {EVIL: EVIL}})
    values = {"task_path": f"a.{EVIL}", "queue_name": EVIL, "payload": payload, "history": history, "unique_key": EVIL}
    rows = [
        job("done", **values, result=json.dumps(EVIL), worker_id=EVIL),
        job("running", **values | {"payload": EVIL}, worker_id=EVIL),
        letter(**values, exception_class=EVIL, message=EVIL, fingerprint=EVIL),
    ]
    pages = [page(admin_client, row) for row in rows]
    for model in ("job", "deadletter"):
        pages.append(admin_client.get(reverse(f"admin:vtqueue_{model}_changelist")).content.decode())
    pages += [act(admin_client, "delete_selected", row).content.decode() for row in rows]
    for shown in pages:
        assert "<script>alert" not in shown
        assert "&lt;script&gt;alert" in shown


def test_attempts(admin_client: Client, time: FakeClock) -> None:
    """The attempts are a table: what became of each, where, when, how long, and why; the last one included."""
    started = clock.now() - HOUR
    history = json.dumps(
        [
            Entry(
                number=1,
                worker="web1:4711:abcd",
                started=started,
                ended=started + 90 * SECOND,
                outcome="failed",
                exception_class="builtins.KeyError",
                message="'id'",
                traceback="Traceback: here",
            ),
            Entry(omitted=17),
        ]
    )
    shown = page(admin_client, job("running", history=history, started_at=clock.now()))
    assert re.search(r"1 failed web1:4711 .* 1\.5 min builtins\.KeyError &#x27;id&#x27; Traceback", text(shown))
    assert '<details><summary>Traceback</summary><div class="vtq-copyable">' in shown
    assert '<pre class="vtq-text">Traceback: here</pre></div></details>' in shown
    assert "17 attempts are left out" in shown
    assert re.search(r"19 running web1:4711", text(shown))


def test_attempts_of_a_real_job(admin_client: Client) -> None:
    """A task that failed and waits shows the failed attempt; one that succeeded shows that."""
    raise_later.enqueue()
    add.enqueue(1, 2)
    run_pending()
    waiting, done = Job.objects.order_by("enqueued_at")
    assert "1 failed" in text(page(admin_client, waiting))
    assert "ConnectionError: refused" in page(admin_client, waiting)
    assert "1 succeeded" in text(page(admin_client, done))


@pytest.mark.parametrize(
    ("microseconds", "shown"),
    [
        (400_000, "400 ms"),
        (3_200_000, "3.2 s"),
        (42 * SECOND, "42 s"),
        (HOUR // 24, "2.5 min"),
        (HOUR, "1 h"),
        (72 * HOUR, "3 d"),
    ],
)
def test_when(admin_client: Client, time: FakeClock, microseconds: int, shown: str) -> None:
    """A list says when each job runs, how long it is held, or when it ended."""
    now = clock.now()
    row = job("scheduled", visible_at=now + microseconds)
    assert f">due in {shown}</time>" in page(admin_client, row)
    assert f">lease ends in {shown}<" in page(admin_client, job("running", visible_at=now + microseconds))
    assert f">lease ended {shown} ago<" in page(admin_client, job("expired", visible_at=now - microseconds))
    assert f">due for {shown}<" in page(admin_client, job(visible_at=now - microseconds))
    assert f">finished {shown} ago<" in page(admin_client, job("done", finished_at=now - microseconds))


def test_workers(admin_client: Client, time: FakeClock) -> None:
    """Workers are listed with their queues and slots; one whose heartbeat is older than SILENCE counts as gone."""
    now = clock.now()
    beat = {"alive": now - 5 * SECOND, "gone": now - clock.microseconds(SILENCE)}
    for pid, moment in enumerate(beat.values()):
        WorkerProcess.objects.create(
            worker_id=str(pid), host="web1", pid=pid, queues="a,b", slots=4, started_at=now - HOUR, heartbeat_at=moment
        )
    shown = text(admin_client.get(reverse("admin:vtqueue_workerprocess_changelist")).content.decode())
    assert re.search(r"web1:0 alive a, b 4 .* 5 s ago", shown)
    assert re.search(r"web1:1 gone a, b 4 .* 30 s ago", shown)
    assert "web1" in page(admin_client, WorkerProcess.objects.get(pk="0"))


class Elsewhere:
    """A router that sends every read of the queue's tables to a database that is not there."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "nowhere" if model._meta.app_label == "vtqueue" else None


def test_database_of_the_workers(admin_client: Client, settings: Any) -> None:
    """Pages and actions use the database that the workers use, whatever the routers say."""
    waiting, dead = job("scheduled"), letter()
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": {"database": "default"}}}
    settings.DATABASE_ROUTERS = [f"{__name__}.Elsewhere"]
    assert listed(admin_client) == {waiting.pk}
    assert str(waiting.pk) in page(admin_client, waiting)
    assert said(act(admin_client, "run_now", waiting)) == ["1 job is due now."]
    assert said(act(admin_client, "requeue", dead)) == ["1 dead letter is a job again."]
    assert said(act(admin_client, "delete_selected", waiting, post="yes")) == ["1 job was discarded."]
    assert listed(admin_client) == {dead.pk}


# -- what is done -----------------------------------------------------------------------------------------------------


def test_requeue(admin_client: Client, rung: list[str]) -> None:
    """A requeued letter is a due job with the same id, its history and claim number, and a fresh budget."""
    raise_it.enqueue("BaseException")
    run_pending()
    dead = DeadLetter.objects.get()
    rung.clear()
    assert said(act(admin_client, "requeue", dead)) == ["1 dead letter is a job again."]

    again = Job.objects.get()
    assert (again.pk, again.claims, again.attempts) == (dead.pk, 1, 0)
    *before, requeued = read(again.history)
    assert before == read(dead.history)
    assert (requeued["outcome"], requeued["worker"]) == ("requeued", "admin")
    assert not DeadLetter.objects.exists()
    assert listed(admin_client, state="due") == {dead.pk}
    assert rung == ["default"]
    entry = LogEntry.objects.get()
    assert entry.object_id == str(dead.pk)
    assert entry.get_edited_object() == again


def test_requeue_skips_a_taken_key(admin_client: Client) -> None:
    """A letter whose unique key a waiting job has stays a letter, and the page says so; the others go."""
    job(unique_key="k")
    kept, gone = letter(unique_key="k"), letter()
    first, second = said(act(admin_client, "requeue", kept, gone))
    assert first == "1 dead letter is a job again."
    assert second.startswith("1 dead letter was skipped: a waiting job has its unique key")
    assert DeadLetter.objects.get() == kept
    assert LogEntry.objects.count() == 1


def test_run_now(admin_client: Client, rung: list[str]) -> None:
    """Jobs that wait for a later time are due at once and the workers are woken; all others are left as they were."""
    jobs = {word: job(word) for word in WORDS}
    before = {row.pk: row.visible_at for row in Job.objects.all()}
    response = act(admin_client, "run_now", *jobs.values())

    assert said(response) == [
        "2 jobs are due now.",
        "4 jobs were skipped: only those that are scheduled or retrying can be run now.",
    ]
    assert listed(admin_client, state="due") == {jobs[word].pk for word in WAITING}
    changed = {row.pk for row in Job.objects.all() if row.visible_at != before[row.pk]}
    assert changed == {jobs["scheduled"].pk, jobs["retrying"].pk}
    assert {entry.object_id for entry in LogEntry.objects.all()} == {str(pk) for pk in changed}
    assert rung == ["default"]


def test_run_now_wakes_after_the_commit(
    sqlite_file: str, monkeypatch: pytest.MonkeyPatch, django_db_blocker: Any
) -> None:
    """The workers are woken when the change can be seen, not before."""
    Job.objects.using(sqlite_file).bulk_create([job("scheduled")])
    seen: list[bool] = []

    def ring(alias: str, folder: str | None) -> None:
        seen.append(Job.objects.using(alias).get().visible_at <= clock.from_instant(clock.now()))

    monkeypatch.setattr(doorbell, "ring", ring)
    assert len(control.run_now(Job.objects.using(sqlite_file).values_list("pk", flat=True), using=sqlite_file)) == 1
    assert seen == [True]


def test_delete(admin_client: Client) -> None:
    """Jobs are deleted, unless a worker holds them; one whose lease has ended is not held."""
    jobs = {word: job(word) for word in WORDS}
    response = act(admin_client, "delete_selected", *jobs.values(), post="yes")
    held = f"…{jobs['running'].pk.hex[-8:]} was left as it is: web1:4711 holds it."
    assert said(response) == ["5 jobs were discarded.", held]
    assert Job.objects.get() == jobs["running"]
    assert LogEntry.objects.count() == 5


def test_delete_on_the_page_of_a_job(admin_client: Client) -> None:
    """The page of a job discards it too, after a question with a way back to it; then it leads to the list."""
    row, held = job("done"), job("running")
    asked = act(admin_client, "delete_selected", row, page="1").content.decode()
    assert "1 job will be discarded for good." in asked
    assert f'class="closelink" href="{reverse("admin:vtqueue_job_change", args=[row.pk])}"' in asked
    for message in ("1 job was discarded.", "Your selection is not here any more."):
        response = act(admin_client, "delete_selected", row, page="1", post="yes")
        assert said(response) == [message]
        assert response.redirect_chain == [(reverse("admin:vtqueue_job_changelist"), 302)]  # type: ignore[attr-defined]
    assert Job.objects.get() == held
    assert LogEntry.objects.get().is_deletion()


def test_delete_of_a_job_that_is_claimed_meanwhile(admin_client: Client) -> None:
    """A job that a worker takes before the answer stays, and its page says who holds it."""
    row = job("running")
    answered = act(admin_client, "delete_selected", row, page="1", post="yes")
    assert said(answered) == [f"…{row.pk.hex[-8:]} was left as it is: web1:4711 holds it."]
    assert answered.redirect_chain[-1][0] == reverse("admin:vtqueue_job_change", args=[row.pk])  # type: ignore[attr-defined]
    assert Job.objects.exists()
    assert not LogEntry.objects.exists()


def test_discard(admin_client: Client) -> None:
    """Dead letters are discarded from the list and from their page; both stand in the log."""
    first, second = letter(), letter()
    assert said(act(admin_client, "delete_selected", first, post="yes")) == ["1 dead letter was discarded."]
    act(admin_client, "delete_selected", second, post="yes", page="1")
    assert not DeadLetter.objects.exists()
    assert LogEntry.objects.count() == 2


def test_what_is_gone_meanwhile(admin_client: Client) -> None:
    """An action on a row that is gone says so."""
    row = letter()
    row_id = row.pk
    row.delete()
    row.pk = row_id
    assert said(act(admin_client, "requeue", row)) == ["Your selection is not here any more."]


def test_what_others_take_meanwhile(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another operator has requeued, after the page has read it, is not called damaged; the rest is done."""
    rows, requeue = [letter() for _ in range(4)], dead_letters.requeue

    def later(letters: Any, **options: Any) -> list[UUID]:
        requeue(letters[:taken])
        return requeue(letters, **options)

    monkeypatch.setattr(dead_letters, "requeue", later)
    taken = 1
    told = said(act(admin_client, "requeue", *rows[:2]))
    assert told == ["1 of those selected is not here any more.", "1 dead letter is a job again."]
    taken = 2
    assert said(act(admin_client, "requeue", *rows[2:])) == ["Your selection is not here any more."]


def test_actions_are_for_one_page(admin_client: Client) -> None:
    """An action is for what was selected on a page, whatever else a form says: the other pages were not seen."""
    rows = [job("scheduled") for _ in range(60)]
    assert said(act(admin_client, "run_now", rows[0], select_across="1", index="0")) == ["1 job is due now."]


def snapshot() -> Any:
    """Return all rows, to see that nothing has changed."""
    return list(Job.objects.order_by("pk").values()), list(DeadLetter.objects.order_by("pk").values())


def test_without_the_admin(tmp_path: Path) -> None:
    """A project that has no admin needs none, and never imports ours."""
    project = Project(tmp_path)
    project.manage("migrate")
    code = "import sys, shop.tasks; shop.tasks.receipt.enqueue(7); print('django_vtqueue.admin' in sys.modules)"
    assert project.python(code) == "exit 0\nFalse\n"
