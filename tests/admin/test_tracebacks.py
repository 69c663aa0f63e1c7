"""Tracebacks as people read them: their own code open, libraries folded, each line there once."""

import json
import re
import sysconfig
from collections.abc import Callable

import pytest
from django.test import Client
from django.utils.html import strip_tags

from django_vtqueue.admin.tracebacks import folded
from django_vtqueue.core.failures import describe
from django_vtqueue.core.history import Entry

from .test_admin import letter, page

TRACEBACK = f"""Traceback (most recent call last):
  File "{sysconfig.get_path("stdlib")}/contextlib.py", line 81, in inner
    return func(*args, **kwds)
           ~~~~^^^^^^^^^^^^^^^
  File "/app/shop/tasks.py", line 12, in pay
    charge(order)
  File "/venv/lib/python3.13/site-packages/stripe/client.py", line 9, in charge
    raise Declined("<b>no</b>")
  [Previous line repeated 2 more times]
  File "C:\\venv\\Lib\\site-packages\\stripe\\http.py", line 3, in send
stripe.Declined: <b>no</b>

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/app/shop/tasks.py", line 14, in pay
    raise PaymentDeclined from None
shop.PaymentDeclined: declined
"""


def parts(html: str) -> tuple[str, list[str]]:
    """Return the text that stands open, and that of each folded part."""
    folds = re.findall(r"<details><summary>.*?</summary>(.*?)</details>", html, re.DOTALL)
    return strip_tags(re.sub(r"<details>.*?</details>", "", html, flags=re.DOTALL)), [
        strip_tags(each) for each in folds
    ]


def test_frames_of_libraries_are_folded() -> None:
    """What is the project's own stands open, with the texts of the exceptions; each run of library frames is folded."""
    html = str(folded(TRACEBACK))
    shown, hidden = parts(html)
    assert "charge(order)" in shown
    assert "stripe.Declined: &lt;b&gt;no&lt;/b&gt;" in shown
    assert "During handling" in shown
    assert "raise PaymentDeclined" in shown
    assert "contextlib" not in shown
    assert "site-packages" not in shown
    assert ["contextlib" in each for each in hidden] == [True, False]
    assert "~~~~^^^^" in hidden[0]
    assert "[Previous line repeated" in hidden[1]
    assert "http.py" in hidden[1]
    assert re.findall("<summary>(.*?)</summary>", html) == ["1 frame of a library", "2 frames of libraries"]


def nested() -> None:
    raise ExceptionGroup("two", [ValueError("inner"), KeyError("k")])


def in_a_group() -> None:
    try:
        nested()
    except ExceptionGroup as group:
        raise ExceptionGroup("outer", [group]) from None


@pytest.mark.parametrize("fails", [nested, in_a_group, lambda: json.loads("{")])
def test_no_line_is_lost(fails: Callable[[], None]) -> None:
    """Whatever a traceback is of, an exception group as well, all its lines are there, in their order."""
    try:
        fails()
    except Exception as error:
        traceback = describe(error).traceback
    html = str(folded(traceback))
    lines = [strip_tags(each) for each in re.findall(r"<pre[^>]*>(.*?)</pre>", html, re.DOTALL)]
    found = "\n".join(lines).replace("&quot;", '"').replace("&#x27;", "'").replace("&lt;", "<").replace("&gt;", ">")
    assert found == traceback.rstrip("\n")
    assert "test_tracebacks.py" in parts(html)[0]


@pytest.mark.parametrize("text", ["no traceback at all", 'Traceback:\n  File "/x/site-packages/a.py", line 1, in b\n'])
def test_nothing_of_the_project(text: str) -> None:
    """Where nothing is the project's own nothing is folded."""
    assert parts(str(folded(text))) == ("Copy" + text.replace('"', "&quot;"), [])


@pytest.mark.django_db
def test_top_of_a_letter(admin_client: Client) -> None:
    """The page of a dead letter begins with its error, its last traceback and its arguments, in this order."""
    older = Entry(number=1, outcome="retry", traceback=TRACEBACK.replace("declined", "an earlier one"))
    last = Entry(number=2, outcome="failed", traceback=TRACEBACK)
    shown = page(admin_client, letter(history=json.dumps([older, last]), message="card 7"))
    top = shown[: shown.index("field-timeline")]
    places = [top.index(text) for text in ("card 7", "shop.PaymentDeclined: declined", "&quot;a&quot;: 1", "copied_id")]
    assert places == sorted(places)
    assert "an earlier one" not in top
    without = page(admin_client, letter(history=json.dumps([older, Entry(number=2, outcome="worker died")])))
    assert "Of attempt 1:" in without[: without.index("field-timeline")]
