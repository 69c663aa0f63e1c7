"""A process that a test forks from one that has imported Django is as a new one."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from . import preloaded
from .processes.running import Running, children
from .projects import ROOT
from .waiting import PATIENCE, wait_until

# What a process finds at its start.
FOUND = r"""
import gc, json, locale, os, random, resource, signal, sys, tempfile, threading, time, warnings
from pathlib import Path
main = sys.modules["__main__"]
pid = os.getpid()
print(json.dumps({
    "argv": sys.argv, "command": Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0"),
    "orig_argv": sys.orig_argv[1:], "path": sys.path, "cwd": os.getcwd(), "env": sorted(os.environ.items()),
    "main": [main.__name__, getattr(main, "__file__", ""), main.__spec__ and main.__spec__.name],
    "handlers": {int(each): str(signal.getsignal(each)).split(" at ")[0] for each in signal.valid_signals()},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "files": sorted(os.listdir("/proc/self/fd"))[:3],
    "inherited": [os.path.exists(f"/proc/self/fd/{n}") for n in range(3, 300)],
    "parent": os.getppid(), "group": os.getpgid(0), "session": os.getsid(0), "umask": os.umask(0),
    "limits": [resource.getrlimit(each) for each in range(16)], "nice": os.nice(0), "zone": time.tzname,
    "warnings": [sys.warnoptions, [str(each) for each in warnings.filters]],
    "streams": [[each.encoding, each.errors, each.line_buffering, each.write_through, type(each.buffer).__name__]
                for each in (sys.stdout, sys.stderr)],
    "same": [sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__], "input": sys.stdin.read(),
    "flags": [*sys.flags[:4], *sys.flags[5:]], "no_bytecode": sys.dont_write_bytecode,
    "locale": locale.setlocale(locale.LC_CTYPE),
    "threads": [each.name for each in threading.enumerate()], "tasks": os.listdir(f"/proc/{pid}/task") == [str(pid)],
    "gc": [gc.isenabled(), gc.get_threshold()], "temporary": tempfile.gettempdir(),
    "name": Path("/proc/self/comm").read_text(),
    "recursion": sys.getrecursionlimit(), "switch": sys.getswitchinterval(),
}))
"""


def started(folder: Path, *arguments: str, fresh: bool = False, **variables: str) -> Running:
    """Start this Python in a folder."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "VTQUEUE_"))}
    env = {**given, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", **variables}
    log = folder / f"log-{len(list(folder.glob('log-*')))}"
    running = Running([sys.executable, *arguments], env, log, cwd=folder, fresh=fresh)
    assert isinstance(running.process, subprocess.Popen) == fresh
    return running


def said(folder: Path, *arguments: str, **given: Any) -> tuple[int, str]:
    """Return the exit code of such a process, and what it has said."""
    running = started(folder, *arguments, **given)
    return running.wait(), running.log


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "TZ": "Asia/Kolkata", "TMPDIR": "/var/tmp"},
    ],
    ids=["plain", "variables"],
)
@pytest.mark.parametrize(
    "arguments",
    [["-c", FOUND, "a", "-x"], ["found.py", "a"], ["-m", "found", "a", ""], ["-W", "error", "-m", "found", "vtworker"]],
    ids=["code", "script", "module", "warnings"],
)
def test_it_finds_what_a_new_one_finds(tmp_path: Path, arguments: list[str], variables: dict[str, str]) -> None:
    """Arguments, paths, variables, signals, files, streams, warnings, limits and its parent are those of a new one."""
    (tmp_path / "found.py").write_text(FOUND)
    one, other = (said(tmp_path, *arguments, fresh=fresh, **variables) for fresh in (False, True))
    assert one[0] == other[0] == 0, one[1] + other[1]
    assert json.loads(one[1]) == json.loads(other[1])


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("pass", 0),
        ("import sys; sys.exit(7)", 7),
        ("raise SystemExit('no')", 1),
        ("def f():\n    raise ValueError('no')\nf()", 1),
        ("1 +", 1),
        ("import missing", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("import os; os.kill(os.getpid(), 15)", -signal.SIGTERM),
        ("import os; os._exit(3)", 3),
        ("import atexit; atexit.register(print, 'end'); print('begin')", 0),
        ("import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()", 0),
        ("import sys; sys.stdout.write('a'); sys.stderr.write('b'); sys.stdout.write('c')", 0),
        ("import os; os.execl('/bin/sh', 'sh', '-c', 'echo $HOME; exit 4')", 4),
        ("import os; print(os.fork() and os.wait()[1])", 0),
        ("class A:\n    def __del__(self): print('gone')\na = A()", 0),
        ("class A:\n    def __del__(self): print('gone')\na = A(); a.itself = a", 0),
        ("import found\nclass A:\n    def __del__(self): print('gone')\nfound.a = A()", 0),
        ("import sys, threading\ndef f():\n    while True: sys\nthreading.Thread(target=f, daemon=True).start()", 0),
    ],
)
def test_it_ends_as_a_new_one(tmp_path: Path, code: str, status: int) -> None:
    """Its exit code, its output, and what it does at its end are those of a new one; so is a traceback."""
    (tmp_path / "code.py").write_text(code)
    (tmp_path / "found.py").write_text("")
    one, other = (said(tmp_path, "code.py", fresh=fresh) for fresh in (False, True))
    if code != "raise KeyboardInterrupt":  # that shows how it came there
        assert one == other
    assert one[0] == other[0] == status


HANGS = """
import time
try:
    print('begins', flush=True)
    time.sleep(1000)
except KeyboardInterrupt:
    print('interrupted')
"""


