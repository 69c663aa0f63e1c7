"""The start of a child process: by executing Python anew, never by forking an open database."""

import json
import os
import signal
import sys
from collections.abc import Sequence

from ... import __version__
from ...core.forks import dump_threads_at, handle_signal
from ..signals import stop_signals

START = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from django_vtqueue.worker.children.spawn import main
main()"""


def command(alias: str, threads: int, descriptors: Sequence[int]) -> list[str]:
    """Return the command line of a child for a backend, with this interpreter's import path and warning filters.

    ``descriptors``: the file descriptors that it inherits, its end of the pipe first.
    """
    filters = [f"-W{option}" for option in sys.warnoptions]
    values = alias, str(threads), json.dumps(descriptors), __version__
    return [sys.executable, *filters, "-c", START, json.dumps(sys.path), *values]


def main() -> None:
    """Set Django up as the parent did, and run a child until the parent ends it.

    The parent may have begun before an upgrade of this package; what they say to each other may have changed with it.
    """
    alias, threads, given, version = sys.argv[2:]
    descriptors = json.loads(given)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # programs that tasks start must not keep the pipe and the bell open
    if version != __version__:
        sys.exit(f"vtworker runs django_vtqueue {version}, but {__version__} is installed now: start the worker anew.")
    for number in stop_signals():
        handle_signal(number, lambda *_: None)  # sent to all by a terminal or a service manager: the parent decides
    dump_threads_at(signal.SIGUSR1)
    import django

    django.setup()
    from .child import run

    run(alias, int(threads), descriptors[0])
