"""The tables, as Django's models.

Publishing, claims, leases and settlements are SQL in ``engines``; all else reads and writes by these models.
"""

from .jobs import (
    GIVEN_BACK,
    HAS_KEY,
    HIDDEN,
    OF_ALL_QUEUES,
    PARKED,
    RAW,
    RESERVED,
    UNFINISHED,
    WAITING,
    AbstractJob,
    DeadLetter,
    Job,
    JobOrLetter,
)
from .queues import QueueState, Rate, Schedule
from .requeues import Requeue
from .statistics import HourlyThroughput, Tallied, Throughput
from .workers import Origin, WorkerProcess

__all__ = [
    "GIVEN_BACK",
    "HAS_KEY",
    "HIDDEN",
    "OF_ALL_QUEUES",
    "PARKED",
    "RAW",
    "RESERVED",
    "UNFINISHED",
    "WAITING",
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
]
