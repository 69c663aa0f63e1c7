"""Any course of events, against a model in plain Python: after each step both say the same of every job."""

import os
import time as wall

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.fake_clock import FakeClock

from .machine import QueueAgainstModel

MINUTES = float(os.environ.get("VTQUEUE_FAULT_MINUTES", 0))
STEADY = settings(max_examples=150, stateful_step_count=60, suppress_health_check=list(HealthCheck))
AT_RANDOM = settings(
    STEADY, max_examples=150, stateful_step_count=200, derandomize=False, database=None, print_blob=True
)


def test_the_queue_is_the_diagram(sqlite_file: str, time: FakeClock) -> None:
    """Publishers, workers, queues and people in any order, with crashes, stale holders and time passing: no job is
    lost, none has two holders, none leaves the diagram, histories are complete and no claim number comes twice.

    ``VTQUEUE_FAULT_MINUTES``: other courses of events than those of every run, for so long.
    """
    deadline = wall.monotonic() + 60 * MINUTES
    run_state_machine_as_test(lambda: QueueAgainstModel(sqlite_file, time), settings=STEADY)
    while wall.monotonic() < deadline:
        run_state_machine_as_test(lambda: QueueAgainstModel(sqlite_file, time), settings=AT_RANDOM)
