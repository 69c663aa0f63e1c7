"""A traceback for people: the frames of the project's own code stand open, those of libraries are folded."""

import re
from collections.abc import Iterator
from itertools import groupby

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..core.failures import LIBRARIES
from ..core.history import Entry
from . import display

TEXT, OWN, LIBRARY = "text", "own", "library"
# "File" stands behind the bars of an exception group, if the frame is of one.
FRAME = re.compile(r'(?P<indent>[ |]*)File "(?P<file>[^"\n]*)", line \d+')
# Where libraries lie on other machines than this one, by whatever slash their paths are written; a fingerprint is made
# where the code runs (core/failures.py).
INSTALLED = re.compile(r"[/\\](site-packages|dist-packages|lib[/\\]python3[.\d]*)[/\\]")


def folded(traceback: str) -> SafeString:
    """Return a stored traceback as markup; one without a frame of the project stands open as a whole."""
    traceback = display.cut(traceback)
    parts = [(kind, [line for _kind, line in lines]) for kind, lines in groupby(kinds(traceback), lambda one: one[0])]
    if not any(kind == OWN for kind, _lines in parts):
        return display.copyable(format_html('<pre class="vtq-text">{}</pre>', traceback))
    marked = format_html_join("", "{}", ((markup(kind, lines),) for kind, lines in parts))
    return display.copyable(format_html('<div class="vtq-trace">{}</div>', marked))


def kinds(traceback: str) -> Iterator[tuple[str, str]]:
    """Yield each line of a traceback with what it belongs to: a frame of the project, of a library, or neither."""
    kind, indent = TEXT, 0
    for line in traceback.splitlines():
        if frame := FRAME.match(line):
            kind, indent = LIBRARY if of_library(frame["file"]) else OWN, len(frame["indent"])
        elif kind != TEXT and not belongs(line, indent):
            kind = TEXT
        yield kind, line


def belongs(line: str, indent: int) -> bool:
    """Return whether a line belongs to the frame before it: its code, marks below that, or "Previous line repeated"."""
    inner = line[indent:]
    return not line[:indent].strip(" |") and (inner.startswith("  ") or inner.startswith("[Previous line"))


def of_library(file: str) -> bool:
    """Return whether a file is not the project's own."""
    return file.startswith(LIBRARIES) or bool(INSTALLED.search(file))


def markup(kind: str, lines: list[str]) -> SafeString:
    """Return lines of one kind."""
    code = format_html('<pre class="vtq-text vtq-{}">{}</pre>', kind, "\n".join(lines))
    if kind != LIBRARY:
        return code
    number = sum(FRAME.match(line) is not None for line in lines)
    text = ngettext("%d frame of a library", "%d frames of libraries", number) % number
    return format_html("<details><summary>{}</summary>{}</details>", text, code)


def last_of(entries: list[Entry]) -> SafeString | str:
    """Return the traceback of the last attempt that left one; it says so if there were others after that."""
    for entry in reversed(entries):
        if traceback := entry.get("traceback"):
            if entry is entries[-1]:
                return folded(str(traceback))
            of_which = _("Of attempt %(number)s:") % {"number": display.cut(entry.get("number", ""))}
            return format_html("{} {}", of_which, folded(str(traceback)))
    return "-"
