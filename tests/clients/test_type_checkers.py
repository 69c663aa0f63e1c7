"""pyright and ty without django-stubs: they know the arguments and results of tasks all the same."""

import subprocess
import sys
from pathlib import Path

import pytest

from ..test_typing import ACCEPTED, REFUSED, ROOT, marked

PYRIGHT = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
TY = [sys.executable, "-m", "ty", "check", "--python", sys.prefix, "--output-format", "concise"]


def faults(command: list[str], file: Path) -> dict[int, str]:
    """Return the errors that a type checker finds in a file, by their lines."""
    done = subprocess.run([*command, str(file)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if f"{file.name}:" in line and "error" in line]
    return {int(line.partition(f"{file.name}:")[2].partition(":")[0]): line for line in lines}


@pytest.mark.parametrize("checker", [PYRIGHT, TY], ids=["pyright", "ty"])
def test_right_calls_pass(checker: list[str]) -> None:
    """The calls that are right have no error, and the inferred types of their results."""
    assert faults(checker, ACCEPTED) == {}


def test_pyright_refuses_wrong_calls() -> None:
    """Each call that is wrong is an error, and no other line."""
    assert faults(PYRIGHT, REFUSED).keys() == marked(REFUSED)


def test_ty_refuses_wrong_calls() -> None:
    """Calls of a task with wrong arguments are errors, and no line that is right; of a few others ty knows less."""
    found = faults(TY, REFUSED).keys()
    assert found <= marked(REFUSED)
    assert len(marked(REFUSED) - found) <= 3
