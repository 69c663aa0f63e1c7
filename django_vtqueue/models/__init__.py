"""The tables, as Django's models.

Publishing, claims, leases and settlements are SQL in ``engines``; all else reads and writes by these models.
"""

from .jobs import RESERVED, AbstractJob, DeadLetter, Job
from .queues import QueueState, Rate, Schedule
from .requeues import Requeue
from .statistics import HourlyThroughput, Throughput
from .workers import Origin, WorkerProcess

__all__ = [
    "RESERVED",
    "AbstractJob",
    "DeadLetter",
    "HourlyThroughput",
    "Job",
    "Origin",
    "QueueState",
    "Rate",
    "Requeue",
    "Schedule",
    "Throughput",
    "WorkerProcess",
]
