"""The admin in each language there is a catalogue of: every page answers, and leaves nothing in English."""

import html
import json
import re
from collections.abc import Callable

import pytest
from django.db.models import Model
from django.test import Client
from django.urls import reverse
from django.utils import translation

from django_vtqueue import requeueing
from django_vtqueue.core import clock
from django_vtqueue.models import QueueState
from django_vtqueue.queue.dead_letters import Criteria

from ..projects import ROOT
from .rows import WORKER, worker
from .test_admin import HOUR, SECOND, job, letter
from .test_schedules import schedule

pytestmark = pytest.mark.django_db

LANGUAGES = sorted(path.parent.parent.name for path in ROOT.glob("django_vtqueue/locale/*/LC_MESSAGES/django.mo"))
UNREAD = re.compile(r"<(script|style|pre|code)\b.*?</\1>", re.DOTALL)
READ = re.compile(r'>([^<>]+)<|(?: (?:title|aria-label|data-label|data-stale)|type="submit"[^<>]* value)="([^"]+)"')
HISTORY = json.dumps(
    [
        {"worker": "ann", "ended": SECOND, "outcome": "requeued"},
        {"number": 1, "worker": WORKER, "started": SECOND, "ended": HOUR, "outcome": "failed", "traceback": "at: 1"},
    ]
)


def the(model: str, view: str) -> str:
    return reverse(f"admin:vtqueue_{model}_{view}")


def its(row: Model, view: str = "change") -> str:
    return reverse(f"admin:vtqueue_{row._meta.model_name}_{view}", args=[row.pk])


def overview() -> str:
    """Return the overview of a queue with jobs in every state, of one that is paused, and of three workers."""
    for word in ("due", "scheduled", "retrying", "running", "expired"):
        job(word, cancelled_at=clock.now(), progress=0.5)
    job(queue_name="mail")
    QueueState.objects.create(queue_name="mail", paused_at=clock.now(), paused_by="ann", reason="maintenance")
    worker(silent=100)
    worker(pid=1, asked_to="quiet", queues="other")
    worker(pid=2, queues="other")
    return reverse("admin:app_list", args=["vtqueue"])


def jobs() -> str:
    for word in ("due", "scheduled", "retrying", "running", "expired", "done"):
        job(word)
    return the("job", "changelist")


def letters() -> str:
    letter(history=HISTORY)
    return the("deadletter", "changelist")


def groups() -> str:
    letter(history=HISTORY)
    return the("deadletter", "groups")


def held() -> str:
    return its(job("running", cancelled_at=clock.now(), cancelled_by="ann", progress=0.5, history=HISTORY))


def reviewed() -> str:
    return its(letter(task_path="", history=HISTORY, reviewed_at=clock.now(), reviewed_by="ann", note="seen"))


def requeue_all() -> str:
    return f"{the('deadletter', 'requeue')}?queue_name={letter().queue_name}"


def run() -> str:
    letter()
    return its(requeueing.start(Criteria(queue_name="default"), canary=True))


def workers() -> str:
    worker(silent=100)
    worker(pid=1, asked_to="stop")
    return the("workerprocess", "changelist")


def busy_worker() -> str:
    job("running", visible_at=clock.now() + HOUR)
    return its(worker())


def schedules() -> str:
    schedule()
    schedule("daily", declared=False)
    schedule("monthly", declared=False, task_path="tests.project.tasks.lost", next_at=clock.now() - 61 * SECOND)
    schedule("weekly", declared=False, paused_at=clock.now())
    return the("schedule", "changelist")


# Pages, and some of what people read there.
PAGES: dict[str, tuple[Callable[[], str], set[str]]] = {
    "nothing": (lambda: reverse("admin:app_list", args=["vtqueue"]), {"Nothing here yet", "Background jobs"}),
    "overview": (overview, {"Due", "Oldest", "Expired", "paused", "no worker", "Heartbeat", "gone", "asked to stop"}),
    "jobs": (jobs, {"State", "Attempts", "scheduled", "retrying", "running", "expired", "Last 7 days", "Older"}),
    "a job that is due": (lambda: its(job()), {"Run now", "Change priority", "Move", "Cancel", "enqueued", "due"}),
    "one that waits for a retry": (
        lambda: its(job("retrying", history=HISTORY)),
        {"retrying", "outcome", "failed"},
    ),
    "one that runs": (held, {"running", "Asked to stop", "Progress", "requeued"}),
    "one whose lease has ended": (lambda: its(job("expired")), {"expired", "Attempts", "waited", "took"}),
    "one that is done": (lambda: its(job("done")), {"done", "Result", "succeeded", "Enqueue again"}),
    "the form for a job": (lambda: the("job", "enqueue"), {"Enqueue a job", "Run at", "Empty: that of the task."}),
    "dead letters": (letters, {"Requeue all", "Discard all", "Failure", "the last hour"}),
    "a dead letter": (
        lambda: its(letter(history=HISTORY)),
        {"Requeue", "Mark as reviewed", "failed"},
    ),
    "one that is reviewed": (reviewed, {"Reviewed", "(raw payload)", "Fingerprint"}),
    "its form": (lambda: its(letter(), "edit"), {"Requeue with changes", "unique key", "Priority"}),
    "groups": (groups, {"Dead letters by failure", "Requeue group", "A sample traceback", "Over time"}),
    "requeue of all": (requeue_all, {"Requeue dead letters", "One first", "queue"}),
    "its run": (run, {"one first", "Stop", "Next step", "Went first"}),
    "workers": (workers, {"gone", "stopping", "Last heartbeat", "(all)"}),
    "a worker": (busy_worker, {"alive", "Quiet", "Stop it", "Runs", "Memory"}),
    "schedules": (schedules, {"When", "active", "paused", "declared by no running code", "its task does not exist"}),
    "a schedule": (
        lambda: its(schedule()),
        {"Run now", "Pause", "Last runs", "Missed ticks", "one run for all of them"},
    ),
    "the form for one": (lambda: the("schedule", "add"), {"Add a schedule", "Expression", "Time zone", "Overlap"}),
    "the form for a pause": (lambda: the("queuestate", "pause"), {"Pause a queue", "Reason", "Until"}),
}


def read(client: Client, address: str, language: str) -> set[str]:
    """Return the pieces of text that people read on a page, labels without their colons."""
    with translation.override(language):
        response = client.get(address)
    assert response.status_code == 200
    found = READ.findall(UNREAD.sub("", response.content.decode()))
    texts = {" ".join(html.unescape(text or attribute).split()) for text, attribute in found}
    return {text.removesuffix(":").rstrip() for text in texts}


def said(text: str, language: str) -> set[str]:
    """Return what the catalogues say for a text; none if they have nothing else to say.

    The labels of the admin are names that it begins with a capital.
    """
    small = text[:1].lower() + text[1:]
    with translation.override(language):
        whole, name = (" ".join(translation.gettext(each).split()) for each in (text, small))
    return {whole, name if small == text else name[:1].upper() + name[1:]} - {text}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_left_in_english(admin_client: Client, language: str, name: str) -> None:
    """What can be said in the language is, and is said as the catalogue has it."""
    page, some = PAGES[name]
    address = page()
    english, shown = read(admin_client, address, "en"), read(admin_client, address, language)
    assert some <= english
    texts = {text: said(text, language) for text in english}
    assert any(texts[text] for text in some)
    assert not [text for text in some if texts[text] and not texts[text] & shown]
    left = {text for text in english & shown if texts[text]}
    assert left <= set().union(*texts.values())
