"""The moving picture of the README: a worker is killed, and another one goes on with its job.

``python -m docs.screenshots.recording`` records two real workers, and writes what they said, when they said it.
"""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from socket import gethostname
from typing import NamedTuple

import django
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

HERE = Path(__file__).resolve().parent
PICTURE = HERE.parent / "pictures/killed.svg"
WIDTH = 104  # characters
KILLED_AT = "row 4 of"
REST = 4.0  # seconds for which the whole is seen before it begins again
STYLES = {"worker 1": "cyan", "worker 2": "green", "$": "bold yellow"}
SHOWN_FROM = """
@keyframes line-{number} {{ 0%, {before:.2f}% {{ opacity: 0 }} {after:.2f}%, 100% {{ opacity: 1 }} }}
[clip-path$="-line-{number})"] {{ animation: line-{number} {length:.1f}s infinite }}"""
STILL = "\n@media (prefers-reduced-motion: reduce) { [clip-path] { animation: none !important } }"


class Said(NamedTuple):
    """A line: when it was said (seconds from the begin), by whom, and what."""

    at: float
    who: str
    text: str


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="vtq-") as folder:
        os.environ |= {"SCREENSHOTS_FOLDER": folder, "DJANGO_SETTINGS_MODULE": "docs.screenshots.settings"}
        os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parent.parent)])
        sys.path.insert(0, str(HERE))
        django.setup()
        PICTURE.write_text(drawn(list(recorded())))


def recorded() -> Iterator[Said]:
    """Have two workers run a job, kill the one that has it, and yield what is said until the job is done."""
    from shop.tasks import import_orders

    from .processes import Processes

    processes = Processes()
    try:
        processes.run("migrate")
        logs = [processes.start(" ready: ", "vtworker", "--no-reload", "--threads", "1")[1] for _ in range(2)]
        read, names, killed = [log.stat().st_size for log in logs], dict[int, str](), False
        begin = time.monotonic()
        yield Said(0.0, "$", 'import_orders.enqueue("orders.csv")')
        import_orders.enqueue("orders.csv")
        while True:
            for number, log in enumerate(logs):
                for line in log.read_text()[read[number] :].splitlines(keepends=True):
                    if not line.endswith("\n"):
                        break
                    read[number] += len(line)
                    name = names.setdefault(number, f"worker {len(names) + 1}")
                    yield Said(time.monotonic() - begin, name, line.strip())
                    if KILLED_AT in line and not killed:
                        killed = True
                        pid = processes.running[number].pid
                        time.sleep(0.2)
                        os.kill(pid, signal.SIGKILL)
                        yield Said(time.monotonic() - begin, "$", f"kill -9 {pid}")
                    if line.startswith("ok "):
                        return
            time.sleep(0.01)
    finally:
        processes.end()


def drawn(lines: list[Said]) -> str:
    """Return a picture in which each line appears when it was said."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    for said in lines:
        text = said.text.replace(f"{gethostname()}:", "web1:")
        who = "" if said.who == "$" else said.who
        shown = f"{said.at:5.1f} s  {who:9} {f'$ {text}' if said.who == '$' else text}"
        console.print(Text(shown, style=STYLES[said.who], no_wrap=True, overflow="ellipsis"))
    picture = console.export_svg(title="two workers, one database file", theme=MONOKAI)
    length = lines[-1].at + REST
    rules = [
        SHOWN_FROM.format(number=number, length=length, before=part, after=part + 0.01)
        for number, part in ((number, 100 * said.at / length) for number, said in enumerate(lines) if said.at)
    ]
    return picture.replace("</style>", "".join(rules) + STILL + "\n    </style>", 1)


if __name__ == "__main__":
    main()
