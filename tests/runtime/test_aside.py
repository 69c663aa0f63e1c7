"""What a thread of its own calls in the place of others: each call is made, or counted."""

import logging
import re
import threading
from collections.abc import Iterator

import pytest

from django_vtqueue.runtime.aside import MOST_LINES, Caller, LogWriter, logging_aside

from ..waiting import PATIENCE, PROMPT, wait_until

AT_ONCE = 0.05  # seconds


class Slow(logging.Handler):
    """A log that writes nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.written: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert self.go.wait(PATIENCE)
        self.written.append(record.getMessage())


@pytest.fixture
def slow(caplog: pytest.LogCaptureFixture) -> Iterator[Slow]:
    """Return the only handler of the queue's logger."""
    logger, handler = logging.getLogger("django_vtqueue"), Slow()
    usual, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    with caplog.at_level("INFO", "django_vtqueue"):
        yield handler
    handler.go.set()
    logger.removeHandler(handler)
    logger.propagate = usual


@pytest.fixture
def caller() -> Iterator[Caller]:
    """Return a thread that calls."""
    caller = Caller("called aside")
    yield caller
    caller.end()


def test_the_end_waits_for_no_call_that_hangs(caller: Caller) -> None:
    """However often it is waited for: each wait ends in its time, and the calls are made when the one returns."""
    go, made = threading.Event(), list[int]()
    caller.put(lambda: go.wait(PATIENCE))
    caller.put(lambda: made.append(1))
    assert [caller.finish(AT_ONCE) for _ in range(3)] == [False] * 3
    go.set()
    assert caller.finish(PROMPT)
    assert made == [1]
    wait_until(lambda: caller.waiting() == 0)


def test_what_calls_have_called_is_waited_for(caller: Caller) -> None:
    """A call that puts another one is not done before that one is."""
    made: list[int] = []
    caller.put(lambda: caller.put(lambda: caller.put(lambda: made.append(1))))
    assert caller.finish(PROMPT)
    assert made == [1]


def test_a_call_that_raises_ends_nothing(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    """Not even one that would end the process."""
    made: list[int] = []
    caller.put(lambda: exit(3))
    caller.put(lambda: made.append(1))
    assert caller.finish(PROMPT)
    assert made == [1]
    wait_until(lambda: "code of the project failed in thread called aside" in caplog.text)


@pytest.mark.parametrize("threads", [1, 4])
def test_lines_that_a_slow_log_leaves_out_are_counted(slow: Slow, threads: int) -> None:
    """Each line is written, or counted by the line that says how many are missing, which stands where they would."""
    logger, writer, lines = logging.getLogger("django_vtqueue"), LogWriter("log of a test"), MOST_LINES + 100

    def write() -> None:
        with logging_aside():
            for number in range(lines):
                logger.info("line %d", number)

    with writer.writing_for(logger):
        for _ in range(3):
            writing = [threading.Thread(target=write) for _ in range(threads)]
            for thread in writing:
                thread.start()
            for thread in writing:
                thread.join()
            slow.go.set()
            wait_until(lambda: writer.waiting() == 0)
            slow.go.clear()
        slow.go.set()
        assert writer.finish(PATIENCE)
    writer.end()
    left_out = [int(match[1]) for line in slow.written if (match := re.match(r"(\d+) lines of this log", line))]
    written = [line for line in slow.written if line.startswith("line ")]
    assert len(written) + sum(left_out) == 3 * threads * lines
    assert left_out
