"""What a worker and its child processes say to each other: JSON, over a socket pair.

To a child: ``execute`` a job; ``tell`` the world its outcome, which is stored; ``forget`` an outcome, which was lost;
``bury`` a job that died elsewhere; ``stop``. From a child: ``ready``; ``finished``, with what shall be stored
or, for a transactional task, is.
"""

import json
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

from ..failures import Failure
from ..jobs import HeldJob, Settlement


def send(connection: Connection, verb: str, *values: Any) -> None:
    """Send one message; raise OSError if the other side is gone."""
    connection.send_bytes(json.dumps([verb, *values]).encode())


def receive(connection: Connection) -> tuple[str, list[Any]]:
    """Return the next message; raise EOFError or OSError if the other side is gone."""
    verb, *values = json.loads(connection.recv_bytes())
    return verb, values


def packed_job(job: HeldJob) -> dict[str, Any]:
    """Return a job as JSON's own types."""
    return asdict(job)


def packed(settlement: Settlement) -> dict[str, Any]:
    """Return a settlement as JSON's own types."""
    return asdict(settlement)


def unpacked(values: dict[str, Any]) -> Settlement:
    """Return what ``packed`` was given."""
    job, failure = HeldJob(**values["job"]), values["failure"]
    return Settlement(**{**values, "job": job, "failure": Failure(**failure) if failure else None})
