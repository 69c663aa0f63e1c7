"""For your tests: run what has been enqueued, inside the test.

For example:

    class SignUp(TestCase):
        def test_welcome_mail_is_sent(self):
            self.client.post("/sign-up/", {...})
            run_pending()
            self.assertEqual(len(mail.outbox), 1)
"""

from datetime import datetime, timedelta

from .backend import VTQueueBackend
from .compat import TaskResult, task_backends
from .engines import engine_for, options_for
from .jobs import Scope
from .publishing import visible_from
from .worker.inline import run_due


def run_pending(queue_name: str | None = None, until: datetime | timedelta | None = None) -> list[TaskResult]:
    """Run the tasks that are due, and what they enqueue, in this thread and transaction (inside ``TestCase``, too).

    ``queue_name``: only those of one queue. ``until`` (a moment, or a duration from now): scheduled tasks and retries
    up to then run too, in the order of their times. Returns the result of each execution, in order; one that failed
    and will be retried is READY and has its error in ``errors``. Tasks do not raise here.
    """
    results = []
    for backend in _backends():
        if queue_name is not None and options_for(queue_name, backend.database) != backend.settings:
            continue  # another one serves it, by another policy
        if queue_name is not None:
            queues: tuple[str, ...] | None = (queue_name,)
        else:
            queues = tuple(sorted(backend.settings.queues)) or None
        now = engine_for(backend.database).now()
        limit = None if until is None else visible_from(now, until)
        for outcome in run_due(backend, [Scope(queues, raw=False)], until=limit):
            if outcome.result is not None:
                results.append(outcome.result)
    return results


def _backends() -> list[VTQueueBackend]:
    """Return our backends; where one names the queue, or they share a database, each job still runs once."""
    return [backend for backend in task_backends.all() if isinstance(backend, VTQueueBackend)]
