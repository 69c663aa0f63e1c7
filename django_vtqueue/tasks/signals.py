"""The signals of Django's Tasks framework: where they have no receivers, nothing is made for them.

Each of them has one receiver of Django's own, which writes the log, and a task's result is what they are given. To make
and send them takes as long as all the rest that runs a no-op job (measured).
"""

import logging

from django.dispatch import Signal

from .compat import FRAMEWORK_LOGGER, signals, task_enqueued

logger = logging.getLogger(FRAMEWORK_LOGGER)
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
        return logger.isEnabledFor(logging.DEBUG if signal is task_enqueued else logging.INFO)
    return bool(receivers)
