"""Bells of those who wait for the result of a job: rung by the worker that has settled it, after its commit."""

import os
from collections.abc import Iterable
from contextlib import suppress

from ..core.ids import new_id
from .doorbell import Doorbell, folder_of, name_of, remove, send

RESULTS = "results"  # the folder, inside that of the workers' bells, of the bells of those who wait for a result


def result_bell(alias: str, folder: str | None, job_id: str) -> Doorbell:
    """Return a bell that is rung when a job has ended; see ring_results."""
    bells = folder_of(folder)
    with suppress(OSError):
        bells.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Doorbell(alias, bells / RESULTS, f"{job_id[-16:]}.{new_id()[-4:]}")


def ring_results(alias: str, folder: str | None, job_ids: Iterable[str]) -> None:
    """Wake those on this machine who wait for the end of one of these jobs; never waits, never raises."""
    bells = folder_of(folder) / RESULTS
    try:
        names = os.listdir(bells)
    except OSError:  # nothing has waited yet
        return
    if not names:
        return
    ended = {f"{name_of(alias)}-{job_id[-16:]}" for job_id in job_ids}
    for name in names:
        if name.rpartition(".")[0] in ended and not send(str(bells / name)):
            remove(str(bells / name))  # left by a dead process
