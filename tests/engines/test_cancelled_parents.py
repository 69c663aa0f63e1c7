"""A durable task that is cancelled while it stores its children, on a database whose rows are locked one by one."""

from threading import Thread
from typing import Any

import pytest
from django.db import connections
from pytest_django import Settings

from django_vtqueue import call, control
from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.models import DeadLetter, Job
from django_vtqueue.tasks.compat import TaskResult
from tests.conformance.conftest import configure
from tests.pending import run_pending
from tests.project import durable


def test_cancelled_while_it_stores_its_children(
    postgresql_database: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request does not see the children, which are not committed yet: then the parent stores none."""
    alias = postgresql_database
    configure(settings, alias)
    parent = durable.changed_code.enqueue()

    def cancel() -> None:
        assert control.cancel(parent.id, using=alias)
        connections[alias].close()

    store = VTQueueBackend.enqueue_children

    def cancelled(*given: Any) -> list[TaskResult]:
        results = store(*given)
        rival = Thread(target=cancel)
        rival.start()
        rival.join(10)
        assert not rival.is_alive()
        return results

    durable.CODE["run"] = lambda context: context.gather("all", [call(durable.child, "a")])
    monkeypatch.setattr(VTQueueBackend, "enqueue_children", cancelled)
    run_pending()
    assert not Job.objects.using(alias).exists()
    assert [letter.exception_class for letter in DeadLetter.objects.using(alias).all()] == [
        "django_vtqueue.exceptions.Cancelled"
    ]
