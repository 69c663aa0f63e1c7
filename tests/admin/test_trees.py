"""The tree of a job on its page: its parents and their children, with states and times."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import uuid4
from xml.etree import ElementTree

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_vtqueue import call, chain, group
from django_vtqueue.admin import trees as admin_trees
from django_vtqueue.admin.plots import WIDE, span
from django_vtqueue.core import clock
from django_vtqueue.inspection import trees
from django_vtqueue.models import DeadLetter, Job
from tests.pending import run_pending
from tests.project import workflows as shop

from ..fake_clock import FakeClock
from .rows import part
from .test_admin import EVIL, SECOND, job, letter, page, text

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nothing_is_broken() -> Iterator[None]:
    yield
    shop.BROKEN.clear()


def tree(client: Client, row: Any) -> str:
    """Return what people read of the tree on a page."""
    return part(page(client, row), '<table class="vtq-attempts vtq-tree', "</table>")


def test_a_workflow_that_failed(admin_client: Client) -> None:
    """The page of the whole, and of each part of it, has all parts, with their states, as links."""
    shop.BROKEN.add("2")
    parts = [chain(call(shop.fetch, "a"), call(shop.parse)), call(shop.send, 2)]
    result = group(parts, on_failure=call(shop.alarm, "ops")).enqueue()
    run_pending()
    whole = DeadLetter.objects.get(pk=result.id)
    tasks = ["run_group", "run_chain", "fetch", "parse", "send", "alarm"]
    for row in (whole, *Job.objects.all(), DeadLetter.objects.get(parent_id=whole.pk)):
        shown = tree(admin_client, row)
        assert re.findall("run_group|run_chain|fetch|parse|send|alarm", shown) == tasks
        assert re.findall(r"\b(?:dead|done)\b", shown) == ["dead", "done", "done", "done", "dead", "done"]
        others = {each.pk for each in (*Job.objects.all(), *DeadLetter.objects.all())} - {row.pk}
        html = page(admin_client, row)
        assert all(re.search(rf'<a href="[^"]*/{pk}/change/">', html) for pk in others)


def test_what_waits(admin_client: Client) -> None:
    """A whole that waits for its calls says so, and has no bar: it has run, and goes on."""
    result = chain(call(shop.send.using(queue_name="other"), 1)).using(queue_name="wholes").enqueue()
    run_pending("wholes")
    whole = Job.objects.get(pk=result.id)
    assert re.search("run_chain waiting .* Waited for .*send due - Waited for", tree(admin_client, whole))


def test_few_queries() -> None:
    """A tree is read level by level, without large columns, however many children there are."""
    whole = group([call(shop.send, number) for number in range(20)]).enqueue()
    run_pending()
    child = Job.objects.filter(parent_id=whole.id).first()
    for row, most in ((Job.objects.get(pk=whole.id), 4), (child, 5)):
        assert row
        with CaptureQueriesContext(connection) as queries:
            assert len(trees.tree(row).nodes) == 21
        assert len(queries) == most
        assert not any(re.search(r'payload|history"|"steps|result', query["sql"]) for query in queries)


def test_a_large_tree() -> None:
    """So many nodes are read, the dead ones first, then the others in their order; the rest is counted."""
    parent = job("done")
    ids = sorted(job("done", parent_id=parent.pk).pk for _ in range(6))
    dead = letter(parent_id=parent.pk)
    nodes, more = trees.tree(parent, most=5)
    assert {node.entry.pk for node in nodes} > {parent.pk, dead.pk}
    assert (len(nodes), more) == (5, 3)
    last = Job.objects.get(pk=({*ids} - {node.entry.pk for node in nodes}).pop())
    nodes, more = trees.tree(last, most=5)
    assert last.pk in {node.entry.pk for node in nodes}
    assert (len(nodes), more) == (6, 2)


def test_a_large_tree_on_the_page(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says how many children it does not show."""
    parent = job("done")
    first, *_ = [job("done", parent_id=parent.pk) for _ in range(3)]
    monkeypatch.setattr(admin_trees, "tree", partial(trees.tree, most=2))
    assert "… and 2 other children" in text(page(admin_client, first))


def test_a_job_alone(admin_client: Client) -> None:
    """A job without parent and children has no tree; one whose parent is gone has none to show, and damage is borne."""
    assert "vtq-tree" not in page(admin_client, job())
    assert "vtq-tree" not in page(admin_client, job(parent_id=uuid4()))
    odd = job("done")
    Job.objects.filter(pk=odd.pk).update(parent_id=odd.pk)
    assert "vtq-tree" not in page(admin_client, odd)


def test_hostile_names(admin_client: Client) -> None:
    """What stands in a row is escaped."""
    parent = job("done", task_path=EVIL)
    assert EVIL not in page(admin_client, job(parent_id=parent.pk))


def test_spans(admin_client: Client, time: FakeClock) -> None:
    """The bar of a job begins when it started and ends when it ended, on the scale of the whole tree."""
    now = clock.now()
    parent = job("done", enqueued_at=now - 100 * SECOND, started_at=now - 100 * SECOND, finished_at=now)
    child = job("done", parent_id=parent.pk, enqueued_at=now - 75 * SECOND, started_at=now - 50 * SECOND)
    Job.objects.filter(pk=child.pk).update(finished_at=clock.from_instant(now - 25 * SECOND))
    html = page(admin_client, child)
    assert 'd="M75.0 6H225.0"' in html
    assert 'd="M150.0 2h75.0v8h-75.0z"' in html
    assert "Last started 25 s after it was enqueued, and ran for 25 s." in html


@pytest.mark.parametrize("times", [(0, 0, 0), (5, 3, 1), (-9, 99, 999), (0, None, 10), (10, 10, 10)])
def test_a_span_stays_inside(times: tuple[int, int | None, int]) -> None:
    """Whatever a stepped clock has stored, it is drawn, inside its place; and what is short is seen."""
    svg = span(*times, (0, 10), "done", "<&>")
    root = ElementTree.fromstring(svg)
    assert root.findtext("title") == "<&>"
    numbers = [float(number) for number in re.findall(r"[MH](-?[\d.]+)", svg)]
    assert all(0 <= number <= WIDE + 2 for number in numbers)
