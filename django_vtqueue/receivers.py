"""Who receives the signals of Django's Tasks framework: where nobody does, nothing needs to be made for them.

Each of them has one receiver of Django's own, which writes the log, and a task's result is what they are given. To make
and send them takes as long as all the rest that runs a no-op job (measured).
"""

import logging
from weakref import ReferenceType

from django.dispatch import Signal

from .compat import FRAMEWORK_LOGGER, signals, task_enqueued

logger = logging.getLogger(FRAMEWORK_LOGGER)


def received(signal: Signal) -> bool:
    """Return whether sending this one would reach anybody: a receiver, or the log at its level.

    For what goes well: a failure, at ERROR, is sent always. Who has put something in the place of the signal's own
    ``send`` (a mock) is reached, too.
    """
    if not {"send", "send_robust"}.isdisjoint(vars(signal)):
        return True
    receivers = list(signal.receivers)  # others may connect and disconnect meanwhile
    if len(receivers) == 1 and _writes_the_log(receivers[0][1]):
        return logger.isEnabledFor(logging.DEBUG if signal is task_enqueued else logging.INFO)
    return bool(receivers)


def _writes_the_log(receiver: object) -> bool:
    """Return whether a receiver, or what a reference leads to, is the framework's own."""
    function = receiver() if isinstance(receiver, ReferenceType) else receiver
    return getattr(signals, getattr(function, "__name__", ""), None) is function
