"""The site's background jobs."""

from django_vtqueue import TaskContext, task

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


@task(queue_name="digests", takes_context=True)
def digest(context: TaskContext) -> None:
    """Write a digest of the library.

    Each run would add a row, and a repetition would show. The job's id is the same in all its runs: as the key of the
    row, it makes of the second run a replacement of what the first one wrote.
    """
    Digest.write(context.task_result.id)
