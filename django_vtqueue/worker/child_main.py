"""What a child of ``--processes`` runs: a worker, in a process that executes Python anew and forks no open database."""

import gc
import os
import signal
import sys
import threading
from importlib import import_module
from typing import Any, cast

from .. import __version__
from ..runtime.forks import dump_threads_at, handle_signal
from .process import write_lines_at_once
from .shared_state import SharedState
from .stop_signals import stop_signals


def main(given: dict[str, Any]) -> None:
    """Set Django up as the supervisor did, and run a worker until the supervisor stops it, or is gone.

    The supervisor may have begun before an upgrade of this package; what it gives may have changed with that.
    """
    version = given["version"]
    if version != __version__:
        sys.exit(f"vtworker runs django_vtqueue {version}, but {__version__} is installed now: restart the worker.")
    pipe, memory = given["descriptors"]
    for descriptor in pipe, memory:
        os.set_inheritable(descriptor, False)  # programs that tasks start have no use for them
    write_lines_at_once()
    sys.argv[:] = given["argv"]  # settings may look there
    leave_signals_to_the_supervisor()
    dump_threads_at(signal.SIGUSR1)
    gc.disable()  # until all is imported: a sixth of the time of a start
    os.environ.pop("NOTIFY_SOCKET", None)  # the service manager watches the supervisor
    workers: list[Any] = []
    try:
        threading.Thread(target=obey, args=(pipe, workers), name="supervisor", daemon=True).start()
    except RuntimeError as error:
        sys.exit(f"The system refuses this process a thread ({error}): give fewer --processes, or raise its limit.")
    import_module(given["setup"]).setup()  # django's, or that of django-configurations
    run(given, workers, SharedState.in_memory(memory))


def leave_signals_to_the_supervisor() -> None:
    """Do nothing at a signal that a terminal or a service manager sends to all processes: the supervisor decides."""
    for number in stop_signals():
        handle_signal(number, lambda *_: None)


def run(given: dict[str, Any], workers: list[Any], state: SharedState) -> None:
    """Run the worker, once Django is set up; add it to ``workers``."""
    from ..backend import VTQueueBackend
    from ..tasks.compat import task_backends
    from ..tasks.lookup import import_task_modules
    from .log import WorkerLog
    from .logging_setup import log_lines, without_unread_records
    from .loop import Worker
    from .options import WorkerOptions
    from .process import ENDED_WITHIN, CannotRun, end_if_log_is_deleted, end_within, ending_with_program
    from .shutdown import exit_after_release

    backend = cast(VTQueueBackend, task_backends[given["alias"]])
    verbosity, option, quiet = given["log"]
    log = WorkerLog(verbosity=verbosity, option=option, now=backend.now)
    log.quiet = quiet
    options = given["options"]
    options["queues"] = options["queues"] and tuple(options["queues"])
    with ending_with_program(), log_lines(sys.stderr, verbosity), without_unread_records():
        end_if_log_is_deleted()
        import_task_modules(backend.settings.task_modules)
        leave_signals_to_the_supervisor()  # the project may have handlers of its own, which it has set since
        worker = Worker(backend, WorkerOptions(**options), log, state)
        workers.append(worker)
        gc.freeze()  # what is there now stays: no need to look through it again and again
        gc.enable()
        try:
            worker.run()
        except CannotRun as error:
            sys.exit(str(error))
        if worker.left_running:
            exit_after_release()
        end_within(ENDED_WITHIN)  # a thread that a task has left may keep the interpreter to itself


def obey(pipe: int, workers: list[Any]) -> None:
    """Stop the worker as often as its supervisor says; at once when that is gone: nothing renews its leases then."""
    told = b"s"
    while told:
        told = os.read(pipe, 1)
        if not workers:  # it still imports the project, and holds nothing
            os._exit(0)
        workers[0].stop()
    workers[0].stop()
