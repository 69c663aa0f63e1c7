"""Dead letters by failure: what fails, how often, since when."""

import json
import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_vtqueue.core.history import Entry

from .test_admin import client_with as client_with
from .test_admin import text
from .tools import group, shown

pytestmark = pytest.mark.django_db


def test_groups(admin_client: Client) -> None:
    """Letters are grouped by failure and task, each with its count, a sample, and a plot that says what it shows."""
    history = json.dumps([Entry(number=1, outcome="failed", traceback="Traceback: here")])
    group("a", 3, history=history), group("a", 1, task_path="shop.tasks.sync"), group("b", 2, message="gone")
    html = shown(admin_client, "groups")
    assert re.findall(r'vtqueue/deadletter/\?fingerprint=(\w)&amp;task_path=([\w.]+)">(\d)</a>', html) == [
        ("b", "tests.project.tasks.add", "2"),
        ("a", "shop.tasks.sync", "1"),
        ("a", "tests.project.tasks.add", "3"),
    ]
    assert "<title>3 deaths since" in html
    assert html.count("Traceback: here") == 1
    assert "ConnectionError gone" in text(html)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"queue_name": "mail"}, {"b": 1}),
        ({"task_path": "shop.tasks.sync"}, {"c": 4}),
        ({"exception_class": "builtins.KeyError"}, {"d": 1}),
        ({"died": "1h"}, {"a": 1, "b": 2, "c": 1, "d": 1}),
        ({"order": "count"}, {"c": 4, "a": 3, "b": 2, "d": 1}),
        ({"page": "99"}, {"d": 1, "c": 4, "b": 2, "a": 3}),
        ({"died": "never", "order": "sideways", "page": "x"}, {"d": 1, "c": 4, "b": 2, "a": 3}),
    ],
)
def test_filters_of_groups(admin_client: Client, query: dict[str, str], found: dict[str, int]) -> None:
    """Groups are narrowed by queue, task, exception and time, and counted only so far; the order can be chosen."""
    group("a", 3), group("b", 1), group("b", 1, queue_name="mail"), group("c", 4, task_path="shop.tasks.sync")
    group("d", 1, exception_class="builtins.KeyError")
    html = shown(admin_client, "groups", **query)
    counts = re.findall(r'deadletter/\?[^"]*fingerprint=(\w)[^"]*">(\d)</a>', html)
    assert {name: int(number) for name, number in counts} == found
    if "order" in query and query["order"] == "count":
        assert [name for name, _ in counts] == list(found)


def test_link_to_the_letters_of_a_group(admin_client: Client) -> None:
    """The count of a group leads to its letters, of which the list can be exported, requeued and discarded at once."""
    mine = group("a", 2)
    group("b", 1)
    [link] = re.findall(r'deadletter/(\?[^"]*)">2</a>', shown(admin_client, "groups", died="1d"))
    url = reverse("admin:vtqueue_deadletter_changelist") + link.replace("&amp;", "&")
    response = admin_client.get(url)
    assert {row.pk for row in response.context["cl"].result_list} == {row.pk for row in mine}
    assert "requeue/?" in response.content.decode()
    assert "requeue/?" not in admin_client.get(url + "&q=add").content.decode()


def test_pages_of_many_letters_ask_little(admin_client: Client) -> None:
    """However many groups there are, the page of them asks the database a few times."""
    for number in range(30):
        group(f"{number:02}", 1)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert shown(admin_client, "groups").count("vtq-histogram") == 20
    assert len(queries) < 10
