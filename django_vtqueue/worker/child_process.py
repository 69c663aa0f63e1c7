"""One child process of ``--processes N``, as its supervisor sees it."""

import json
import logging
import os
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict
from typing import Any

from .. import __version__
from ..backend import VTQueueBackend
from ..core.clock import NEVER
from .late_renewals import Renewals
from .log import WorkerLog
from .options import WorkerOptions
from .shared_state import SharedState, new_memory

logger = logging.getLogger("django_vtqueue")

SLOW_START = 10.0  # seconds
SLOW = "process %d is not ready after %d s and runs no job: it still imports the project (kill -USR1 %d shows where)"
IDLE_LEAVING = 15.0  # seconds for a child that holds no job to end: 5 are for receivers, 9 for the end of its process

STREAMS = ("stdin", "stdout", "stderr")
START = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from django_vtqueue.worker.child_main import main
main(json.loads(sys.argv[2]))"""


class ChildProcess:
    """One worker in a process of its own, as its supervisor sees it; ``share``: the jobs that it may begin."""

    def __init__(self, backend: VTQueueBackend, options: WorkerOptions, log: WorkerLog) -> None:
        self.share = options.max_jobs or 0
        self.began = time.monotonic()
        self.renewals = Renewals(backend.database)
        self.renew_at = 0.0  # monotonic: when the supervisor is to renew its leases again
        self.over_time = False  # killed because a job of it was over its time limit
        self.dismissed = False  # killed because it did not stop in time
        self._said_slow = False
        self._counted = 0  # jobs that newly_ended has returned
        with ExitStack() as opened:
            memory = new_memory()
            opened.callback(os.close, memory)
            theirs, self._pipe = os.pipe()
            opened.callback(os.close, theirs)
            self.state = SharedState.in_memory(memory)
            self.state.ends_at = self.state.renew_by = NEVER
            given = {
                "version": __version__,
                "alias": backend.alias,
                "options": asdict(options),
                "log": [log.verbosity, log.option, log.quiet],
                "descriptors": [theirs, memory],
                "argv": [str(each) for each in sys.argv],
                "setup": "configurations" if "configurations.importer" in sys.modules else "django",
            }
            path = [entry for entry in sys.path if isinstance(entry, str)]  # Python ignores others, as a pathlib.Path
            command = [sys.executable, "-P", *interpreter_flags(), "-c", START, json.dumps(path), json.dumps(given)]
            try:
                # In the place of one that is closed there would be whatever file is opened next.
                closed: dict[str, Any] = {name: subprocess.DEVNULL for name in STREAMS if getattr(sys, name) is None}
                self.process = subprocess.Popen(command, pass_fds=(theirs, memory), **closed)
            except BaseException:
                os.close(self._pipe)
                raise

    @property
    def worker_id(self) -> str:
        """Its name as a holder of leases; "" as long as it is not ready."""
        return self.state.worker_id.decode()

    def stop(self) -> None:
        """Have it stop gracefully; the second time, have it release what runs, and leave."""
        with suppress(OSError):  # it has just ended
            os.write(self._pipe, b"s")

    def kill(self) -> None:
        """End it at once; when this returns none of its code runs."""
        self.process.kill()
        self.process.wait()

    def newly_ended(self) -> int:
        """Return how many jobs of it have ended since the last call."""
        before, self._counted = self._counted, self.state.ended
        return self._counted - before

    def ended(self) -> bool:
        """Return whether it has ended; say once that it has not started for long."""
        if self.process.poll() is not None:
            os.close(self._pipe)
            self.state = SharedState.from_buffer_copy(self.state)  # a kept error may refer to this child for long
            return True
        if not (self.worker_id or self._said_slow) and time.monotonic() - self.began > SLOW_START:
            self._said_slow = True
            logger.warning(SLOW, self.process.pid, SLOW_START, self.process.pid)
        return False


def interpreter_flags() -> list[str]:
    """Return the options with which this interpreter was started, as multiprocessing hands them on."""
    try:
        return list(subprocess._args_from_interpreter_flags())  # type: ignore[attr-defined]
    except ValueError:  # the project has changed sys.warnoptions
        return [f"-W{option}" for option in sys.warnoptions]
