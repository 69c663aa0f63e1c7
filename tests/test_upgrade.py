"""A queue outlives its Django: rows made by an older one are worked by the present one. And it can be left."""

import io
import json
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from pytest_django import Settings

from django_vtqueue import Queue, requeue
from django_vtqueue.models import DeadLetter, Job, WorkerProcess
from django_vtqueue.tasks.compat import TaskResultStatus, task_backends
from tests.pending import run_pending

from .project.long_lived import fail, fail_once, succeed
from .projects import ROOT, Project, run

DUMPS = sorted((ROOT / "tests/upgrade").glob("*.sql"))
MANAGE = str(ROOT / "tests/manage.py")

# -- the step to a newer Django -------------------------------------------------------------------------------------

# What the present Django says of each task of the dump, by the name that it was called with.
TELL = """
import json, django, sys
django.setup()
from django_vtqueue.tasks.compat import task_backends
from django_vtqueue.models import DeadLetter, Job

told = {}
for row in [*Job.objects.exclude(task_path=""), *DeadLetter.objects.all()]:
    result = task_backends["default"].get_result(str(row.pk))
    told[[*result.args, *result.kwargs.values()][0]] = {
        "status": result.status,
        "value": result.return_value if result.status == "SUCCESSFUL" else None,
        "path": result.task.module_path,
        "attempts": result.attempts,
        "errors": [error.exception_class.__name__ for error in result.errors],
        "queue": result.task.queue_name,
        "priority": result.task.priority,
        "run_after": str(result.task.run_after),
        "finished": result.finished_at is not None,
    }
print(json.dumps(told))
"""


@pytest.mark.parametrize("dump", DUMPS, ids=lambda path: path.stem)
def test_queued_rows_survive(dump: Path, tmp_path: Path) -> None:
    """A queue that an older Django has filled is read and worked by the present one, each row from where it was."""
    file = tmp_path / "db.sqlite3"
    with closing(sqlite3.connect(file)) as database:
        database.executescript(dump.read_text())

    def python(*arguments: str) -> str:
        said = run(*arguments, folder=tmp_path, VTQUEUE_TEST_DB=str(file), DJANGO_SETTINGS_MODULE="tests.settings")
        assert said.startswith("exit 0\n"), said
        return said.removeprefix("exit 0\n")

    python(MANAGE, "migrate")
    before = json.loads(python("-c", TELL))
    assert {name: (told["status"], told["attempts"], told["errors"]) for name, told in before.items()} == {
        "ready": ("READY", 0, []),
        "scheduled": ("READY", 0, []),
        "failed once": ("READY", 1, ["ConnectionError"]),
        "held by a worker that was killed": ("RUNNING", 1, []),
        "finished": ("SUCCESSFUL", 1, []),
        "dead": ("FAILED", 1, ["LookupError"]),
    }
    assert (before["ready"]["queue"], before["ready"]["priority"]) == ("emails", 7)
    assert before["scheduled"]["run_after"] == "2100-01-01 12:00:00+00:00"
    assert before["finished"]["value"] == "finished"

    python(MANAGE, "vtworker", "--drain")
    python(
        "-c",
        "import django; django.setup()\nimport django_vtqueue.models as m, django_vtqueue as v\n"
        "assert len(v.requeue(m.DeadLetter.objects.all())) == 1",
    )
    python(MANAGE, "vtworker", "--drain")
    after = json.loads(python("-c", TELL))
    assert {
        name: (told["status"], told["attempts"], told["value"], told["errors"]) for name, told in after.items()
    } == {
        "ready": ("SUCCESSFUL", 1, "ready", []),
        "scheduled": ("READY", 0, None, []),
        "failed once": ("SUCCESSFUL", 2, "failed once", ["ConnectionError"]),
        "held by a worker that was killed": ("SUCCESSFUL", 2, "held by a worker that was killed", ["LeaseExpired"]),
        "finished": ("SUCCESSFUL", 1, "finished", []),
        "dead": ("FAILED", 2, None, ["LookupError", "LookupError"]),
    }
    with closing(sqlite3.connect(file)) as database:
        raw = database.execute("SELECT payload, state FROM vtqueue_job WHERE task_path = ''").fetchall()
    assert raw == [('{"name":"raw","deep":[{"ü":null}]}', "READY")]


def test_dump_is_of_the_oldest_django() -> None:
    """The dump is one of Django 5.2, and has nothing of the machine that it was made on."""
    [dump] = DUMPS
    assert dump.name == "queued_by_django_5_2.sql"
    assert not [word for word in ("/home/", "/root/", "/tmp/", "/usr/", str(ROOT)) if word in dump.read_text()]


# -- migrations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["AutoField", "BigAutoField", "SmallAutoField"])
def test_no_migration_is_missing(tmp_path: Path, field: str) -> None:
    """``makemigrations --check`` is clean in a user's project, whatever its DEFAULT_AUTO_FIELD."""
    project = Project(tmp_path, f'DEFAULT_AUTO_FIELD = "django.db.models.{field}"')
    assert project.manage("makemigrations", "--check", "--dry-run").endswith("\nNo changes detected\n")


