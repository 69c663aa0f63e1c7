"""What is the same on every database: how much one statement takes; and, by the ORM, counts and deletions."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from django.apps import apps
from django.db import transaction
from django.db.models import Q, QuerySet

from ..core import states
from ..fields.constraints import in_state

SLICE = 5000  # rows of one statement: a lock is held for some 50 ms at the most
MOST_CHARACTERS = 20_000_000  # of the payloads of one statement: no database takes a text of a gigabyte
READY, ASIDE, HELD = in_state(states.READY), Q(wake_at__isnull=False), Q(lease_until__isnull=False)  # an index of each

T = TypeVar("T")


def parts(items: Sequence[T], payload_of: Callable[[T], str]) -> Iterator[tuple[int, Sequence[T]]]:
    """Yield items, as many at a time as one statement takes, each time with the index of the first."""
    start = characters = 0
    for index, item in enumerate(items):
        characters += (size := len(payload_of(item)))
        if index > start and (index - start == SLICE or characters > MOST_CHARACTERS):
            yield start, items[start:index]
            start, characters = index, size
    if items:
        yield start, items[start:]


class Portable:
    """The part of an Engine that needs no SQL of its own."""

    alias: str

    def atomic(self) -> AbstractContextManager[None]:
        """Return Django's atomic block; it may write even if the caller has a cursor open."""
        return transaction.atomic(using=self.alias)

    def yielding(self, write: Callable[[], T]) -> T:
        """Return what ``write`` returns, called in an atomic block that locks many rows.

        Workers may lock the same rows in another order. So where it would have to wait it is rolled back, which lets
        them go on, and called again.
        """
        with self.atomic():
            return write()

    def count(self, queue_name: str) -> int:
        """Return how many jobs of a queue are unfinished, whether they wait or are held."""
        return sum(self._jobs(queue_name, which).count() for which in (READY, ASIDE, HELD))

    def purge(self, queue_name: str, now: int) -> int:
        """Delete the jobs of a queue that are not held, a slice in each transaction; return how many there were."""
        ended = Q(lease_until__lte=now, copies__isnull=True)  # with copies it may run on
        return sum(self._delete(self._jobs(queue_name, which)) for which in (READY, ASIDE, ended))

    def _jobs(self, queue_name: str, which: Q) -> QuerySet[Any]:
        return apps.get_model("vtqueue", "Job").objects.using(self.alias).filter(which, queue_name=queue_name)

    def _delete(self, jobs: QuerySet[Any]) -> int:
        total, found = 0, SLICE
        while found == SLICE:
            with self.atomic():
                # Not one statement: without statistics PostgreSQL would look for them anew for each row of the queue.
                keys = list(jobs.values_list("pk", flat=True)[:SLICE])
                total += jobs.filter(pk__in=keys)._raw_delete(self.alias) or 0  # None if there are none
                found = len(keys)
        return total
