"""The output of subcommands: lines for people, or JSON for scripts."""

import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Timer
from typing import Any

from ..core import clock
from ..core.humanize import duration
from ..core.masks import MASKED
from ..core.text import printable, shorten, storable
from ..fields import text_of
from ..models import DeadLetter, Job
from ..tasks.signatures import mask_of, shown_call

LONGEST = 100  # characters of the arguments in a line
SILENCE = 4.0  # seconds
SILENT = "Database {!r} has given no answer yet. {}"


def is_terminal(stream: Any) -> bool:
    """Return whether a stream is a terminal: sys.stderr may be closed, or an object of the project's."""
    return bool(getattr(stream, "isatty", bool)())


@contextmanager
def said_if_silent(say: Callable[[], object]) -> Iterator[None]:
    """Have ``say`` be called, in another thread, if the block takes longer than SILENCE."""
    timer = Timer(SILENCE, say)
    timer.daemon = True
    with suppress(RuntimeError):  # the system gives no thread
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def add_json(parser: ArgumentParser) -> None:
    """Add the option for output that programs read."""
    parser.add_argument("--json", action="store_true", help="as one JSON value, for scripts; times are ISO 8601, UTC")


def as_json(value: Any) -> str:
    return in_json(value, indent=2)


def in_json(value: Any, **options: Any) -> str:
    """Return a value as JSON that every output can write.

    Half of a pair of surrogates, and a control character that a terminal obeys, stay escapes.
    """
    text = json.dumps(value, ensure_ascii=False, **options)
    return text if storable(printable(text)) == text else json.dumps(value, **options)


def writable(text: str, stream: Any) -> str:
    """Return a text as a stream can write it: what its encoding does not have becomes an escape of JSON."""
    encoding, errors = getattr(stream, "encoding", None) or "utf-8", getattr(stream, "errors", None) or "strict"
    try:
        text.encode(encoding, errors)
    except UnicodeError:
        return "".join(each if _has(encoding, each) else json.dumps(each)[1:-1] for each in text)
    except (LookupError, TypeError):  # a stream of the project's own
        pass
    return text


def _has(encoding: str, letter: str) -> bool:
    try:
        return bool(letter.encode(encoding))
    except UnicodeError:
        return False


def table(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield rows as lines whose columns are as wide as their widest cell."""
    cells = [[printable(storable(" ".join(str(cell).split()))) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def iso(instant: int | None) -> str | None:
    """Return an instant as programs read it."""
    return None if instant is None else (clock.EPOCH + clock.MICROSECOND * instant).isoformat()


def ago(instant: int, now: int) -> str:
    return f"{duration(max(now - instant, 0))} ago"


def arguments(entry: Job | DeadLetter) -> Any:
    """Return the arguments of a job by name, or its raw payload, with what is secret hidden."""
    try:
        return shown_call(entry)
    except (ValueError, RecursionError):
        stored = text_of(entry.payload)
        return MASKED if mask_of(entry.task_path, entry.queue_name, entry._state.db).conceals(stored) else stored


def in_one_line(call: Any) -> str:
    """Return arguments as a call has them, shortened."""
    if isinstance(call, dict):
        text = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in call.items())
    else:
        text = json.dumps(call, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{shorten(text, 10**6)[: LONGEST - 1]}…"
