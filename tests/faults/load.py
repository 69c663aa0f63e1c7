"""Publishes a mix of jobs: ``python -m tests.faults.load SECONDS FOLDER`` prints kind, id and due time of each.

It waits while there are too many unfinished ones: what is tested is not how much the machine can do.
"""

import random
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import django

MOST_UNFINISHED = 300
PAUSE = 0.1  # seconds
RAW = "raw"  # the queue of the payloads
COUNTER = "counter"  # what the transactional tasks increment


def burst(folder: str) -> Iterator[tuple[str, str, int]]:
    """Publish some jobs of each kind; yield the kind, the id, and when it is due (microseconds)."""
    from django.utils import timezone

    from django_vtqueue import Queue, enqueue_many
    from django_vtqueue.core import clock
    from tests.project import storms, transactional

    def enqueued(kind: str, task: Any, count: int) -> Iterator[tuple[str, str, int]]:
        for result in enqueue_many(task, [((folder,), {})] * count):
            yield kind, result.id, 0

    yield from enqueued("short", storms.short, 6)
    yield from enqueued("flaky", storms.flaky, 1)
    yield from enqueued("failing", storms.failing, 1)
    yield "transactional", transactional.count.enqueue(COUNTER).id, 0
    if random.random() < 0.2:
        yield "long", storms.long.enqueue(folder).id, 0
    due = timezone.now() + timedelta(seconds=random.uniform(0, 3))
    yield "scheduled", storms.short.using(run_after=due).enqueue(folder).id, clock.to_instant(due)
    for job_id in Queue(RAW).publish_many([{"seconds": random.uniform(0, 0.02)}] * 2):
        yield "raw", str(job_id), 0


def publish(seconds: float, folder: str) -> None:
    """Publish for a while."""
    from django_vtqueue.models import Job

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if Job.objects.filter(finished_at=None).count() < MOST_UNFINISHED:
            for kind, job_id, due in burst(folder):
                print(kind, job_id.replace("-", ""), due)
        time.sleep(PAUSE)


if __name__ == "__main__":
    django.setup()
    publish(float(sys.argv[1]), sys.argv[2])
