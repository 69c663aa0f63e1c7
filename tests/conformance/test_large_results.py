"""Results that are too large for their database."""

import pytest

from django_vtqueue import PayloadTooLarge, Queue, TaskResultStatus
from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.models import DeadLetter
from tests.pending import run_pending
from tests.project.tasks import return_text

from .bench import largest_result

LARGE = 8_000_000  # letters of two bytes


@pytest.fixture
def most(backend: VTQueueBackend) -> int:
    """Return how many bytes a result may have."""
    if not (most := largest_result(backend.database)):
        pytest.skip("this database takes any result")
    return most


def test_a_result_that_is_too_large(backend: VTQueueBackend, most: int) -> None:
    """Its job is a dead letter that says how large it is, and how large it may be; the largest one is kept."""
    result, largest = return_text.enqueue(LARGE), return_text.enqueue(LARGE - 1)
    run_pending()
    letter = DeadLetter.objects.using(backend.database).get()
    said = f"The result has 16,000,002 bytes, but this database takes {most:,} at most. Store the data elsewhere "
    said += "and return a reference to it. The call has returned, so it is not tried again."
    assert (str(letter.pk), letter.attempts, letter.message) == (result.id, 1, said)
    result.refresh()
    largest.refresh()
    assert (result.status, result.errors[0].exception_class) == (TaskResultStatus.FAILED, PayloadTooLarge)
    assert len(largest.return_value) == LARGE - 1


def test_ack(most: int) -> None:
    """It is refused, and the job is still held."""
    queue = Queue("sensors")
    queue.publish("x")
    [job] = queue.claim_many(1)
    with pytest.raises(PayloadTooLarge, match="The result has 16,000,001 bytes"):
        job.ack("x" * (most - 1))
    job.ack()
