"""Who receives the signals of Django's Tasks framework: where nobody does, nothing needs to be made for them.

Each of them has one receiver of Django's own, which writes the log, and a task's result is what they are given. To make
and send them takes as long as all the rest that runs a no-op job (measured).
"""

import logging
from weakref import ReferenceType

from django.dispatch import Signal

from .compat import FRAMEWORK_LOGGER, task_enqueued

logger = logging.getLogger(FRAMEWORK_LOGGER)


def received(signal: Signal) -> bool:
    """Return whether anybody is told by a signal that a job is well: a receiver, or the log at the level of that."""
    if len(signal.receivers) == 1 and _writes_the_log(signal.receivers[0][1]):
        return logger.isEnabledFor(logging.DEBUG if signal is task_enqueued else logging.INFO)
    return bool(signal.receivers)


def _writes_the_log(receiver: object) -> bool:
    """Return whether a receiver, or what a reference leads to, is the framework's own."""
    function = receiver() if isinstance(receiver, ReferenceType) else receiver
    return getattr(function, "__module__", None) == f"{FRAMEWORK_LOGGER}.signals"
