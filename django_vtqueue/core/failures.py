"""An exception as it is stored: its class, its message, its traceback, and a fingerprint to group it by."""

import os
import sysconfig
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import PurePath
from types import TracebackType

import asgiref

from .masks import replaced
from .text import shorten, storable

MAX_TRACEBACK = 16 * 1024  # characters: half of them from the head (where it began), half from the tail (what it was)
MAX_MESSAGE = 1024
FRAMES_THAT_MATTER = 5
# Where frames lie that are not the project's own: this package, the standard library, what is built in.
LIBRARIES = (f"{PurePath(__file__).parent.parent}{os.sep}", sysconfig.get_path("stdlib"), "<frozen ")
TRACEBACK = vars(BaseException)["__traceback__"]  # whatever a class has in its place
CALLERS = (*LIBRARIES, *asgiref.__path__)  # of a task, by which its traceback begins


@dataclass(frozen=True, slots=True)
class Failure:
    """How an attempt failed, in the form that is stored."""

    exception_class: str
    message: str
    traceback: str
    fingerprint: str


NOT_DESCRIBED = Failure("builtins.BaseException", "The exception could not be described.", "", "not described")


def class_path(kind: type) -> str:
    """Return the dotted path of a class, as Django's TaskError has it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def words_of(exception: BaseException) -> str:
    """Return the text of ``exception``, also of one that cannot be printed."""
    try:
        return str.__str__(str(exception))  # not one of a subclass, which may do as it likes
    except BaseException as error:  # its own __str__ fails
        return f"<{class_path(type(exception))} whose str() raised {type(error).__name__}>"


def summary(exception: BaseException) -> str:
    """Return ``exception`` in one short line."""
    return f"{class_path(type(exception))}: {shorten(words_of(exception), MAX_MESSAGE)}"


def describe(exception: BaseException, secrets: Iterable[str] = ()) -> Failure:
    """Return what is kept of ``exception``, also of one that cannot be printed; never raises.

    ``secrets``: what its texts must not repeat; hidden before they are shortened, which could leave half of one.
    """
    try:
        return _described(exception, secrets)
    except BaseException:  # its class, its traceback, or the memory that is left
        return NOT_DESCRIBED


def _described(exception: BaseException, secrets: Iterable[str]) -> Failure:
    path = storable(shorten(class_path(type(exception)), MAX_MESSAGE))
    try:
        trace = "".join(traceback.format_exception(type(exception), exception, from_task(exception)))
    except BaseException as error:
        trace = f"{path}: the traceback could not be written ({type(error).__name__})\n"
    return Failure(
        exception_class=path,
        message=storable(shorten(replaced(words_of(exception), secrets), MAX_MESSAGE)),
        traceback=storable(shorten(replaced(trace, secrets), MAX_TRACEBACK)),
        fingerprint=fingerprint(path, exception),
    )


def from_task(exception: BaseException) -> TracebackType | None:
    """Return the traceback of ``exception`` from the first frame on that is not ours; all of it if there is none."""
    first: TracebackType | None = TRACEBACK.__get__(exception)
    frame = first
    while frame and frame.tb_frame.f_code.co_filename.startswith(CALLERS):
        frame = frame.tb_next
    return frame or first


def recorded(kind: type[BaseException], message: str) -> Failure:
    """Return a failure of which there is no exception to show, such as the end of a lease."""
    return describe(kind(message))


def fingerprint(path: str, exception: BaseException) -> str:
    """Return the same short text for failures of the same class from the same place, whatever their words and lines.

    The place is the last frames of the project's own code, and the one that raised: how a library came there changes
    with its version.
    """
    frames = [frame.f_code for frame, _ in traceback.walk_tb(exception.__traceback__)]
    own = [code for code in frames if not code.co_filename.startswith(LIBRARIES) and not _installed(code.co_filename)]
    places = [f"{PurePath(code.co_filename).name}:{code.co_name}" for code in own[-FRAMES_THAT_MATTER:] + frames[-1:]]
    return blake2b("\n".join([path, *places]).encode(errors="replace"), digest_size=8).hexdigest()


def _installed(filename: str) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(PurePath(filename).parts)
