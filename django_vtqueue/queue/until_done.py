"""Try a step at the database again until it succeeds, however long trouble lasts; for code that is no worker."""

import logging
import random
import time
from collections.abc import Callable
from math import inf
from typing import TypeVar

from django.db import Error

from ..core.backoff import busy_pause, trouble_pause
from ..engines import Engine, Trouble

T = TypeVar("T")

logger = logging.getLogger("django_vtqueue")


def until_done(engine: Engine, verb: Callable[[], T], lease: float = inf) -> T:
    """Return what ``verb`` returns; while the database is locked, full or gone, try again, and log that once.

    So it is while memory is short. ``lease``: seconds of the lease that it renews, see trouble_pause.
    """
    tries, began = 0, time.monotonic()
    while True:
        try:
            return verb()
        except (Error, MemoryError) as error:
            trouble = engine.trouble(error)
            if trouble is None:
                raise
            tries += 1
            if tries == 1:
                logger.warning("%s; waiting. Nothing is lost.", trouble.said(error))
            if trouble is Trouble.BUSY:
                time.sleep(busy_pause(time.monotonic() - began, random.random()))
            else:
                engine.disconnect()
                time.sleep(trouble_pause(tries, lease))
