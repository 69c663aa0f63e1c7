"""A log handler that hangs."""

import logging
import os
import time
from pathlib import Path

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"hanging": {"class": "tests.hindering.logs.Hanging"}},
    "root": {"handlers": ["hanging"], "level": "INFO"},
}


class Hanging(logging.Handler):
    """Writes lines as a server would that stands still: each is written once there is the file VTQUEUE_TEST_GO."""

    def emit(self, record: logging.LogRecord) -> None:
        while not Path(os.environ.get("VTQUEUE_TEST_GO", "/nowhere/at/all")).exists():
            time.sleep(0.01)
        print(record.getMessage(), flush=True)
