"""Tasks with limits, which write down when they run: what runs at once is counted from that."""

import os
import time
from pathlib import Path

from django_vtqueue import ClaimedJob, task

from .tasks import wait_for_file


def spend(journal: str, key: str, seconds: float | None, text: str = "") -> None:
    """Write a line at the start and one at the end, each in one piece; None: until there is a file ``.go``."""
    write(journal, f"start {key} {text}")
    if seconds is None:
        wait_for_file(Path(f"{journal}.go"))
    else:
        time.sleep(seconds)
    write(journal, f"end {key} {text}")


def write(journal: str, what: str) -> None:
    with Path(journal).open("a") as file:
        file.write(f"{time.monotonic():.6f} {os.getpid()} {what}\n")


@task
def in_queue(journal: str, seconds: float) -> None:
    """Limited by its queue."""
    spend(journal, "queue", seconds)


@task(concurrency=2)
def two(journal: str, seconds: float | None) -> None:
    spend(journal, "two", seconds)


@task(concurrency=3, concurrency_key="tenant:{tenant}")
def of_tenant(journal: str, seconds: float, tenant: int) -> None:
    spend(journal, f"tenant:{tenant}", seconds)


@task(order_key="customer:{customer}", max_attempts=3, backoff=0.05)
def in_order(journal: str, seconds: float | None, customer: int, number: int, fail: bool = False) -> None:
    """``fail``: the first attempt of each third one does."""
    spend(journal, f"customer:{customer}", seconds, str(number))
    marker = Path(f"{journal}.{customer}.{number}")
    if fail and number % 3 == 0 and not marker.exists():
        marker.touch()
        raise ValueError("the first attempt")


@task(rate="20/s", burst=3)
def at_rate(journal: str) -> None:
    spend(journal, "rate", 0)


@task(rate=os.environ.get("VTQUEUE_TEST_RATE", "1000/s"), rate_key="host:{host}")
def at_rate_of_host(journal: str, host: int) -> None:
    """Its rate is another one in a worker that is told so."""
    spend(journal, f"host:{host}", 0)


def handle(job: ClaimedJob) -> None:
    """Handle a payload: journal, key, seconds."""
    spend(*job.payload)
