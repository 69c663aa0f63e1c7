"""Which files are worth reading, and how to read them."""

import os
import tokenize
from collections.abc import Iterator
from pathlib import Path

BINARY_SUFFIXES = (".gz", ".mo", ".pyc")


class NotText(ValueError):
    """The file decodes, but is not text."""


def text_files(root: Path) -> Iterator[str]:
    """Yield the paths of the files below `root`, hidden ones and binary catalogues left out."""
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not name.startswith(".") and not name.endswith(BINARY_SUFFIXES) and os.path.isfile(path):
                yield path


def read_text(path: str) -> str:
    """Return the text of a file, decoded as it declares (PEP 263), else as UTF-8.

    Raises `SyntaxError` for an unknown encoding, `UnicodeDecodeError` for bytes that are not in it, and `NotText` for a
    NUL: UTF-16 without its mark decodes as UTF-8 without complaint, and only its NULs give it away.
    """
    with tokenize.open(path) as file:
        text = file.read()
    if "\0" in text:
        raise NotText(f"NUL at character {text.index(chr(0))}: binary data or UTF-16?")
    return text
