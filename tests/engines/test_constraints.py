"""What the database itself refuses: rows in no state, and numbers that no statement can count with."""

from itertools import product

import pytest
from django.db import IntegrityError, connections, transaction

from django_vtqueue.core.job import LONGEST_LEASE, MOST_CLAIMS
from tests.conformance import conftest as both
from tests.conformance.bench import Bench
from tests.fake_clock import at

alias, traced, bench = both.alias, both.traced, both.bench  # of each engine


def takes(bench: Bench, **values: object) -> bool:
    """Return whether the database takes these values for its rows."""
    columns = ", ".join(f"{name} = %s" for name in values)
    try:
        with transaction.atomic(using=bench.alias), connections[bench.alias].cursor() as cursor:
            cursor.execute(f"UPDATE vtqueue_job SET {columns}", list(values.values()))
    except IntegrityError:
        return False
    return True


def test_the_database_knows_the_states(bench: Bench) -> None:
    """What waits has no holder, what wakes a moment, what is held a lease, what has succeeded an end: no other row is
    taken.
    """
    bench.publish("x")
    times = ((None, at(1)),) * 3
    rows = product(("READY", "SCHEDULED", "WAITING", "BLOCKED", "RUNNING", "SUCCESSFUL", "DONE"), ("", "w1"), *times)
    names = ("state", "worker_id", "wake_at", "lease_until", "finished_at")
    assert [row for row in rows if takes(bench, **dict(zip(names, row, strict=True)))] == [
        ("READY", "", None, None, None),
        ("SCHEDULED", "", at(1), None, None),
        ("WAITING", "", at(1), None, None),
        ("BLOCKED", "", at(1), None, None),
        ("RUNNING", "", None, at(1), None),  # given back
        ("RUNNING", "w1", None, at(1), None),
        ("SUCCESSFUL", "w1", None, None, at(1)),
    ]


@pytest.mark.parametrize(
    ("column", "least", "most"),
    [
        ("priority", -100, 100),
        ("lease_us", 1, LONGEST_LEASE),
        ("claims", -(2**63), MOST_CLAIMS),
        ("attempts", -(2**63), MOST_CLAIMS),
    ],
)
def test_the_database_knows_the_numbers(bench: Bench, column: str, least: int, most: int) -> None:
    """It takes those with which each statement can count, and no others."""
    bench.publish("x")
    values = [value for value in (least - 1, least, most, most + 1) if value >= -(2**63)]
    assert [value for value in values if takes(bench, **{column: value})] == [least, most]
