"""The settings: what holds for a queue, the defaults, and what a misspelled option is answered with."""

from datetime import timedelta

import pytest
from django.conf import settings as django_settings
from pytest_django import Settings

from django_vtqueue import conf


def test_policy_of_a_queue() -> None:
    """queue_options before OPTIONS before the defaults."""
    options = conf.parse(
        {
            "QUEUES": [],
            "OPTIONS": {
                "max_attempts": 3,
                "backoff": [1, timedelta(seconds=5)],
                "queue_options": {"mails": {"max_attempts": 7, "visibility_timeout": timedelta(minutes=5)}},
            },
        }
    )
    assert options.policy("mails") == conf.Policy(max_attempts=7, backoff=(1, 5), visibility_timeout=300)
    assert options.policy("any") == conf.Policy(max_attempts=3, backoff=(1, 5))
    assert options.policy("any") is options.policy("any")


def test_the_defaults_are_those_of_the_documentation() -> None:
    """Changing one is a change for every user."""
    options = conf.parse({})
    assert (options.visibility_timeout, options.heartbeat, options.max_attempts) == (60, True, 10)
    assert (options.backoff, options.backoff_max) == (2, 3600)
    assert (options.result_ttl, options.dead_letter_ttl) == (86400, None)
    assert (options.max_payload_bytes, options.threads, options.database) == (1_000_000, 4, None)
    assert options.queues == {"default"}


def test_settings_are_read_anew_after_they_changed(settings: Settings) -> None:
    """A test with settings of its own sees them, and leaves nothing behind."""
    before = conf.configured()
    assert conf.configured() is before
    settings.TASKS = {
        "a": {"BACKEND": "django_vtqueue.backend.VTQueueBackend", "OPTIONS": {"threads": 9}},
        "b": {"BACKEND": f"{task_framework()}.backends.dummy.DummyBackend"},
    }
    assert {alias: options.threads for alias, options in conf.configured().items()} == {"a": 9}
    settings.TASKS = {}
    assert conf.configured() == {}


def task_framework() -> str:
    return "django_tasks" if "django_tasks" in django_settings.INSTALLED_APPS else "django.tasks"


@pytest.mark.parametrize(("word", "meant"), [("max_atempts", "max_attempts"), ("visibility", "visibility_timeout")])
def test_nearest(word: str, meant: str) -> None:
    """A misspelled option is answered with the one that was probably meant."""
    assert conf.nearest(word, list(conf.POLICY)) == f"did you mean {meant!r}?"


def test_nearest_of_nothing_like_it() -> None:
    """Otherwise with all that are known."""
    assert conf.nearest("zzz", ["b", "a"]) == "known are a, b."
