"""How a child process is started: by executing Python anew, never by forking an open database."""

import faulthandler
import json
import signal
import sys

from .. import __version__

START = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from django_vtqueue.worker.spawn import main; main()"


def command(alias: str, threads: int, descriptor: int) -> list[str]:
    """Return the command line of a child for a backend, with this interpreter's import path and warning filters.

    ``descriptor``: the file descriptor of its end of the pipe.
    """
    filters = [f"-W{option}" for option in sys.warnoptions]
    values = alias, str(threads), str(descriptor), __version__
    return [sys.executable, *filters, "-c", START, json.dumps(sys.path), *values]


def main() -> None:
    """Set Django up as the parent did, and run a child until the parent ends it.

    The parent may have begun before an upgrade of this package; what they say to each other may have changed with it.
    """
    alias, threads, descriptor, version = sys.argv[2:]
    if version != __version__:
        sys.exit(f"vtworker runs django_vtqueue {version}, but {__version__} is installed now: start the worker anew.")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # sent to all by a terminal or a service manager: the parent decides
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    import django

    django.setup()
    from .child import run

    run(alias, int(threads), int(descriptor))
