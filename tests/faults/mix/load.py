"""Publishes a mix of jobs: ``python -m tests.faults.mix.load SEED SECONDS [KIND ...]`` prints what it relies on.

It waits while there are too many unfinished ones: what is tested is not how much the machine can do.
"""

import json
import random
import sys
import time
from datetime import timedelta
from itertools import cycle
from typing import Any

import django

from .. import words

MOST_UNFINISHED = 200
MOST_RAW = 4  # payloads in a queue, of up to 5 s each, for two consumers
MANY_LONG, LONG = 12, 6.0  # jobs at the begin that each take so many seconds, twice as long as their lease
MOST_LIMITED = 60  # jobs at once into a queue that has no room for so many
PAUSE = 0.7  # seconds between two bursts
ORDERS = ("none", "key", "value", "reversed", "reversed key", "random")  # of a loop
CANCEL_AFTER = 1.0  # seconds


class Publisher:
    """``kinds``: only these; none: all."""

    def __init__(self, seed: int, kinds: list[str]) -> None:
        self.random = random.Random(seed)
        self.kinds = kinds
        self.orders = cycle(self.random.sample(ORDERS, len(ORDERS)))
        self.to_cancel: list[tuple[float, str]] = []  # when (monotonic), and what

    def wants(self, kind: str, chance: float) -> bool:
        """Return whether a burst has jobs of a kind; the chances are drawn in every case."""
        return self.random.random() < chance and (not self.kinds or kind in self.kinds)

    def begin(self) -> None:
        """Enqueue what finds a fault in a run of seconds, too, that chance may leave out of it."""
        from tests.faults.mix import tasks

        if self.wants("strays", 1):
            self.enqueue("strays", tasks.strays, 6)
        if self.wants("iterates", 1):
            self.enqueue("iterates", tasks.iterates, 1, "reversed")
        for autocommit in (True, False) if self.wants("unsafe", 1) else ():
            self.enqueue("unsafe", tasks.unsafe, 1, autocommit)
        if self.wants("long", 1):
            self.enqueue("long", tasks.long, MANY_LONG, LONG)

    def burst(self) -> None:
        from django.db import transaction

        from django_vtqueue import Queue
        from django_vtqueue.models import Job
        from tests.faults.mix import tasks
        from tests.faults.mix.kinds import (
            ASIDE,
            CLAIMED,
            CONSUMED,
            COUNTER,
            HANDLED,
            LIMITED,
            LONG_LEASE,
            QUICK,
            SHARED,
            SHORT_LEASE,
        )
        from tests.project.models import Effect

        some, seconds = self.random.randint(20, 120), self.random.uniform
        for kind, chance in (("brief", 0.3), ("later", 0.2), ("backs_off", 0.15), ("gives_up", 0.1)):
            if self.wants(kind, chance):
                self.enqueue(kind, getattr(tasks, kind), some, *[round(seconds(3, 8), 1)] * (kind == "later"))
        for kind, chance, most in (("once", 0.4, 5), ("long", 0.4, 9), ("medium", 0.3, 6), ("waits", 0.3, 6)):
            if self.wants(kind, chance):
                self.enqueue(kind, getattr(tasks, kind), 1, seconds(1, most))
        for kind, chance, count in (("writes", 0.5, 15), ("slow", 0.08, 4), ("hangs", 0.03, 1)):
            if self.wants(kind, chance):
                self.enqueue(kind, getattr(tasks, kind), count)
        if self.wants("brief", 0.5):
            with transaction.atomic():
                self.enqueue("brief", tasks.brief, 3)
                Effect.objects.filter(name=COUNTER).exists()  # whatever receivers did, the transaction goes on
        for kind, chance in (("forks", 0.1), ("pools", 0.1), ("shells", 0.1)):
            if self.wants(kind, chance):
                self.enqueue(kind, getattr(tasks, kind), 1)
        for kind, chance in (("strays", 0.5), ("gathers", 0.2)):
            if self.wants(kind, chance):
                self.enqueue(kind, getattr(tasks, kind), 1)
        if self.wants("iterates", 0.25):
            self.enqueue("iterates", tasks.iterates, 1, next(self.orders))
        if self.wants("unsafe", 0.3):
            self.enqueue("unsafe", tasks.unsafe, 1, self.random.random() < 0.5)
        if self.wants("hurried", 0.4):
            self.enqueue("hurried", tasks.hurried, 20)
        for _ in range(5 * self.wants("keyed", 0.5)):
            key = self.random.randint(0, 2)
            result = tasks.keyed.enqueue(key)
            if not result.duplicate:
                self.tell("keyed", [result.id.replace("-", "")], queue="default", key=str(key))
        if self.wants("shared", 0.3):
            self.enqueue("shared", tasks.shared.using(queue_name=SHARED), 1, seconds(1, 6))
        if self.wants("brief", 0.7):
            aside = tasks.brief.using(queue_name=ASIDE, priority=self.random.randint(-9, 9))
            self.enqueue("brief", aside, 3)
            self.enqueue("brief", tasks.brief, 1, run_after=seconds(0.2, 6))
            [job_id] = self.enqueue("brief", tasks.brief, 1, run_after=seconds(4, 8))
            self.to_cancel.append((time.monotonic() + CANCEL_AFTER, job_id))
        if self.wants("brief", 0.7):
            self.until_full(tasks.brief.using(queue_name=LIMITED))
        for name, lease in ((HANDLED, None), (CONSUMED, LONG_LEASE), (QUICK, SHORT_LEASE), (CLAIMED, SHORT_LEASE)):
            queue = Queue(name, visibility_timeout=lease, max_attempts=0)
            full = Job.objects.filter(queue_name=name, finished_at=None).count() >= MOST_RAW
            for kind, chance, most in (("raw", 0.3, 5), ("extends_shorter", 0.15, 4), ("extends_longer", 0.15, 1)):
                if self.wants(kind, chance) and (kind == "raw" or name != CLAIMED):
                    payload = {"kind": kind, "seconds": seconds(0, most)}
                    if full:
                        continue
                    self.tell(kind, [queue.publish(payload).hex], queue=name)

    def enqueue(self, kind: str, task: Any, count: int, *args: Any, run_after: float = 0) -> list[str]:
        from django.utils import timezone

        from django_vtqueue import enqueue_many

        due = 0
        if run_after:
            moment = timezone.now() + timedelta(seconds=run_after)
            task, due = task.using(run_after=moment), words.instant(moment)
        ids = [result.id.replace("-", "") for result in enqueue_many(task, [(args, {})] * count)]
        self.tell(kind, ids, due=due, queue=task.queue_name, priority=task.priority)
        return ids

    def until_full(self, task: Any) -> None:
        """Enqueue until the queue has no room for a moment; what is refused is not relied upon."""
        from django_vtqueue import QueueFull

        for count in (*[1] * MOST_LIMITED, 10):
            try:
                self.enqueue("brief", task, count)
            except QueueFull:
                return

    def cancel(self) -> None:
        """Cancel what waits for that."""
        from django_vtqueue import control
        from django_vtqueue.models import DeadLetter

        while self.to_cancel and self.to_cancel[0][0] <= time.monotonic():
            _, job_id = self.to_cancel.pop(0)
            for cancelled in control.cancel([job_id]):
                waited = DeadLetter.objects.filter(pk=cancelled).exists()
                print(json.dumps({"cancelled": cancelled.hex, "at": words.now() if waited else None}))

    def tell(self, kind: str, ids: list[str], due: int = 0, **values: Any) -> None:

        print(json.dumps({"kind": kind, "jobs": ids, "due": due, "at": words.now(), **values}))


def main(seed: int, seconds: float, kinds: list[str]) -> None:
    from django_vtqueue.models import Job

    publisher, end = Publisher(seed, kinds), time.monotonic() + seconds
    publisher.begin()
    while time.monotonic() < end or publisher.to_cancel:
        if time.monotonic() < end and Job.objects.filter(finished_at=None).count() < MOST_UNFINISHED:
            publisher.burst()
        publisher.cancel()
        time.sleep(PAUSE)


if __name__ == "__main__":
    django.setup()
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
