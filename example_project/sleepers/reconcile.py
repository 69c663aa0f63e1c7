"""What an instance does in its turn: it looks at all that should run, and starts what is missing."""

from collections.abc import Callable
from contextlib import suppress

from django.db import OperationalError

from . import processes
from .models import Sleeper

Journal = Callable[[str, processes.Process], None]


def reconcile(may_act: Callable[[], bool], journal: Journal) -> None:
    """Start what should run and is missing, as long as `may_act()`; tell `journal` each start.

    What a killed instance has started, but not written down, is found and written down, instead of started again.
    """
    wanted = Sleeper.objects.filter(should_run=True)
    missing = [sleeper for sleeper in wanted if not processes.runs(sleeper.pid, sleeper.born)]
    there = processes.find() if missing else {}
    found = []
    for sleeper in missing:
        if not may_act():
            break
        if sleeper.name in there:
            process = there[sleeper.name][0]
        else:
            process = processes.start(sleeper.name)
            journal(sleeper.name, process)
        sleeper.pid, sleeper.born = process
        found.append(sleeper)
    if found and may_act():
        with suppress(OperationalError):  # the database is locked: they are found the next time
            Sleeper.objects.bulk_update(found, ["pid", "born"])
