"""Log records of the Tasks framework that no handler would write, and all ways in which one might."""

import logging

import pytest
from django.utils.log import CallbackFilter, RequireDebugTrue
from pytest_django import Settings

from django_vtqueue.tasks.compat import FRAMEWORK_LOGGER
from django_vtqueue.worker.logging_setup import heard, without_unread_records


def stream(level: int, *filters: logging.Filter) -> logging.Handler:
    handler = logging.StreamHandler()
    handler.setLevel(level)
    for item in filters:
        handler.addFilter(item)
    return handler


@pytest.fixture
def above() -> logging.Logger:
    """Return a logger that is above the framework's, apart from those of this process."""
    return logging.Logger("above", logging.INFO)


@pytest.fixture
def framework(above: logging.Logger) -> logging.Logger:
    """Return a logger without anything of its own."""
    logger = logging.Logger("framework")
    logger.parent = above
    return logger


def test_what_no_handler_writes_is_not_heard(
    framework: logging.Logger, above: logging.Logger, settings: Settings
) -> None:
    """As Django sets logging up: not by the console, with DEBUG neither, by mail only from ERROR on."""
    assert not heard(framework, logging.INFO)
    assert heard(framework, logging.WARNING)  # Python writes it itself
    above.addHandler(stream(logging.INFO, RequireDebugTrue()))
    above.addHandler(stream(logging.ERROR))
    assert not heard(framework, logging.INFO)
    assert heard(framework, logging.ERROR)
    settings.DEBUG = True
    assert not heard(framework, logging.INFO)


def test_a_handler_hears(framework: logging.Logger, above: logging.Logger) -> None:
    """A handler of the logger, or of one that it propagates to, at its level or below, whatever its filters may do."""
    above.addHandler(stream(logging.INFO, CallbackFilter(lambda record: False)))
    assert heard(framework, logging.INFO)
    framework.propagate = False
    assert not heard(framework, logging.INFO)
    framework.addHandler(stream(logging.DEBUG))
    assert heard(framework, logging.INFO)


def call_handlers(self: logging.Logger, record: logging.LogRecord) -> None:
    """As error trackers put their own in."""


def test_who_hooks_into_logging_hears(framework: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter of the logger, a factory of records, or another method of Logger may take note of every record."""
    framework.addFilter(passing := logging.Filter())
    assert heard(framework, logging.INFO)
    framework.removeFilter(passing)
    with monkeypatch.context() as patch:
        patch.setattr(logging.Logger, "callHandlers", call_handlers)
        assert heard(framework, logging.INFO)
    usual = logging.getLogRecordFactory()
    logging.setLogRecordFactory(lambda *args, **kwargs: usual(*args, **kwargs))
    try:
        assert heard(framework, logging.INFO)
    finally:
        logging.setLogRecordFactory(usual)
    assert not heard(framework, logging.INFO)


def test_records_are_left_out_only_while_nobody_would_see_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures, at ERROR, always go through; a level that the project has given to the logger stands."""
    framework = logging.getLogger(FRAMEWORK_LOGGER)
    monkeypatch.setattr(framework, "propagate", False)
    monkeypatch.setattr(framework, "handlers", [])  # those of pytest are there when the test runs, not before

    def levels() -> tuple[int, int]:
        with without_unread_records():
            inside = framework.level
        return inside, framework.level

    assert levels() == (logging.WARNING, logging.NOTSET)
    with monkeypatch.context() as patch:
        patch.setattr(framework, "handlers", [stream(logging.INFO)])
        assert levels() == (logging.NOTSET, logging.NOTSET)
    framework.setLevel(logging.DEBUG)
    try:
        assert levels() == (logging.DEBUG, logging.DEBUG)
    finally:
        framework.setLevel(logging.NOTSET)
