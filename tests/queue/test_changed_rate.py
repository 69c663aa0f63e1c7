"""The rate of a queue is changed between two processes, and no worker looks after it: payloads only."""

import threading

import pytest

from django_vtqueue import ClaimedJob, Queue
from tests.waiting import wait_until

from .test_depth import policies


@pytest.mark.parametrize("how", ["claim", "run"])
def test_the_new_rate_holds_where_payloads_are_claimed(alias: str, how: str) -> None:
    """``Queue.claim`` and ``Queue.run`` find the next job soon, not when the old rate would have it."""
    with policies(alias, payloads={"rate": "1/h"}):
        queue = Queue("payloads")
        queue.publish_many([1, 2, 3])
        assert [job.payload for job in queue.claim_many(3)] == [1]
        assert queue.claim() is None
    with policies(alias, payloads={"rate": "20/s"}):
        queue, found, stop = Queue("payloads"), [], threading.Event()

        def handle(job: ClaimedJob) -> None:
            found.append(job.payload)
            if len(found) == 2:
                stop.set()

        if how == "run":
            queue.run(handle, stop=stop)
        else:
            wait_until(lambda: found.extend(job.payload for job in queue.claim_many(3)) or len(found) == 2)
        assert found == [2, 3]
