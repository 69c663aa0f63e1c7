"""Tasks whose modules a claimer has not loaded: their limits are known when these are imported."""

import time
from collections.abc import Callable

from ..core.clock import NEVER

AGAIN = 10.0  # seconds after which what could not be imported is tried again
LATELY = 1.0  # seconds after an import in which jobs that were put off for it may still wait


class Imports:
    """Modules of tasks that a claimer has not loaded; jobs are put off while they are imported for their limits.

    ``load`` imports the module of a task, here or in a thread, then calls ``note_tried``; it raises nothing.
    """

    def __init__(self, load: Callable[[str], None] = lambda path: None) -> None:
        self._load = load
        self._tried: dict[str, float] = {}  # paths of tasks, and when (monotonic) the last try ended; NEVER: it goes on

    def awaits(self, path: str) -> bool:
        """Return whether a task is being imported; what could not be is not waited for until it is tried again."""
        if time.monotonic() >= self._tried.get(path, -AGAIN) + AGAIN:
            self._tried[path] = NEVER
            self._load(path)
        return self._tried[path] == NEVER

    def note_tried(self, path: str) -> None:
        """Note that the import of a task has ended; from any thread."""
        self._tried[path] = time.monotonic()

    def lately(self) -> bool:
        """Return whether a task is being imported, or was within the last second."""
        return any(at > time.monotonic() - LATELY for at in list(self._tried.values()))
