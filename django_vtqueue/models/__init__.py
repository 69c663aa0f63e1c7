"""The tables, as Django's models.

Publishing, claims, leases and settlements are SQL in ``engines``; all else reads and writes by these models.
"""

from .jobs import (
    ANY_NAME,
    GIVEN_BACK,
    HAS_KEY,
    HIDDEN,
    IN_ORDER,
    PARKED,
    RAW,
    RESERVED,
    UNFINISHED,
    AbstractJob,
    DeadLetter,
    Job,
    JobOrLetter,
    waiting_jobs,
)
from .queues import QueueState, Rate, Schedule
from .requeues import Requeue
from .statistics import HourlyThroughput, Tallied, Throughput
from .workers import Origin, WorkerProcess

__all__ = [
    "ANY_NAME",
    "GIVEN_BACK",
    "HAS_KEY",
    "HIDDEN",
    "IN_ORDER",
    "PARKED",
    "RAW",
    "RESERVED",
    "UNFINISHED",
    "AbstractJob",
    "DeadLetter",
    "HourlyThroughput",
    "Job",
    "JobOrLetter",
    "Origin",
    "QueueState",
    "Rate",
    "Requeue",
    "Schedule",
    "Tallied",
    "Throughput",
    "WorkerProcess",
    "waiting_jobs",
]
