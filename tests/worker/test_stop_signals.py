"""The signals that stop a worker: they end its process, whatever it waits for, and no other process."""

import subprocess
import sys

import pytest

PROGRAM = """
import _thread, os, signal, sys
from django_vtqueue.worker import stop_signals

stop_signals.ANSWERED_WITHIN = 0.1

def refuse(*given):
    raise RuntimeError("can't start new thread")

if "refused" in sys.argv:
    stop_signals.start_new_thread = refuse
signals = stop_signals.StopSignals(owns_process=True, timeout=0.0)
signals.then(lambda: print("noted", flush=True))
with signals.listening():
    os.kill(os.getpid(), signal.SIGTERM)
    if "hangs" in sys.argv:
        signal.pause()
while _thread._count():
    pass
print("goes on", flush=True)
"""


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("hangs", 1, "noted\n"),
        ("ends", 0, "noted\ngoes on\n"),  # a program that goes on after the command
        ("refused", 0, "noted\ngoes on\n"),  # no thread is to be had: the signal is noted, as any
    ],
)
def test_only_a_worker_that_hangs_is_ended(how: str, code: int, said: str) -> None:
    """One that was told to stop, and gets no answer, ends its process; one that ends leaves it to who goes on."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], check=False, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (code, said)
    assert ("gives no answer" in ended.stderr) == (how == "hangs")
