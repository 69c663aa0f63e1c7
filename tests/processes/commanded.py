"""What vtleader runs in tests: ``python -m tests.processes.commanded FILE [ignoring]`` says in FILE while it runs.

A line is as those of instance.py, so that overlaps are found. ``ignoring``: it does not end by SIGTERM.
"""

import os
import signal
import sys
import time

from django_vtqueue.core import clock

from .instance import PAUSE

if __name__ == "__main__":
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if "ignoring" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(f"runs {os.getpid()} {os.environ['VTQUEUE_TOKEN']}", flush=True)
    while True:
        now = clock.since_boot()
        os.write(log, f"{os.environ['VTQUEUE_TOKEN']} {now:.6f} {now:.6f}\n".encode())
        time.sleep(PAUSE)
