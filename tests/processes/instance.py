"""An instance of a lease, ``python -m tests.processes.instance NAME TTL FILE``; FILE gets a line for each look at it.

A line is ``TOKEN BEFORE AFTER``: ``held`` was True at a moment between these two readings of the boot clock, and since
the instance has that token. So a process that was stopped between two steps is not judged wrongly.
"""

import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import django

from django_vtqueue.core import clock

PAUSE = 0.002  # seconds between two looks; or given as a fourth argument


class Term(NamedTuple):
    """For how long an instance certainly was the leader: from its first look to its last one, by the boot clock."""

    token: int
    begin: float
    end: float
    file: Path


def terms(file: Path) -> list[Term]:
    """Return the terms of an instance, as it has logged them; the last line may be cut off by a kill."""
    found: dict[int, Term] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        if len(words := line.split()) == 3 and len(words[2]) > 1:
            token, before = int(words[0]), float(words[1])
            found[token] = Term(token, found[token].begin if token in found else float(words[2]), before, file)
    return list(found.values())


def overlaps(told: list[Term]) -> list[tuple[Term, Term]]:
    """Return the terms that have a moment in common: at that moment two instances believed to be the leader."""
    ordered = sorted(told, key=lambda term: term.begin)
    return [
        (one, other)
        for number, one in enumerate(ordered)
        for other in ordered[number + 1 :]
        if other.begin <= one.end and other.end >= one.begin
    ]


if __name__ == "__main__":
    django.setup()
    from django_vtqueue import Lease

    name, ttl, path, pause = [*sys.argv[1:], PAUSE][:4]
    lease, log = Lease(name, ttl=float(ttl)), os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    print("ready", flush=True)
    while True:
        lease.acquire()
        token = lease.token
        while True:
            before = clock.since_boot()
            if not lease.held:
                break
            after = clock.since_boot()
            os.write(log, f"{token} {before:.6f} {after:.6f}\n".encode())
            time.sleep(float(pause))
