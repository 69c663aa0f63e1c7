"""What people do to the steps of durable tasks that wait or are dead."""

from typing import Any

import pytest
from pytest_django import Settings

from django_vtqueue import PayloadTooLarge, control, requeue
from tests.pending import run_pending
from tests.project import durable
from tests.project.durable import CODE, DAY

from .test_durable import effects, job, letter, run

pytestmark = pytest.mark.django_db


ILLEGIBLE = ["\0", "a\0b", "\ud800", "\udc00 ü", "\ud83d\ude00", "\\\0"]


@pytest.mark.parametrize("text", ILLEGIBLE, ids=ascii)
def test_what_a_step_cannot_return(text: str) -> None:
    """What PostgreSQL would not read in the row again ends the job at once, on each database, and says where it is."""
    result = run(lambda context: context.step("read", lambda: [{"text": text}]))
    assert (result.status, result.attempts) == ("FAILED", 1)
    assert "Step 'read': result[0].text has a NUL character or half of a surrogate pair" in letter().message


def test_what_only_looks_like_it() -> None:
    """Backslashes before letters and digits are kept, and so are other control characters and whole pairs."""
    texts = ["\\u0000", "\\\\u0000 \\ud800", "\x01\x7f", "\N{GRINNING FACE}"]
    assert run(lambda context: context.step("read", lambda: texts)).return_value == texts


def two_steps(context: Any) -> list[Any]:
    """Make a step, and one that fails until a test has put it right."""
    return [context.step("one", durable.note, "one"), context.step("two", lambda: 1 // CODE["divisor"])]


def dead() -> Any:
    CODE["divisor"] = 0
    run(two_steps)
    run_pending(until=10 * DAY)
    return letter().pk


def test_skip_what_a_job_waits_for() -> None:
    """An event, or the rest of a sleep, is skipped with a result of the user's, and the history says by whom."""
    durable.order.enqueue(7)
    run_pending()
    assert control.skip_step(job().pk, "shipped", {"parcel": 1}, by="ann")
    run_pending()
    assert control.skip_step(job().pk, "two weeks")
    [result] = run_pending()
    assert result.return_value == [[1, 2], {"parcel": 1}]
    entry = job().history[0]
    assert (entry["outcome"], entry["worker"], entry["message"], result.attempts) == (
        "step skipped",
        "ann",
        "'shipped'",
        1,
    )


def test_skip_a_step_that_fails() -> None:
    """A dead letter goes on behind it when it is requeued."""
    letter_id = dead()
    assert control.skip_step(letter_id, "two", 5)
    requeue(letter_id)
    [result] = run_pending()
    assert (result.return_value, effects()) == ([None, 5], {"one": 1})


def test_repeat_steps() -> None:
    """From a step on all are made again."""
    letter_id = dead()
    assert control.repeat_steps(letter_id, 1)
    assert letter().history[-1]["message"] == "from step 1 on"
    requeue(letter_id)
    CODE["divisor"] = 1
    [result] = run_pending()
    assert (result.return_value, effects()) == ([None, 1], {"one": 2})


def test_what_cannot_be_changed() -> None:
    """What it does not wait for is not skipped, and no step is repeated that was not made."""
    durable.order.enqueue(7)
    run_pending()
    with pytest.raises(ValueError, match="The job waits for event 'shipped', so 'mail' cannot be skipped"):
        control.skip_step(job().pk, "mail")
    with pytest.raises(ValueError, match="There is no step 3: 1 are done"):  # 2 is what it waits for
        control.repeat_steps(job().pk, 3)
    with pytest.raises(ValueError, match="There is no step 'one': 1 are done"):
        control.repeat_steps(job().pk, "one")  # type: ignore[arg-type]
    for wrong in (None, "no id", 7):
        with pytest.raises(ValueError, match=f"{wrong!r} is no id of a job: give all of it"):
            control.skip_step(wrong, "shipped")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not JSON"):
        control.skip_step(job().pk, "shipped", {1})
    for text in ILLEGIBLE:
        with pytest.raises(TypeError, match=r"value\.a has a NUL character or half of a surrogate pair"):
            control.skip_step(job().pk, "shipped", {"a": text})
    assert not control.skip_step("f" * 32, "shipped")
    assert job().history == []


def test_a_result_that_is_too_large_for_the_steps(settings: Settings) -> None:
    """What stands for a step counts for max_steps_bytes, as an event does; steps are repeated whatever their size."""
    letter_id = dead()
    options = {"queue_options": {"default": {"max_steps_bytes": 1000}}}
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": options}}
    with pytest.raises(PayloadTooLarge, match=r"With step 'two' .* have 2,\d\d\d bytes; max_steps_bytes allows 1,000"):
        control.skip_step(letter_id, "two", "x" * 2000)
    assert len(letter().steps["done"]) == 1
    assert control.skip_step(letter_id, "two", "x" * 500)
    options["queue_options"]["default"]["max_steps_bytes"] = 1
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": options}}
    assert control.repeat_steps(letter_id, 2)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "", "x" * 256, None], ids=ascii)
def test_names_that_no_step_has(name: Any) -> None:
    """They are refused: PostgreSQL would read nothing of the row's steps any more."""
    letter_id = dead()
    with pytest.raises(ValueError, match="The name of a step is a text of 1 to 255 characters"):
        control.skip_step(letter_id, name)
    assert letter().steps["done"][-1]["name"] == "one"
