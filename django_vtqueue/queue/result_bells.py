"""Bells of those who wait for the result of a job: rung by the worker that has settled it, after its commit."""

import time
from collections.abc import Iterable
from itertools import islice

from ..core.ids import new_id
from .doorbell import Doorbell, folder_of, names_in, place_of, remove, send
from .proof_of_death import refuses

RESULTS = "results"  # the folder, inside that of the workers' bells, of the bells of those who wait for a result
TRIED_AGAIN = 60.0  # seconds after which the owner of a bell may have died
MOST_TRIED = 500  # bells, in one look: there may be thousands


def result_bell(alias: str, folder: str | None, job_id: str) -> Doorbell:
    """Return a bell that is rung when a job has ended; see ResultBells."""
    return Doorbell(alias, folder_of(folder), f"{job_id[-16:]}.{new_id()[-4:]}", RESULTS)


class ResultBells:
    """The bells of those who wait on this machine, as one worker knows them.

    It tries each bell that it has not seen yet, and removes what a dead process has left: the job of that may have
    ended long ago, and whatever lies there is looked through whenever a job ends.
    """

    def __init__(self, alias: str, folder: str | None) -> None:
        self._place = place_of(alias, folder_of(folder), RESULTS)
        self._tried: set[str] = set()
        self._again_at = 0.0  # monotonic

    def ring(self, job_ids: Iterable[str]) -> None:
        """Wake those who wait for the end of one of these jobs; never waits, never raises."""
        if not (names := names_in(self._place)):
            return
        self._remove_the_dead(names)
        waiting: dict[str, list[str]] = {}
        for name in names:
            waiting.setdefault(name.partition(".")[0], []).append(name)
        for job_id in job_ids:
            for name in waiting.get(job_id[-16:], ()):
                if not send(path := f"{self._place}/{name}"):
                    remove(path)

    def _remove_the_dead(self, names: Iterable[str]) -> None:
        if time.monotonic() >= self._again_at:
            self._tried.clear()
            self._again_at = time.monotonic() + TRIED_AGAIN
        for name in islice((name for name in names if name not in self._tried), MOST_TRIED):
            self._tried.add(name)
            if refuses(path := f"{self._place}/{name}"):
                remove(path)