@pytest.fixture
def hangup() -> Iterator[Callable[..., Any]]:
    """Return a function that sets what SIGHUP does in this process, until the end of the test."""
    usual = signal.getsignal(signal.SIGHUP)
    yield partial(signal.signal, signal.SIGHUP)
    signal.signal(signal.SIGHUP, usual)


def test_signals_reach_it(tmp_path: Path, hangup: Callable[..., Any]) -> None:
    """A signal that it does not handle ends it, Ctrl-C raises in it, and what this process ignores it ignores."""
    hangup(signal.SIG_DFL)
    for number, end in [(signal.SIGINT, 0), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)]:
        running = started(tmp_path, "-c", HANGS)
        running.wait_for("begins")
        running.signal(number)
        assert (running.wait(), "interrupted" in running.log) == (end, number == signal.SIGINT)
    hangup(signal.SIG_IGN)
    assert said(tmp_path, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGHUP)")[0] == 0


def test_each_has_chances_of_its_own(tmp_path: Path) -> None:
    """Two of them have no random numbers and no connection in common."""
    code = "import random, uuid, django.db; print(random.random(), uuid.uuid4(), django.db.connections.settings)"
    assert "ImproperlyConfigured" in said(tmp_path, "-c", code)[1]
    code = "import random, uuid, tempfile; print(random.random(), uuid.uuid4(), tempfile.mktemp(), end='')"
    one, other = (said(tmp_path, "-c", code)[1].split() for _ in range(2))
    assert not set(one) & set(other)


CONNECTS = """
import django, os
from django.conf import settings
engine = {"ENGINE": "django.db.backends.sqlite3", "NAME": "file"}
settings.configure(DATABASES={"default": engine})
django.setup()
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("PRAGMA journal_mode = wal")
    cursor.execute("CREATE TABLE a (b)")
print(sorted(name for name in os.listdir() if name.startswith("file")))
"""


@pytest.mark.parametrize("fresh", [False, True], ids=["forked", "new"])
def test_connections_end_with_it(tmp_path: Path, fresh: bool) -> None:
    """A connection that a process leaves open is closed at its end, and so its log is emptied."""
    assert said(tmp_path, "-c", CONNECTS, fresh=fresh) == (0, "['file', 'file-shm', 'file-wal']\n")
    assert [path.name for path in tmp_path.glob("file*")] == ["file"]


def test_what_it_begins_with(tmp_path: Path) -> None:
    """Django and what needs no settings of the package are there; settings, models, checks, and the tests are not."""
    code = """
import sys, django.conf
print(django.conf.settings.configured, "django.db.models" in sys.modules, "django_vtqueue.queue.queue" in sys.modules)
print(*[name for name in sys.modules if name.startswith(("django_vtqueue.models", "django_vtqueue.admin", "tests"))])
from django.core.checks.registry import registry
print({check.__module__.partition(".")[0] for check in registry.get_checks(include_deployment_checks=True)})
"""
    assert said(tmp_path, "-c", code) == (0, "False True True\n\n{'django'}\n")


@pytest.mark.parametrize(
    "arguments", [["-c", "import found"], ["-m", "found"], ["found.py"]], ids=["code", "module", "script"]
)
def test_another_copy_of_the_package(tmp_path: Path, arguments: list[str]) -> None:
    """A process whose paths begin with another copy of the package imports that one, and is as a new one."""
    (tmp_path / "found.py").write_text("import django_vtqueue, os; print(django_vtqueue.copy, os.getppid())\n" + FOUND)
    (tmp_path / "django_vtqueue").mkdir()
    (tmp_path / "django_vtqueue/__init__.py").write_text("copy = True")
    one, other = (said(tmp_path, *arguments, fresh=fresh) for fresh in (False, True))
    assert one == other
    assert one[1].startswith(f"True {os.getpid()}\n")


def test_a_preloader_that_is_killed_takes_nothing_with_it(tmp_path: Path) -> None:
    """What was forked from it runs on, as a child of this process, and the next process is forked from another one."""
    running = started(tmp_path, "-c", "print('begins', flush=True); import time; time.sleep(1000)")
    first = preloaded.preloader().process
    assert {running.pid, first.pid} <= set(children(os.getpid()))
    first.kill()
    first.wait()
    assert said(tmp_path, "-c", "print('next')") == (0, "next\n")
    assert preloaded.preloader().process.pid != first.pid
    running.wait_for("begins")
    assert running.process.poll() is None
    assert running.pid in children(os.getpid())
    running.clean_up()


def test_no_preloader_stays(tmp_path: Path) -> None:
    """The process to fork from ends with the one that started it, even if that is killed."""
    code = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests import preloaded
output = os.open("inner", os.O_WRONLY | os.O_CREAT)
inner = preloaded.start([sys.executable, "-c", "print('inner')"], dict(os.environ), output=output)
assert inner.wait() == 0
print(preloaded.preloader().process.pid, flush=True)
if sys.argv[2:]:
    os.kill(os.getpid(), 9)
"""
    for arguments, code_of_end in ([], 0), (["killed"], -signal.SIGKILL):
        running = started(tmp_path, "-c", code, str(ROOT), *arguments)
        assert running.wait() == code_of_end, running.log
        assert (tmp_path / "inner").read_text() == "inner\n"
        pid = int(running.log)
        wait_until(lambda pid=pid: not Path(f"/proc/{pid}").exists() or "preloader" not in command(pid), PATIENCE)


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_who_starts_it_elsewhere_has_a_new_one(tmp_path: Path) -> None:
    """A thread or process with limits or namespaces of its own does not start a process that has others."""
    assert said(tmp_path, "-c", "pass")[0] == 0  # there is a preloader
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        with (tmp_path / "log").open("wb") as output:
            process = preloaded.start([sys.executable, "-c", "pass"], dict(os.environ), output=output.fileno())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert isinstance(process, subprocess.Popen)
    assert process.wait() == 0
