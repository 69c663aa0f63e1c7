"""Tasks keep the types of their functions, for both type checkers and whichever Django is installed."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ACCEPTED = ROOT / "tests/typing/accepted.py"
REFUSED = ROOT / "tests/typing/refused.py"

Fault = tuple[Path, int, str]


def run(*command: str | Path) -> str:
    """What a checker printed; 0 (nothing found) and 1 (something found) are the exit codes of one that did its work."""
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def mypy(*files: Path) -> Iterator[Fault]:
    for fault in map(json.loads, run("mypy", "--output", "json", *files).splitlines()):
        if fault["severity"] == "error":
            yield ROOT / fault["file"], fault["line"], fault["message"]


def pyright(*files: Path) -> Iterator[Fault]:
    report = json.loads(run("pyright", "--outputjson", "--pythonpath", sys.executable, *files))
    for fault in report["generalDiagnostics"]:
        if fault["severity"] == "error":
            yield Path(fault["file"]), fault["range"]["start"]["line"] + 1, fault["message"]


def marked(file: Path) -> set[int]:
    lines = file.read_text().splitlines()
    return {number for number, line in enumerate(lines, start=1) if line.endswith("# refused")}


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_types_of_tasks(checker: Callable[..., Iterator[Fault]]) -> None:
    """Right calls pass with the inferred types of their results; of the wrong ones each is refused, and no other."""
    faults = list(checker(ACCEPTED, REFUSED))
    assert [fault for fault in faults if fault[0] == ACCEPTED] == []

    refused = {line: message for file, line, message in faults if file == REFUSED}
    assert {line: message for line, message in refused.items() if line not in marked(REFUSED)} == {}
    assert marked(REFUSED) - refused.keys() == set()
