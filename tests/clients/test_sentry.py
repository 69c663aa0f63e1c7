"""sentry-sdk: an event has what its own job has said, and nothing of another job of its thread."""

import json
from pathlib import Path
from typing import Any

import pytest

from .projects import Client

SETTINGS = """
import json
import sentry_sdk
from sentry_sdk.transport import Transport

class ToFile(Transport):
    def capture_envelope(self, envelope):
        if event := envelope.get_event():
            with open("events", "a") as file:
                print(json.dumps(event, default=str), file=file)

sentry_sdk.init("https://public@sentry.invalid/1", transport=ToFile)
"""
TASKS = """
import sentry_sdk
from django_vtqueue import task

def describe(name):
    sentry_sdk.set_tag(name, "said")
    sentry_sdk.set_user({"username": name})
    sentry_sdk.add_breadcrumb(message=name)
    sentry_sdk.capture_message(name)

@task
def synchronous(name):
    describe(name)

@task
async def asynchronous(name):
    describe(name)
"""


@pytest.mark.parametrize("kind", ["synchronous", "asynchronous"])
def test_a_job_has_only_its_own_scope(tmp_path: Path, kind: str) -> None:
    """Tags, user and breadcrumbs of a job are on its own events, and on those of no later job of its thread."""
    project = Client(tmp_path, SETTINGS)
    project.write("shop/tasks.py", TASKS)
    project.manage("migrate", "-v0")
    project.python(f"from shop.tasks import *; [{kind}.enqueue(name) for name in ('ada', 'bob', 'cleo')]")
    said = project.manage("vtworker", "--drain", "--threads", "1")
    assert said.startswith("exit 0"), said
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert [scope_of(event) for event in events] == [
        ({name}, {"username": name}, [name]) for name in ("ada", "bob", "cleo")
    ]


def scope_of(event: dict[str, Any]) -> tuple[set[str], dict[str, str], list[str]]:
    """Return the names of the tags, the user, and the breadcrumbs of the jobs of this test."""
    crumbs = [
        crumb["message"] for crumb in event["breadcrumbs"]["values"] if crumb["message"] in ("ada", "bob", "cleo")
    ]
    return set(event.get("tags", {})), event.get("user", {}), crumbs
