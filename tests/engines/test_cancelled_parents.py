"""A durable task that is cancelled while it stores its children, on a database whose rows are locked one by one."""

from threading import Thread
from typing import Any

from django.db import connections
from pytest_django import Settings

from django_vtqueue import call, control
from django_vtqueue.models import DeadLetter, Job
from django_vtqueue.tasks.compat import task_enqueued
from tests.conformance.conftest import configure
from tests.pending import run_pending
from tests.project import durable


def test_cancelled_while_it_stores_its_children(postgresql_database: str, settings: Settings) -> None:
    """The request does not see the children, which are not committed yet: then the parent stores none."""
    alias = postgresql_database
    configure(settings, alias)
    parent = durable.changed_code.enqueue()

    def cancel() -> None:
        assert control.cancel(parent.id, alias)
        connections[alias].close()

    def receiver(task_result: Any, **_: Any) -> None:
        rival = Thread(target=cancel)
        rival.start()
        rival.join(10)
        assert not rival.is_alive()

    durable.CODE["run"] = lambda context: context.gather("all", [call(durable.child, "a")])
    task_enqueued.connect(receiver)
    try:
        run_pending()
    finally:
        task_enqueued.disconnect(receiver)
    assert not Job.objects.using(alias).exists()
    assert [letter.exception_class for letter in DeadLetter.objects.using(alias).all()] == [
        "django_vtqueue.exceptions.Cancelled"
    ]
