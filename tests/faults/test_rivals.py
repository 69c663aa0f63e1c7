"""Processes that publish the same unique keys at the same instant."""

from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest

from ..processes.database import Database
from ..processes.running import Start
from ..waiting import wait_until
from .scale import scaled

ROUNDS = scaled(4, 100)
RIVALS, KEYS = 8, scaled(300, 1000)


@pytest.mark.timeout(scaled(300, 1800))
def test_eight_processes_publish_the_same_keys(database: Database, start: Start, tmp_path: Path) -> None:
    """At the same instant, each time: one job a key, and each process is given its id.

    One by one, in bulk, inside transactions, and replacing. ``VTQUEUE_FAULT_MINUTES``: a hundred rounds instead of 4.
    """
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    arguments = (str(ROUNDS), str(KEYS), str(meeting), str(RIVALS))
    rivals = [start("-m", "tests.faults.rival", *arguments) for _ in range(RIVALS)]
    wait_until(lambda: all(rival.ended() for rival in rivals), timeout=scaled(250, 1200))
    assert [rival.wait() for rival in rivals] == [0] * RIVALS, [rival.log for rival in rivals]
    rows = database.rows("SELECT unique_key, id FROM vtqueue_job")
    assert set(Counter(row["unique_key"] for row in rows).values()) == {1}
    assert len(rows) == ROUNDS * KEYS
    digests = []
    for number in range(ROUNDS):
        stored = sorted((key, job_id) for key, job_id in rows if key.startswith(f"{number}:"))
        digests.append(sha256(repr(stored).encode()).hexdigest())
    assert [rival.log.split() for rival in rivals] == [digests] * RIVALS
