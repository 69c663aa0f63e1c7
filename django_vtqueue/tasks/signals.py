"""The signals of Django's Tasks framework: where they have no receivers, nothing is made for them.

Each of them has one receiver of Django's own, which writes the log, and a task's result is what they are given. To make
and send them takes as long as all the rest that runs a no-op job (measured).
"""

import logging
from collections.abc import Callable, Iterable

from django.dispatch import Signal

from ..core.failures import describe
from ..engines.savepoints import contained
from ..exceptions import TaskTimeout
from ..runtime.aside import Call
from .compat import FRAMEWORK_LOGGER, TaskResult, signals, task_enqueued

logger = logging.getLogger("django_vtqueue")
framework = logging.getLogger(FRAMEWORK_LOGGER)

Later = Callable[[Call], object]  # takes what sends signals, to be called after a commit

SENDING = {"send", "send_robust"}
WRITE_THE_LOG = [id(function) for name, function in vars(signals).items() if name.startswith("log_task_")]


def received(signal: Signal) -> bool:
    """Return whether sending this one would reach something: a receiver, or the log at its level.

    For what goes well: a failure, at ERROR, is sent always. What stands in the place of the signal's own ``send`` (a
    mock) is reached, too.
    """
    if not SENDING.isdisjoint(vars(signal)):
        return True
    receivers = list(signal.receivers)  # another thread may connect and disconnect meanwhile
    if len(receivers) == 1 and receivers[0][0][0] in WRITE_THE_LOG:
        return framework.isEnabledFor(logging.DEBUG if signal is task_enqueued else logging.INFO)
    return bool(receivers)


def send(signal: Signal, sender: type, result: TaskResult) -> None:
    """Send a signal. What its receivers raise is logged, by Django or here, and does no harm.

    Two exceptions go through: KeyboardInterrupt, and the TaskTimeout of a task whose time is up while it enqueues.
    """
    try:
        answers = signal.send_robust(sender, task_result=result)
    except (KeyboardInterrupt, TaskTimeout):
        raise
    except BaseException as error:  # SystemExit, or an exception that cannot even be logged
        logger.error("a receiver of a task's signal failed\n%s", describe(error).traceback)
        return
    for _, answer in answers:
        if isinstance(answer, TaskTimeout):
            raise answer


def send_enqueued(sender: type, results: Iterable[TaskResult]) -> None:
    """Send ``task_enqueued`` for jobs that are stored; whatever comes of it, the caller's transaction can go on."""
    for result in results:
        with contained():
            send(task_enqueued, sender, result)
