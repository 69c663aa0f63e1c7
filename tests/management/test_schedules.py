"""``vtqueue schedules``: lists, pauses, resumes and runs recurring jobs."""

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_vtqueue.core import clock
from django_vtqueue.core.clock import SECOND, to_instant
from django_vtqueue.models import Job, Schedule
from tests.pending import run_pending

from ..project.tasks import add

pytestmark = pytest.mark.django_db


def said(*arguments: str) -> str:
    output = StringIO()
    call_command("vtqueue", "schedules", *arguments, stdout=output)
    return output.getvalue()


def schedule(**values: Any) -> Schedule:
    """Store a schedule of the admin."""
    row = {"task_path": add.module_path, "expression": "0 3 * * *", "time_zone": "Europe/Paris", "declared": False}
    row |= {"payload": {"args": [1, 2], "kwargs": {}}, "next_at": clock.now() + 7200 * SECOND}
    return Schedule.objects.create(**{"name": "nightly", **row, **values})


def test_the_list() -> None:
    """When each runs next, and what became of the last job; in JSON with the last runs."""
    assert "There are no schedules: a worker stores those of @recurring" in said()
    schedule()
    schedule(name="often", expression="every 300", time_zone="")
    assert said("run", "nightly").startswith("Job ")
    run_pending()
    [_, nightly, often] = said().splitlines()
    assert "nightly   0 3 * * * Europe/Paris  active  in " in nightly
    assert "done" in nightly
    assert "often     every 300 s  " in often
    [listed, _] = json.loads(said("--json"))
    assert (listed["name"], listed["words"], listed["state"]) == ("nightly", "At 03:00 every day", "active")
    assert listed["next"] > listed["last"]
    [run] = listed["runs"]
    assert (run["state"], run["seconds"] >= 0, run["id"]) == ("done", True, Job.objects.get().pk.hex)


def test_what_the_code_declares_no_more() -> None:
    """Without a worker, as between two drains, this process's own code says what has vanished."""
    schedule(declared=True, next_at=clock.now())
    [_, nightly] = said().splitlines()
    assert nightly.split()[-1] == "vanished"
    assert json.loads(said("--json"))[0]["state"] == "vanished"


def test_a_schedule_of_the_admin_whose_task_is_gone() -> None:
    """It is not run any more, so it has vanished, too; that shows when no worker has run it for a minute."""
    row = schedule(task_path="tests.project.tasks.gone", next_at=clock.now())
    assert json.loads(said("--json"))[0]["state"] == "active"
    Schedule.objects.filter(pk=row.pk).update(next_at=clock.now() - 61 * SECOND)
    [_, nightly] = said().splitlines()
    assert nightly.split()[-1] == "vanished"
    assert json.loads(said("--json"))[0]["state"] == "vanished"


def test_pause_and_resume() -> None:
    """By name, each once; what to type next is said."""
    paused = clock.now()
    schedule(next_at=paused)
    assert "is paused. To go on: manage.py vtqueue schedules resume nightly" in said("pause", "nightly")
    assert "is paused already" in said("pause", "nightly")
    assert "  paused" in said()
    assert "goes on; next: in " in said("resume", "nightly")
    assert to_instant(Schedule.objects.get().next_at or 0) > paused
    assert "was not paused" in said("resume", "nightly")
    schedule(name="each night", next_at=clock.now())
    assert "schedules resume 'each night'" in said("pause", "each night")


def test_a_run_that_is_not_needed() -> None:
    """Without overlap the job that is not finished is named."""
    schedule(overlap=False)
    said("run", "nightly")
    assert f"Nothing was enqueued: job {Job.objects.get().pk} of it is not finished." in said("run", "nightly")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("run", "weekly"), "There is no schedule 'weekly'. There are: nightly."),
        (("pause",), "Name the schedule: schedules pause NAME. There are: nightly."),
        (("list", "nightly"), "schedules list takes no name"),
        (("run", "nightly"), "is not a task"),
        (("resume", "nightly"), "There is no time zone 'Mars' on this machine"),
    ],
)
def test_errors(arguments: tuple[str, ...], problem: str) -> None:
    """What was typed, and what there is."""
    schedule(task_path="tests.project.tasks.gone", time_zone="Mars", paused_at=clock.now())
    with pytest.raises(CommandError, match=problem):
        said(*arguments)
