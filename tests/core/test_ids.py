"""Ids of jobs and of workers."""

import os
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_vtqueue.core import clock, ids


def test_new_id_is_a_uuid_of_version_7() -> None:
    """With the time in front, to the fraction of a millisecond, and different each time."""
    before = clock.now()
    made = [UUID(ids.new_id()) for _ in range(1000)]
    after = clock.now()
    assert {(made_id.version, made_id.variant) for made_id in made} == {(7, "specified in RFC 4122")}
    assert len(set(made)) == 1000
    for made_id in made:
        milliseconds, fraction = made_id.int >> 80, (made_id.int >> 64) & 0xFFF
        assert before - 1 <= milliseconds * 1000 + fraction * 1000 / 4096 <= after + 1


def test_ids_sort_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later id is greater, from a quarter of a microsecond on."""
    now = 1_800_000_000_000_000_000

    def made(later: int) -> str:
        monkeypatch.setattr("time.time_ns", lambda: now + later)
        return ids.new_id()

    times = [0, 250, 1000, 999_999, 1_000_000, 10**12]
    sorted_ids = [made(later) for later in times]
    assert sorted_ids == sorted(sorted_ids)


def test_ids_made_at_once_are_in_order() -> None:
    """Of many jobs the one that was given first has the smallest id; none is made twice, whatever is made meanwhile."""
    made = [job_id for count in (0, 1, 5000, 2) for job_id in ids.new_ids(count)]
    first = made[1:5001]
    assert first == sorted(first)
    assert len(set(made)) == len(made) == 5003
    assert {UUID(job_id).version for job_id in made} == {7}
    assert {job_id[16] for job_id in made} == set("89ab")


@given(st.uuids())
def test_parse_id(value: UUID) -> None:
    """A UUID in any of its spellings is that UUID."""
    for spelling in (value, str(value), value.hex, str(value).upper(), f"{{{value}}}", value.urn):
        assert ids.parse_id(spelling) == value
    assert ids.dashed(value.hex) == str(value)


@given(st.none() | st.integers() | st.floats() | st.text() | st.binary() | st.lists(st.text()))
def test_parse_id_of_anything(value: Any) -> None:
    """What is no id is None, never an error."""
    found = ids.parse_id(value)
    assert found is None or isinstance(found, UUID)


def test_worker_ids() -> None:
    """People know a worker by host and pid; the random end is new with each start, and with each fork."""
    first, second = ids.new_worker_id(), ids.new_worker_id()
    assert first != second
    assert ids.shown_worker(first) == ids.shown_worker(second)
    assert ids.shown_worker(first).endswith(f":{os.getpid()}")
    assert ids.shown_worker("odd") == "odd"
    assert ids.process_worker_id() == ids.process_worker_id()


def test_a_forked_child_holds_in_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes must never pass for one holder."""
    mine = ids.process_worker_id()
    monkeypatch.setattr("os.getpid", lambda: 999_999_999)
    child = ids.process_worker_id()
    assert child != mine
    assert child == ids.process_worker_id()
