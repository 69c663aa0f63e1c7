"""Lists of any length: pages by key, what is found and how far was looked, and what a search must not tell."""

import json
import re
from itertools import chain
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from django_vtqueue import requeueing, task
from django_vtqueue.admin import changelists as lists
from django_vtqueue.core import clock
from django_vtqueue.core.ids import first_id
from django_vtqueue.models import DeadLetter, Job

from .test_admin import HOUR, SECOND, job, letter, listed, text

pytestmark = pytest.mark.django_db

JOBS, LETTERS = reverse("admin:vtqueue_job_changelist"), reverse("admin:vtqueue_deadletter_changelist")


@task
def charge(card_token: str, amount: int) -> None: ...


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pages and slices small."""
    monkeypatch.setattr("django_vtqueue.admin.base.ReadOnlyAdmin.list_per_page", 3)
    monkeypatch.setattr(lists, "LOOKED_AT", 8)
    monkeypatch.setattr(lists, "LOOKED_INTO", 8)


def walked(client: Client, address: str, query: str | None = "", link: str = "next_link") -> list[list[UUID]]:
    """Return the ids on each page of a list, from a query on, from link to link."""
    pages = []
    while query is not None:
        listing = client.get(address + query).context["cl"]
        pages.append([row.pk for row in listing.result_list])
        query = getattr(listing, link)
    return pages


def test_pages_of_jobs(admin_client: Client) -> None:
    """Page after page shows each job once, the newest first, and ends."""
    rows = [job().pk for _ in range(7)]
    newest = rows[::-1]
    assert walked(admin_client, JOBS) == [newest[:3], newest[3:6], newest[6:]]


@pytest.mark.parametrize(("count", "told"), [(1, "1 job"), (3, "3 jobs"), (4, "Next page")])
def test_a_list_of_one_page(admin_client: Client, count: int, told: str) -> None:
    """It says how many there are; a longer one does not count them."""
    for _ in range(count):
        job()
    html = admin_client.get(JOBS).content.decode()
    assert text(html.split('class="paginator')[1].split("</nav>")[0]).split(">")[1].strip() == told


def test_jobs_that_come_and_go_between_pages(admin_client: Client) -> None:
    """What is new, or gone, moves nothing from one page to another."""
    rows = [job().pk for _ in range(7)][::-1]
    second = admin_client.get(JOBS).context["cl"].next_link
    job()
    Job.objects.get(pk=rows[1]).delete()
    assert [row.pk for row in admin_client.get(JOBS + second).context["cl"].result_list] == rows[3:6]


def test_back(admin_client: Client) -> None:
    """From a page one comes back to those before it, one by one, and to the first at once."""
    rows = [job().pk for _ in range(9)][::-1]
    third = admin_client.get(JOBS + admin_client.get(JOBS).context["cl"].next_link).context["cl"].next_link
    listing = admin_client.get(JOBS + third).context["cl"]
    assert walked(admin_client, JOBS, third, "previous_link") == [rows[6:], rows[3:6], rows[:3]]
    assert [row.pk for row in admin_client.get(JOBS + listing.first_link).context["cl"].result_list] == rows[:3]


@pytest.mark.parametrize("word", ["due", "scheduled"])
@pytest.mark.parametrize("queue", [{}, {"queue_name": "default"}])
def test_the_order_of_what_waits(admin_client: Client, word: str, queue: dict[str, str]) -> None:
    """What is due by its priority; tasks before raw payloads; then by time, then as inserted; page by page."""
    begin = clock.now() + (HOUR if word == "scheduled" else -HOUR)
    values = [(priority, begin + at * SECOND, path) for priority in (0, 5) for path in ("a.b", "") for at in (2, 1, 1)]
    rows = [job(word, priority=p, visible_at=at, task_path=path) for p, at, path in values]
    job("done"), job("running", priority=9), job("expired", priority=9)
    expected = sorted(rows, key=lambda row: (row.task_path == "", row.visible_at))
    if word == "due":
        expected.sort(key=lambda row: -row.priority)
    query = urlencode({"state": word, **queue})
    assert list(chain(*walked(admin_client, JOBS, f"?{query}"))) == [row.pk for row in expected]


def test_held_jobs(admin_client: Client) -> None:
    """Held jobs are listed by their workers; those of one worker by a filter."""
    rows = [job("running", worker_id=name) for name in ("web2:1:a", "web1:1:a", "web2:1:a", "web1:1:a")]
    ids = list(chain(*walked(admin_client, JOBS, "?state=running")))
    assert ids == [rows[1].pk, rows[3].pk, rows[0].pk, rows[2].pk]
    assert listed(admin_client, worker_id="web1:1:a") == {rows[1].pk, rows[3].pk}


def test_pages_of_letters(admin_client: Client) -> None:
    """Dead letters come by their death, the latest first, whichever filter is set; those of one instant too."""
    now = clock.now()
    rows = [letter(died_at=now - at * SECOND, queue_name=q) for at, q in enumerate("abababab")]
    same = [letter(died_at=now - HOUR, queue_name="a") for _ in range(4)]
    assert list(chain(*walked(admin_client, LETTERS))) == [row.pk for row in (*rows, *same[::-1])]
    for filtered in ("queue_name=a", "queue_name=a&task_path=tests.project.tasks.add", "queue_name=a&fingerprint=f"):
        found = list(chain(*walked(admin_client, LETTERS, f"?{filtered}")))
        assert found == [row.pk for row in (*rows[::2], *same[::-1])]


def test_a_page_looks_at_so_many_rows_and_says_so(admin_client: Client) -> None:
    """What is rare is not sought in the whole table: the page ends, says how far it came, and leads on."""
    rare = [job(queue_name="rare").pk for _ in range(2)]
    for _ in range(17):
        job()
    response = admin_client.get(JOBS + "?queue_name=rare")
    assert "Looked at 8 jobs, back to" in text(response.content.decode())
    assert "Look further" in response.content.decode()
    assert walked(admin_client, JOBS, "?queue_name=rare") == [[], [], rare[::-1]]


def test_counts_have_an_end(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each state says how many jobs it has; beyond the rows that are looked at it says "at least"."""
    monkeypatch.setattr(lists, "COUNTED", 5)
    for word, number in {"due": 2, "scheduled": 7, "running": 1, "done": 1}.items():
        for _ in range(number):
            job(word)
    shown = text(admin_client.get(JOBS).content.decode())
    for label in ("due (2)", "scheduled (5+)", "running (1)", "expired (0)"):
        assert label in shown
    assert "due (0)" in text(admin_client.get(JOBS + "?queue_name=none").content.decode())


