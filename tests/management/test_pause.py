"""``manage.py vtqueue pause`` and ``resume``, as people call them."""

import io
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import translation
from pytest_django import Settings

from django_vtqueue import Queue
from django_vtqueue.models import QueueState

from ..fake_clock import FakeClock, at

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def anna(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Iterator[None]:
    """Be anna, and say everything in English, and the times in UTC."""
    monkeypatch.setenv("LOGNAME", "anna")
    settings.TIME_ZONE = "UTC"
    with translation.override("en"):
        yield


def vtqueue(*arguments: str) -> list[str]:
    """Run a subcommand; return the lines that it wrote."""
    out = io.StringIO()
    call_command("vtqueue", *arguments, stdout=out)
    return out.getvalue().splitlines()


def refusal(*arguments: str) -> str:
    """Run a subcommand that must fail; return why."""
    with pytest.raises(CommandError) as raised:
        vtqueue(*arguments)
    return str(raised.value)


def served(settings: Settings, *names: str, **options: Any) -> None:
    settings.TASKS = {
        "default": {
            "BACKEND": "django_vtqueue.backend.VTQueueBackend",
            "QUEUES": list(names),
            "OPTIONS": options,
        }
    }


@pytest.mark.parametrize("name", ["two words", "it's", "$(date)"])
def test_the_line_that_ends_a_pause_can_be_pasted(name: str, settings: Settings) -> None:
    """A shell reads the name of the queue and of the backend as one word each."""
    settings.TASKS = {"my jobs": {"BACKEND": "django_vtqueue.backend.VTQueueBackend", "QUEUES": []}}
    line = vtqueue("pause", "--backend", "my jobs", name)[1].partition(": manage.py vtqueue ")[2]
    assert shlex.split(line) == ["resume", "--backend", "my jobs", name]
    assert "is resumed" in vtqueue(*shlex.split(line))[0]


def test_pause_and_resume(time: FakeClock) -> None:
    """Both say what they did, and pausing how to end it."""
    Queue("emails").publish("x")
    assert vtqueue("pause", "emails", "--reason", "SMTP down", "--until", "15:00") == [
        "Queue 'emails' is paused by anna: SMTP down, until 15:00:00.",
        "Running jobs go on to their end. To end the pause: manage.py vtqueue resume emails",
    ]
    assert Queue("emails").claim() is None
    assert vtqueue("resume", "emails") == ["Queue 'emails' is resumed; the workers were woken."]
    assert Queue("emails").claim()


def test_a_pause_without_a_reason_or_an_end(time: FakeClock) -> None:
    """It has the name of the user who has logged in."""
    Queue("emails").publish("x")
    assert vtqueue("pause", "emails")[0] == "Queue 'emails' is paused by anna."


@pytest.mark.parametrize(
    ("until", "seconds"),
    [
        ("45s", 45),
        ("30m", 1800),
        ("2h", 7200),
        ("1d", 86_400),
        ("08:00:01", 1),  # it is 08:00
        ("08:00", 86_400),
        ("2027-01-16 08:00", 86_400),
        ("2027-01-16T08:00:00+01:00", 82_800),
    ],
)
def test_the_end_of_a_pause(time: FakeClock, until: str, seconds: float) -> None:
    """A duration, the next such time of day, or a moment, in TIME_ZONE unless it says where."""
    vtqueue("pause", "emails", "--until", until)
    assert QueueState.objects.filter(paused_until=at(seconds)).exists()


@pytest.mark.parametrize("until", ["soon", "25:00", "2027-13-01 08:00", "30", "-5m", ""])
def test_what_is_no_end(until: str) -> None:
    """It is told what was found, and what is possible."""
    told = f"--until is {until!r}, but must be as 30m, 2h or 1d, as 15:00, or as 2030-12-31 15:00."
    assert refusal("pause", "emails", f"--until={until}") == told


def test_an_end_in_the_past(time: FakeClock) -> None:
    """As a reason that is too long, it is refused in words."""
    told = (
        "until is 2026-01-01 00:00:00, which is over: it is 08:00:00. Give a later moment, a duration above 0, or none"
    )
    assert refusal("pause", "emails", "--until", "2026-01-01 00:00").startswith(told)
    assert "until is 08:00:00, which is over" in refusal("pause", "emails", "--until", "0m")
    assert "at most 255 are kept" in refusal("pause", "emails", "--reason", "x" * 256)
    assert "1 to 255 characters" in refusal("pause", "")


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_mistyped_name(settings: Settings, verb: str) -> None:
    """Where the settings name the queues, another is refused, unless it has jobs, with those that there are."""
    served(settings, "default", "emails", "sensors", queue_options={"sensors": {"max_attempts": 2}})
    Queue("raw").publish("x")
    assert refusal(verb, "emials") == "There is no queue 'emials'. There are: default, emails, raw, sensors."
    assert not QueueState.objects.exists()
    for name in ("default", "sensors", "raw"):
        vtqueue(verb, name)


def test_a_name_of_which_nothing_is_known() -> None:
    """Where any name is allowed it is paused, and what is there is told; once paused it is known."""
    Queue("emails").publish("x")
    hint = "No job of 'emials' is there. Queues with unfinished jobs: emails."
    assert vtqueue("resume", "emials") == ["Queue 'emials' was not paused. Paused queues: none.", hint]
    assert vtqueue("pause", "emials")[2:] == [hint]
    assert vtqueue("pause", "emials")[2:] == []
    assert vtqueue("resume", "emails") == ["Queue 'emails' was not paused. Paused queues: emials."]
    assert vtqueue("resume", "emials") == ["Queue 'emials' is resumed; the workers were woken."]
