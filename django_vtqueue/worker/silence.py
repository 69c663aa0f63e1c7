"""A control loop that waits for an answer: the worker says so, and leaves if it was told to stop and holds nothing.

A server may stand still though its connections stay open, and a disk of the network too; nothing ends such a wait.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from ..runtime.aside import logging_aside
from .stop_signals import end_unanswered

logger = logging.getLogger("django_vtqueue")

LOOK = 1.0  # seconds between two looks; looks are counted, for this process itself may have stood still
SAID_AFTER = 4  # looks
LEAVES_AFTER = 8  # looks; at its end it waits for the receivers of signals for 5 s, and for its statistics for 1 s
SILENT = "the database, or something else that this worker waits for, has given no answer for %.0f s; it waits on"


class SilenceWatch:
    """Watches a control loop, from a thread. ``holds``: whether the worker holds jobs, so that it has to wait on.

    ``stopping``: it was told to stop. ``owns_process``: it may end the process.
    """

    def __init__(self, holds: Callable[[], bool], *, owns_process: bool) -> None:
        self.holds, self.owns_process = holds, owns_process
        self.stopping = False
        self._rests, self._resting = 0, False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch during the block; where the system gives no thread, nothing is said."""
        ended = Event()
        with suppress(RuntimeError):
            Thread(target=self._watch, args=(ended,), name="vtworker-silence", daemon=True).start()
        try:
            yield
        finally:
            ended.set()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Note that the loop has come round, and sleeps during the block."""
        self._rests, self._resting = self._rests + 1, True
        try:
            yield
        finally:
            self._resting = False

    @logging_aside()
    def _watch(self, ended: Event) -> None:
        looks, seen = 0, 0
        while not ended.wait(LOOK):
            looks = looks + 1 if self._rests == seen and not self._resting else 0
            seen = self._rests
            if not self.stopping and looks == SAID_AFTER:
                logger.warning(SILENT, looks * LOOK)
            elif self.stopping and self.owns_process and looks >= LEAVES_AFTER and not self.holds():
                end_unanswered()
