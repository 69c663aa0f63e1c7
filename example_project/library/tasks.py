"""The site's background jobs."""

import random
import time

from django_vtqueue import JobContext, TaskContext, task

from .files import read_text
from .models import Digest, Document


@task(queue_name="index", max_attempts=2, backoff=0.5)
def index_file(path: str) -> None:
    """Make one file searchable.

    A job runs *at least once*: a worker that is killed after its work, before its acknowledgement, leaves the job to
    another one, which does the work again. So the work must bear repetition: the path is unique, and `store` replaces
    the row in one transaction.

    Two attempts, for a file caught while it is being written may be whole half a second later. A file that still cannot
    be read becomes a dead letter: it waits in the admin, with its reason, until somebody has mended it.
    """
    Document.store(path, read_text(path))


@task(queue_name="previews", takes_context=True)
def preview(context: JobContext, number: int) -> int:
    """Stand for work of uncertain length: one in twelve executions takes 4 s instead of 0.1 s.

    It may run several times at once, and each time it has the same effect. A copy that is not needed any more stops.
    """
    ends_at = time.monotonic() + (4 if random.random() < 1 / 12 else 0.1)
    while time.monotonic() < ends_at and not context.cancelled:
        time.sleep(0.02)
    return number


@task(queue_name="digests", takes_context=True)
def digest(context: TaskContext) -> None:
    """Write a digest of the library.

    Each run would add a row, and a repetition would show. The job's id is the same in all its runs: as the key of the
    row, it makes of the second run a replacement of what the first one wrote.
    """
    Digest.write(context.task_result.id)