LEAVE = """
from django.apps import apps
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connection

def tables():
    return [name for name in connection.introspection.table_names() if name.startswith("vtqueue")]

def permissions():
    return sorted(Permission.objects.filter(content_type__app_label="vtqueue").values_list("codename", flat=True))

call_command("migrate", verbosity=0)
assert len(tables()) == len(list(apps.get_app_config("vtqueue").get_models())), tables()
before = permissions()
assert {"requeue_deadletter", "discard_deadletter", "enqueue_job", "run_job", "cancel_job"} <= set(before), before
assert {"pause_queue", "stop_worker"} <= set(before), before

from shop.tasks import receipt
receipt.enqueue(1)
for again in range(2):
    call_command("migrate", "vtqueue", "zero", verbosity=0)
    assert tables() == []
    if not again:
        call_command("migrate", verbosity=0)
        assert permissions() == before
        assert receipt.enqueue(2)
"""

GONE = """
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command

call_command("migrate", verbosity=0)
call_command("remove_stale_contenttypes", include_stale_apps=True, interactive=False, verbosity=0)
call_command("check")
assert not ContentType.objects.filter(app_label="vtqueue").exists()
assert not Permission.objects.filter(content_type__app_label="vtqueue").exists()
"""


def test_migrate_to_zero(tmp_path: Path) -> None:
    """``migrate vtqueue zero`` removes every table, and there is a way back; after it the app can be taken out, and
    Django's own command removes what it had of permissions and content types."""
    project = Project(tmp_path)
    said = project.python(LEAVE)
    assert said.startswith("exit 0\n"), said

    project = Project(tmp_path, "INSTALLED_APPS = INSTALLED_APPS[:-2]\nTASKS = {}")
    said = project.python(GONE)
    assert said.startswith("exit 0\n"), said


# -- export ---------------------------------------------------------------------------------------------------------


def rows() -> dict[str, list[Any]]:
    """Return all that is stored, as it is stored."""
    with connection.cursor() as cursor:
        stored = {}
        for model in (Job, DeadLetter, WorkerProcess):
            cursor.execute(f"SELECT * FROM {model._meta.db_table} ORDER BY 1")
            stored[model.__name__] = cursor.fetchall()
        return stored


def fill() -> None:
    """Put a row of each kind into the queue."""
    succeed.enqueue("finished")
    fail_once.enqueue("failed once")
    fail.enqueue("dead")
    run_pending()
    succeed.using(priority=-7, queue_name="emails").enqueue("ready")
    succeed.using(run_after=timedelta(days=1)).enqueue("scheduled")
    Queue("raw").publish({"text": 'quotes " and ü and \\u0000', "number": 2**70}, max_attempts=0)
    Queue("held").publish([])
    Queue("held").claim()


@pytest.mark.django_db
@pytest.mark.parametrize("use_tz", [True, False])
def test_export_and_import(settings: Settings, tmp_path: Path, use_tz: bool) -> None:
    """``dumpdata vtqueue`` writes JSON with ISO times, from which ``loaddata`` makes the same rows again."""
    settings.USE_TZ = use_tz
    fill()
    before = rows()
    assert [len(before[name]) for name in ("Job", "DeadLetter")] == [6, 1]

    file = tmp_path / "queue.json"
    call_command("dumpdata", "vtqueue", output=str(file), verbosity=0)
    exported = json.loads(file.read_text())
    for item in exported:
        for name, value in item["fields"].items():
            if name.endswith("_at") and value is not None:
                assert datetime.fromisoformat(value).year >= 2025

    for model in (Job, DeadLetter, WorkerProcess):
        model.objects.all().delete()
    call_command("loaddata", str(file), verbosity=0)
    assert rows() == before

    letters = DeadLetter.objects.all()
    assert len(requeue(letters)) == 1
    results = {result.args[0]: result.status for result in run_pending(until=timedelta(days=2))}
    assert results == {
        "failed once": TaskResultStatus.SUCCESSFUL,
        "dead": TaskResultStatus.FAILED,
        "ready": TaskResultStatus.SUCCESSFUL,
        "scheduled": TaskResultStatus.SUCCESSFUL,
    }


@pytest.mark.django_db
@pytest.mark.parametrize("fold", [0, 1])
@pytest.mark.parametrize(("exported_with", "imported_with"), [(False, False), (True, False), (False, True)])
def test_export_when_the_clocks_change(
    settings: Settings, tmp_path: Path, fold: int, exported_with: bool, imported_with: bool
) -> None:
    """The hour that comes twice keeps its instants through an export, also one that crosses a change of USE_TZ."""
    settings.TIME_ZONE = "Europe/Berlin"
    settings.USE_TZ = False
    moment = datetime(2040, 10, 28, 2, 30, fold=fold)
    job_id = Queue("q").publish({}, publish_at=moment)
    before = rows()
    settings.USE_TZ = exported_with
    file = tmp_path / "queue.json"
    call_command("dumpdata", "vtqueue", output=str(file), verbosity=0)
    Job.objects.all().delete()
    settings.USE_TZ = imported_with
    call_command("loaddata", str(file), verbosity=0)
    assert rows() == before
    assert Job.objects.filter(id=job_id).exists()


@pytest.mark.django_db
def test_export_of_finished_work() -> None:
    """What was exported is readable by itself: state words, the task's path, payload and result as their JSON text."""
    result = succeed.enqueue("finished")
    run_pending()
    out = io.StringIO()
    call_command("dumpdata", "vtqueue.job", stdout=out)
    [item] = json.loads(out.getvalue())
    assert item["pk"] == result.id
    assert (item["fields"]["state"], item["fields"]["task_path"]) == ("SUCCESSFUL", "tests.project.long_lived.succeed")
    assert json.loads(item["fields"]["result"]) == "finished"
    assert task_backends["default"].get_result(item["pk"]).return_value == "finished"
