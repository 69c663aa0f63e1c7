"""docs/guides/deploying-code.md: jobs that old code has enqueued, and workers with new code run."""

import re
from pathlib import Path

import pytest

from .projects import Project

SETTINGS = """
TASKS["default"]["QUEUES"] = ["default", "emails"]
DATABASES["default"]["OPTIONS"] = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
}
"""

STEPS = """
from django_vtqueue import task

@task(takes_context=True)
def deliver(context, order_id):
    context.step("charge", print, f"charge {order_id}")
    context.wait_for("shipped")
    context.step("mail", print, f"mail {order_id}")
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path, SETTINGS)
    migrated = project.manage("migrate", "-v0")
    assert migrated.startswith("exit 0\n"), migrated
    return project


def enqueue(project: Project, call: str) -> str:
    """Enqueue a task of the project by an expression; return the job's id."""
    said = project.python(f"from shop import tasks\nprint({call}.id)")
    assert said.startswith("exit 0\n"), said
    return said.split()[-1]


def drain(project: Project, *arguments: str) -> str:
    """Return the log of a worker that works the queue off."""
    log = project.manage("vtworker", "--drain", *arguments)
    assert log.startswith("exit 0\n"), log
    return log


def test_an_alias_runs_jobs_of_the_old_path(project: Project) -> None:
    """A task has moved: jobs that wait are run under their old path, new ones have the new path."""
    enqueue(project, "tasks.receipt.enqueue(7)")
    moved = (project.folder / "shop/tasks.py").read_text().replace("receipt", "invoice")
    project.write("shop/mail.py", moved)
    project.write("shop/tasks.py", "from .mail import invoice\n\nreceipt = invoice\n")
    enqueue(project, "tasks.receipt.enqueue(8)")
    log = drain(project)
    assert re.search(r"^ok    shop\.tasks\.receipt …", log, re.MULTILINE), log
    assert re.search(r"^ok    shop\.mail\.invoice …", log, re.MULTILINE), log


def test_without_an_alias(project: Project) -> None:
    """The job waits for a worker that knows its task."""
    enqueue(project, "tasks.receipt.enqueue(7)")
    project.write("shop/tasks.py", "")
    assert re.search(r"^retry shop\.tasks\.receipt .* UnknownTask: .* next in 30\.0s$", drain(project), re.MULTILINE)


def test_a_new_parameter(project: Project) -> None:
    """With a default jobs that wait are run; without one they wait for other code."""
    enqueue(project, "tasks.receipt.enqueue(7)")
    code = (project.folder / "shop/tasks.py").read_text()
    project.write("shop/tasks.py", code.replace("(order)", "(order, language)"))
    assert re.search(r"^retry shop\.tasks\.receipt .* TypeError: .* next in 30\.0s$", drain(project), re.MULTILINE)
    project.write("shop/tasks.py", code.replace("(order)", "(order, language='en')"))
    enqueue(project, "tasks.receipt.enqueue(8, language='de')")
    assert re.search(r"^ok    shop\.tasks\.receipt …", drain(project), re.MULTILINE)
    project.write("shop/tasks.py", code)
    enqueue(project, "tasks.receipt.enqueue(9)")
    assert re.search(r"^ok    shop\.tasks\.receipt …", drain(project), re.MULTILINE)


def test_a_step_before_stored_ones(project: Project) -> None:
    """The job is a dead letter that goes on with the old code; an argument with a default changes new jobs only."""
    project.write("shop/tasks.py", STEPS)
    first = enqueue(project, "tasks.deliver.enqueue(7)")
    second = enqueue(project, "tasks.deliver.enqueue(8)")
    assert drain(project).count("charge") == 2
    check = '    context.step("check", print, f"check {order_id}")\n'
    begin = '    context.step("charge"'
    project.write("shop/tasks.py", STEPS.replace(begin, check + begin))
    project.python(f"from django_vtqueue import send_event\nsend_event('{first}', 'shipped', True)")
    assert re.search(r"^dead  shop\.tasks\.deliver .*DurableMismatch", drain(project), re.MULTILINE)
    project.write("shop/tasks.py", STEPS)
    project.manage("vtqueue", "requeue", first)
    log = drain(project)
    assert "mail 7" in log
    assert "charge" not in log

    chosen = STEPS.replace("order_id):", "order_id, checked=False):").replace(
        begin, f"    if checked:\n    {check}{begin}"
    )
    project.write("shop/tasks.py", chosen)
    third = enqueue(project, "tasks.deliver.enqueue(9, checked=True)")
    project.python(
        f"from django_vtqueue import send_event\nfor each in ('{second}', '{third}'): send_event(each, 'shipped', True)"
    )
    log = drain(project)
    assert {line for line in log.splitlines() if line.endswith((" 8", " 9"))} == {
        "mail 8",
        "check 9",
        "charge 9",
        "mail 9",
    }


def test_queues(project: Project) -> None:
    """A job stays in its queue when its task gets another one; in a queue without an entry it stays, and is told."""
    enqueue(project, "tasks.receipt.using(queue_name='emails').enqueue(7)")
    settings = (project.folder / "settings.py").read_text()
    project.write("settings.py", settings.replace('["default", "emails"]', '["default"]'))
    assert " 0 attempts" in drain(project)
    assert re.search(r"^emails +1 ", project.manage("vtqueue", "status"), re.MULTILINE)
    project.write("settings.py", settings)
    assert " 0 attempts" in drain(project, "--queues", "default")
    assert " 1 attempt" in drain(project, "--queues", "emails")
