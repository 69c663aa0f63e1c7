"""Any course of events, against a model in plain Python: after each step both say the same of every job."""

import time as wall
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as examples
from hypothesis.stateful import run_state_machine_as_test
from pytest_django import Settings

from tests.fake_clock import FakeClock

from ..patterns.conftest import BootClock
from .holders import HoldersAgainstModel
from .inside import have_boot_clock, have_one_time
from .machine import QueueAgainstModel
from .model import LETTERS_KEPT
from .scale import MINUTES, of_engine
from .words import SECOND

STEADY = examples(max_examples=50, stateful_step_count=60, suppress_health_check=list(HealthCheck))
FEWER = examples(STEADY, max_examples=10, stateful_step_count=25)
AT_RANDOM = examples(
    STEADY, max_examples=150, stateful_step_count=200, derandomize=False, database=None, print_blob=True
)


@pytest.fixture
def one_time(monkeypatch: pytest.MonkeyPatch, time: FakeClock) -> FakeClock:
    """Have all clocks show the same: time passes, and looks neither like a standstill nor like a step."""
    have_one_time(monkeypatch, time)
    return time


def configure(settings: Settings, alias: str, **options: Any) -> None:
    """Set TASKS to one backend on a database."""
    options["database"] = alias
    backend = {"BACKEND": "django_vtqueue.backend.VTQueueBackend", "QUEUES": [], "OPTIONS": options}
    settings.TASKS = {"default": backend}


def test_the_queue_is_the_diagram(alias: str, one_time: FakeClock, settings: Settings) -> None:
    """Publishers, workers, queues and people in any order, with crashes, stale holders and time passing: no job is
    lost, none has two holders, none leaves the diagram, histories are complete and no claim number comes twice. What
    is released or expires keeps its place in the line; a retry goes by its new time, whatever is restarted meanwhile.

    ``VTQUEUE_FAULT_MINUTES``: other courses of events than those of every run, for so long.
    """
    kept = {name: {"dead_letter_ttl": ttl / SECOND} for name, ttl in LETTERS_KEPT.items()}
    configure(settings, alias, queue_options=kept)
    deadline = wall.monotonic() + 60 * MINUTES
    run_state_machine_as_test(lambda: QueueAgainstModel(alias, one_time), settings=of_engine(alias, STEADY))
    while wall.monotonic() < deadline:
        run_state_machine_as_test(lambda: QueueAgainstModel(alias, one_time), settings=AT_RANDOM)


def test_leases_and_slots_have_one_holder(
    alias: str, monkeypatch: pytest.MonkeyPatch, time: FakeClock, settings: Settings
) -> None:
    """Instances in any order, with crashes, ended leases and wall clocks that step: no row has two holders at
    one moment, its tokens grow, and it is taken as soon as its holder is certain not to believe in it.
    """
    deadline, boot = wall.monotonic() + 60 * MINUTES, BootClock()
    have_boot_clock(monkeypatch, boot)
    with TemporaryDirectory(prefix="vtq-") as doorbells:
        configure(settings, alias, doorbells=doorbells)
        run_state_machine_as_test(lambda: HoldersAgainstModel(alias, boot, time), settings=of_engine(alias, FEWER))
        while wall.monotonic() < deadline:
            run_state_machine_as_test(lambda: HoldersAgainstModel(alias, boot, time), settings=AT_RANDOM)
