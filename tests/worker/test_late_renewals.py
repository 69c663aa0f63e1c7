"""When the thread renews that keeps a worker's leases while its control loop waits."""

import time

import pytest

from django_vtqueue.core.clock import NEVER
from django_vtqueue.worker.late_renewals import HANGS, RenewalThread
from django_vtqueue.worker.leases import Leases


@pytest.mark.parametrize(("late", "due"), [(-1, False), (1, True), (HANGS - 10, True), (HANGS + 1, False)])
def test_a_loop_that_is_late_is_helped_and_one_that_hangs_is_not(late: float, due: bool) -> None:
    """A loop that will never go on must not have its jobs run for ever: their leases end, and others take them."""
    assert thread(time.monotonic() - late).late() is due


def test_a_loop_that_holds_nothing_is_not_late() -> None:
    """Nothing is to be renewed."""
    assert not thread(NEVER).late()


def thread(renew_by: float) -> RenewalThread:
    leases = Leases.__new__(Leases)
    leases.renew_by, leases.locked = renew_by, False
    return RenewalThread("default", leases, lambda: None)
