"""The end of a process of a worker."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading, time
from django_vtqueue.worker import process

process.ORDERLY_END = 0.1
with process.ending_with_program():
    threading.Thread(target=time.sleep, args=(600,)).start()
    print("done", end="")
    {end}
"""


@pytest.mark.parametrize(
    ("end", "code"), [("", 0), ("sys.exit(3)", 3), ("sys.exit('what is wrong')", 1), ("1 / 0", 1), ("sys.exit()", 0)]
)
def test_the_exit_code_of_a_process_that_a_thread_would_keep(end: str, code: int) -> None:
    """It is what it would have been, and what was printed is written."""
    command = [sys.executable, "-c", PROGRAM.format(end=end)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (code, "done"), ended.stderr
