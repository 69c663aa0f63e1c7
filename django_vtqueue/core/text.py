"""Texts as they are stored and shown: without what a database, a terminal or a line cannot hold, and cut."""

import re

# Control characters that a terminal obeys, and those of Unicode that turn the direction of what follows.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def storable(text: str) -> str:
    """Return ``text`` without what no database stores: NUL characters and lone surrogates."""
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()


def printable(text: str) -> str:
    """Return ``text`` with escapes for what a terminal or a browser obeys; tab and newline are left as they are."""
    return CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def one_line(text: str) -> str:
    """Return ``text`` with escapes for all that is not printed in its line, so that no reader takes it for more."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def shorten(text: str, limit: int) -> str:
    """Return ``text`` with its middle left out where it is longer than ``limit`` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def shown(value: object) -> str:
    """Return a value as an error text has it, in 60 characters at the most."""
    try:
        text = repr(value)
    except Exception:  # a whole number of more than 4300 digits, for one
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:40]} ... {text[-15:]}"