def test_time(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are filtered by the time of their enqueueing, letters by that of their death."""
    monkeypatch.setattr("django_vtqueue.admin.base.ReadOnlyAdmin.list_per_page", 50)
    day = 24 * HOUR
    ages = {"quarter": 0, "hour": HOUR // 2, "day": 2 * HOUR, "week": 2 * day, "older": 8 * day}
    now = clock.now()
    jobs = {name: job(id=UUID(first_id(now - age)[:-1] + "1")).pk for name, age in ages.items()}
    letters = {name: letter(died_at=now - age).pk for name, age in ages.items()}
    names = list(ages)
    for number, name in enumerate(names):
        expected = ["older"] if name == "older" else names[: number + 1]
        assert listed(admin_client, time=name) == {jobs[each] for each in expected}
    for number, died in enumerate(("1h", "1d", "7d"), start=1):
        assert listed(admin_client, "deadletter", died=died) == {letters[each] for each in names[: number + 1]}


def test_choices_of_filters(admin_client: Client) -> None:
    """One can choose among the queues, tasks and exceptions that there are, and what is chosen is among them."""
    for queue in ("b", "a", "b"):
        letter(queue_name=queue, exception_class=f"app.{queue}", task_path=f"shop.{queue}")
    shown = text(admin_client.get(LETTERS + "?worker_id=web9:1:x").content.decode())
    for name in ("a b", "shop.a shop.b", "app.a app.b", "web9:1"):
        assert name in shown


def test_search_in_arguments(admin_client: Client) -> None:
    """Jobs and letters are found by a text in their arguments, quotes and all, and letters by their error."""
    wanted = job(payload=json.dumps({"args": ['say "hi"', "100%, größe"], "kwargs": {}}, ensure_ascii=False))
    job()
    for term in ('say "hi"', "100%", "GRöße", "tests.project"):
        assert wanted.pk in listed(admin_client, q=term)
    assert listed(admin_client, q="10_%") == set()
    dead = letter(message="no route to host", exception_class="app.Unreachable")
    letter()
    for term in ("route to", "unreach"):
        assert listed(admin_client, "deadletter", q=term) == {dead.pk}


def test_the_end_of_an_id_is_found_far_back(admin_client: Client) -> None:
    """The digits that the log shows are sought further back than any other text; then in the arguments too."""
    old, dead = job(), letter()
    for _ in range(20):
        job(), letter()
    assert listed(admin_client, q=f"…{old.pk.hex[-8:]}") == {old.pk}
    assert listed(admin_client, "deadletter", q=dead.pk.hex[-8:].upper()) == {dead.pk}
    named = job(payload='{"args":["deadbeef01"],"kwargs":{}}')
    assert listed(admin_client, q="deadbeef01") == {named.pk}


SECRETS = {
    "by name": ({"args": [], "kwargs": {"card_token": "s3cret-1", "amount": 7}}, "amount"),
    "by position": ({"args": ["s3cret-1", 4242], "kwargs": {}}, "4242"),
    "nested": ({"args": [], "kwargs": {"amount": {"Password": "s3cret-1", "user": "ann"}}}, "ann"),
}


@pytest.mark.parametrize(("payload", "open_text"), SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("model", ["job", "deadletter"])
def test_a_search_is_no_oracle(admin_client: Client, payload: Any, open_text: str, model: str) -> None:
    """What is hidden is not found, however little of it is sought, and a page does not differ by it; the rest is."""
    store = job if model == "job" else letter
    rows = {
        store(task_path=charge.module_path, payload=json.dumps(payload, separators=(",", ":"))).pk for _ in range(5)
    }
    address = reverse(f"admin:vtqueue_{model}_changelist")
    pages = []
    for term in ("s3cret-1", "3cre", "no-such-text"):
        response = admin_client.get(address, {"q": term})
        pages.append(response.content.decode().replace(term, "TERM").partition("<main")[2])
        assert not response.context["cl"].result_list
        assert response.context["cl"].next_link is None
    assert len(listed(admin_client, model, q=open_text) & rows) == 3


def test_a_search_in_damaged_arguments(admin_client: Client) -> None:
    """What cannot be read as JSON is searched too, unless it names what is hidden."""
    row = job(payload="{oops, amount")
    job(payload='{"Password": "oops, amount"')
    assert listed(admin_client, q="oops, am") == {row.pk}


@pytest.mark.parametrize(
    "key",
    ["x", "[]", "[[1]]", "[1,2,3,4,5,6]", '["a"', "[99999999999999999999]", "null", "[null]", "1", "1],[2",
     '["\\ud800"]', '["\\ud800",1]', '[1,"\\ud800"]'],
)  # fmt: skip
def test_addresses_made_by_hand(admin_client: Client, key: str) -> None:
    """A key that no link has leads to a page all the same."""
    row, dead = job(), letter()
    assert listed(admin_client, after=key, back=key) <= {row.pk}
    assert listed(admin_client, state="due", after=key) <= {row.pk}
    assert listed(admin_client, state="running", after=key) == set()
    assert listed(admin_client, "deadletter", after=key) <= {dead.pk}


def test_unknown_parameters(admin_client: Client) -> None:
    """A parameter that is no filter is refused, as everywhere in the admin."""
    assert admin_client.get(JOBS + "?priority__gt=3").status_code in (302, 400)
    assert DeadLetter.objects.count() == 0


def test_jobs_of_one_task_are_told_apart(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list shows the arguments of each job by their names, short, in one line, and without what is secret."""
    monkeypatch.setattr("django_vtqueue.admin.base.ReadOnlyAdmin.list_per_page", 5)
    job(payload='{"args":[1],"kwargs":{"b":"two\\nlines"}}')
    job(payload='{"args":[2,3],"kwargs":{}}')
    job(payload=json.dumps({"args": [], "kwargs": {"a": "x" * 500, "password": "hunter2"}}))
    job(payload="{damaged")
    job(task_path="", payload='{"celsius":21.5}')
    html = admin_client.get(JOBS).content.decode()
    assert re.findall(r'<span class="vtq-call">(.*?)</span>', html) == [
        "celsius=21.5",
        "{damaged",
        f"a={'x' * 39}…, password=••••",
        "a=2, b=3",
        "a=1, b=two lines",
    ]


def test_steps_of_requeues_are_in_no_list(admin_client: Client) -> None:
    """The jobs by which a requeue of many goes on are neither listed nor counted; only their ids find them."""
    letter()
    run = requeueing.start(requeueing.Criteria(), rate=1)
    assert Job.objects.get().task_path == requeueing.PATH == f"{requeueing.step.func.__module__}.step"
    for query in ({}, {"state": "due"}, {"task_path": requeueing.PATH}, {"q": "requeueing"}):
        assert listed(admin_client, **query) == set(), query
    assert "(1)" not in text(admin_client.get(JOBS).content.decode())
    assert listed(admin_client, q=str(run.step)) == {run.step}


def refreshed(client: Client, address: str, version: str = "") -> Any:
    """Return the answer to a page that refreshes itself; ``version``: of what it shows."""
    return client.get(address, headers={"X-Requested-With": "fetch", "If-None-Match": version})


def test_a_refresh_of_what_is_the_same(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is answered by 304, without a page; by the page again when a row has come, has changed, or has gone."""
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now)
    rows = [job("done") for _ in range(2)]
    first = refreshed(admin_client, JOBS)
    assert (first.status_code, refreshed(admin_client, JOBS, first["ETag"]).status_code) == (200, 304)
    assert refreshed(admin_client, JOBS, first["ETag"]).content == b""
    seen = {first["ETag"]}
    for change in (job, lambda: Job.objects.update(priority=7), rows[1].delete):
        change()
        answer = refreshed(admin_client, JOBS, first["ETag"])
        assert answer.status_code == 200
        seen.add(answer["ETag"])
    assert len(seen) == 4
    assert "ETag" not in admin_client.get(JOBS)


def test_a_refresh_when_only_the_time_has_changed(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a job runs is part of what its list shows; of a dead letter nothing changes with the time."""
    job("running"), letter()
    before = {address: refreshed(admin_client, address)["ETag"] for address in (JOBS, LETTERS)}
    now = clock.now() + 7 * SECOND
    monkeypatch.setattr(clock, "now", lambda: now)
    answers = [refreshed(admin_client, address, version).status_code for address, version in before.items()]
    assert answers == [200, 304]


def test_a_refresh_for_another_user(admin_client: Client, client: Client, django_user_model: Any) -> None:
    """What one user has seen says nothing of what another one may do."""
    job("done")
    other = django_user_model.objects.create_superuser("other", password="x")
    client.force_login(other)
    assert refreshed(client, JOBS, refreshed(admin_client, JOBS)["ETag"]).status_code == 200
