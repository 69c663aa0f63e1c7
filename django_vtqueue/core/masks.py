"""Secrets by their names: hidden in stored values, and in the texts that repeat them."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, quote_plus

from .encoding import decode

MASKED = "••••"
SHORTEST = 4  # characters of a value that is looked for in texts: shorter ones are part of many words
# How a text begins that may be JSON, encoded twice even; with the group it looks like keys or texts of JSON or Python.
LIKE_JSON = re.compile(r"""\s*(?:\\*")*[\[{(]+\s*\\*(["'])?""")


@dataclass(frozen=True, slots=True)
class Mask:
    """What is hidden of the payloads of a queue, and of one task.

    ``words``: in small letters; a key that contains one of them hides its value. ``positions``: whether each argument
    of the task that is passed by position is hidden; ``behind``: whether all that come after these are. ``damaged``:
    whether a payload that cannot be read is hidden even if it contains none of the words.
    """

    words: tuple[str, ...]
    positions: tuple[bool, ...] = ()
    behind: bool = False
    damaged: bool = False

    def names(self, text: str) -> bool:
        """Return whether a name, or any other text, contains one of the words."""
        small = text.lower()
        return any(word in small for word in self.words)

    def hide(self, value: Any) -> Any:
        """Return a JSON value with ``MASKED`` for what is secret in it; its lists and dictionaries are changed."""
        root = [value]
        for container, key in self._secret_places(root):
            container[key] = MASKED
        return root[0]

    def conceals(self, text: str) -> bool:
        """Return whether a stored text that is not JSON is hidden: its values cannot be told apart."""
        return self.damaged or self.names(text)

    def texts(self, payload: str) -> list[str]:
        """Return the texts in which messages may repeat what is hidden of a stored payload, the longest first."""
        try:
            root = [decode(payload)]
        except ValueError:
            return []
        values = [container[key] for container, key in self._secret_places(root)]
        found = {spelling for text in _texts_in(values) for spelling in _spellings(text)}
        return sorted((text for text in found if len(text.strip()) >= SHORTEST), key=len, reverse=True)

    def _secret_places(self, root: list[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield the container and the key of each value in ``root[0]`` that is secret. This alone decides what is.

        Without recursion: a payload may be nested as deeply as JSON can be read.
        """
        if isinstance(root[0], dict) and isinstance(args := root[0].get("args"), list):
            for number in range(len(args)):
                if self.positions[number] if number < len(self.positions) else self.behind:
                    yield args, number
        waiting: list[Any] = [root]
        while waiting:
            container = waiting.pop()
            for key, item in container.items() if isinstance(container, dict) else enumerate(container):
                if (isinstance(key, str) and self.names(key)) or (isinstance(item, str) and self._in_json(item)):
                    yield container, key
                elif isinstance(item, dict | list):
                    waiting.append(item)

    def _in_json(self, text: str) -> bool:
        """Return whether a text is JSON itself, or the beginning of JSON, and has something secret in it."""
        begins = LIKE_JSON.match(text)
        if not begins:
            return False
        try:
            inner = decode(text)
        except ValueError:
            return begins[1] is not None and self.names(text)
        return any(True for _ in Mask(self.words)._secret_places([inner]))


def replaced(text: str, secrets: Iterable[str]) -> str:
    """Return a text with ``MASKED`` for what of ``secrets`` it repeats."""
    for secret in secrets:
        text = text.replace(secret, MASKED)
    return text


def _texts_in(value: Any) -> Iterator[str]:
    """Yield the texts and numbers of a JSON value, also of JSON that stands in a text."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict | list):
            waiting += item.values() if isinstance(item, dict) else item
        elif isinstance(item, str):
            yield item
            if LIKE_JSON.match(item):
                with suppress(ValueError):
                    waiting.append(decode(item))
        elif isinstance(item, int | float) and not isinstance(item, bool):
            yield str(item)


def _spellings(text: str) -> Iterator[str]:
    """Yield a text as messages write it: as it is, line by line, quoted by Python or JSON, in an address."""
    yield text
    yield from (line.strip() for line in text.splitlines())
    yield repr(text)[1:-1]
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield quote(text, errors="replace")
    yield quote(text, safe="", errors="replace")
    yield quote_plus(text, errors="replace")
