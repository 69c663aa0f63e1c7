"""The words of the worker's log."""

import faulthandler
import logging
import signal
import sys

import pytest

from django_vtqueue.core import history
from django_vtqueue.core.failures import Failure
from django_vtqueue.core.job import HeldJob
from django_vtqueue.core.settlement import failed
from django_vtqueue.management.output import is_terminal
from django_vtqueue.runtime.forks import dump_threads_at
from django_vtqueue.worker.log import job_name, words
from django_vtqueue.worker.logging_setup import log_lines


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("x\rok    shop.tasks.evil\x1b[2J", "ValueError: x"),
        ("a bell: \x07", r"ValueError: a bell: \x07"),
        ("\nthe second line says it", "ValueError: the second line says it"),
        ("", "builtins.ValueError"),
        (f"{'x' * 197} is.", f"ValueError: {'x' * 197} …"),
        ("x" * 201, f"ValueError: {'x' * 200} …"),
        (f"It is {'x' * 100}. Its cause is y. Do {'z' * 100} then.", f"ValueError: It is {'x' * 100}. Its cause is y"),
    ],
)
def test_a_failure_is_one_line(message: str, said: str) -> None:
    """Its first line that has words, cut behind one, without what a terminal or a reader of logs takes for more."""
    job = HeldJob("0" * 32, "q", "app.t", 0, 0, 1, 1, 3, "w", 1, 0, 0, "{}", "[]", 0)
    settlement = failed(job, history.FAILED, Failure("builtins.ValueError", message, "", "f"), 0, 0)
    assert words(settlement) == said


def test_the_name_of_a_queue_begins_no_line_of_its_own() -> None:
    """What stands in a row is shown in one line, as an error is."""
    job = HeldJob("0" * 32, "q\nok    shop.tasks.evil\x1b[2J", "", 0, 0, 1, 1, 3, "w", 1, 0, 0, "{}", "[]", 0)
    assert job_name(job) == r"q\nok    shop.tasks.evil\x1b[2J …00000000"


def test_a_log_that_cannot_be_written_costs_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a worker; elsewhere it is as the project has it."""

    class Down(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise ConnectionError("log server down")

    logger, down = logging.getLogger("django_vtqueue"), Down()
    logger.addHandler(down)
    try:
        with log_lines(sys.stderr, 1):
            logger.warning("a line")
            with log_lines(sys.stderr, 1):
                logger.warning("another one")
            logger.exception("the last one")
        with pytest.raises(ConnectionError):
            logger.warning("a line")
    finally:
        logger.removeHandler(down)


def test_threads_are_shown_whatever_stderr_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be closed, or an object by which a project logs: the worker begins all the same."""
    for stream in (None, object()):
        monkeypatch.setattr(sys, "stderr", stream)
        assert not is_terminal(sys.stderr)
        dump_threads_at(signal.SIGUSR2)
    monkeypatch.setattr(sys, "__stderr__", None)
    dump_threads_at(signal.SIGUSR2)
    assert faulthandler.unregister(signal.SIGUSR2)
