"""What tests fork their processes from: ``python tests/preloader.py SOCKET SPACE`` has imported Django and the package.

It has no settings, so it has no models, and nothing that imports them.

A message on the socket names a command of this Python; the process that runs it is made a child of who asked
(see preloaded.py). SPACE: an argument as long as command lines may be, which those of the processes are written over.
"""

import atexit
import ctypes
import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import sys
import time
import types
import warnings
from contextlib import suppress
from importlib.machinery import PathFinder
from typing import Any

# What takes longest to import in a process of the tests, of what asks for no settings.
MODULES = (
    "django.core.management",
    "django.core.serializers.json",
    "django.contrib.admin.options",
    "django.contrib.auth.checks",
    "django.contrib.auth.hashers",
    "django.contrib.auth.management",
    "django.contrib.auth.password_validation",
    "django.contrib.contenttypes.checks",
    "django.contrib.contenttypes.management",
    "django.contrib.sessions.backends.db",
    "django.contrib.syndication.views",
    "django.core.cache.backends.filebased",
    "django.db.backends.sqlite3.base",
    "django.db.migrations.loader",
    "django.template.loader",
    "django.utils.autoreload",
    "django.utils.translation.trans_real",
    "django.views.debug",
    "django.views.generic",
    "django.views.i18n",
    "asgiref.sync",
    "asyncio",
    "cronsim",
    "environ",
    "logging.config",
    "logging.handlers",
)
OPTIONAL = "django.db.backends.postgresql.base"  # where psycopg is installed
# These import most of what in the package asks for no settings, and nothing that registers checks. Servers that load an
# app before they fork do so too.
PACKAGE = "django_vtqueue"
OF_PACKAGE = (
    "runtime.signal_safe_queue",
    "execution.outcomes",
    "execution.time_limits",
    "engines.distinct",
    "migrations.0001_initial",
    "patterns.slot_cycle",
    "queue.queue",
    "worker.options",
    "worker.pacing",
    "worker.child_main",
)
LONGEST = 1 << 17  # bytes of a message
PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)  # from its start on


def preload() -> list[str]:
    """Import what takes long; return the names of all modules that are there then. They stay as long as the process."""
    usual_path = sys.path[:]
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in (*MODULES, *(f"{PACKAGE}.{name}" for name in OF_PACKAGE)):
            importlib.import_module(name)
        with suppress(Exception):
            importlib.import_module(OPTIONAL)
    sys.path[:] = usual_path
    names = [name for name in sys.modules if name not in ("__main__", "builtins", "sys")]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object([sys.modules[name] for name in names]))
    return names


def leave(names: list[str]) -> None:
    """At the end of a process, leave these modules as they are: to take them down costs as much as to import them.

    What only they refer to has no end of its own then; connections to databases have one, for threads refer to them.
    """
    sys.modules.update(dict.fromkeys(names))  # as the interpreter does with each


def serve(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork a process for each message; return its message and files there, and None here, when who asks is gone."""
    while True:
        message, files, *_ = socket.recv_fds(channel, LONGEST, 3)
        if not message:
            return None
        reading, writing = os.pipe()
        if not (middle := os.fork()):
            middle = os.getpid()
            if pid := os.fork():
                os.write(writing, str(pid).encode())
                os._exit(0)
            while os.getppid() == middle:  # until it is the child of who asked
                time.sleep(0.0002)
            channel.detach()
            return json.loads(message), files
        os.waitpid(middle, 0)
        channel.send(os.read(reading, 20))
        for file in (reading, writing, *files):
            os.close(file)


def become(message: dict[str, Any], files: list[int]) -> None:
    """Give this process what a new one has from who starts it."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    for each in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        ignored = each in PYTHON_IGNORES or each in message["ignored"]
        signal.signal(each, signal.SIG_IGN if ignored else signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    write_over(b"".join(os.fsencode(word) + b"\0" for word in message["command"]))
    os.chdir(message["cwd"])
    os.environ.clear()
    os.environ.update(message["env"])
    time.tzset()
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    for number, name in (1, "stdout"), (2, "stderr"):
        open_stream(number, name, bool(os.environ.get("PYTHONUNBUFFERED")))


def write_over(command: bytes) -> None:
    """Have the system show a command as that of this process."""
    with open("/proc/self/stat") as file:
        begin, end = map(int, file.read().rpartition(")")[2].split()[45:47])
    ctypes.memmove(begin, command.ljust(end - begin, b"\0"), end - begin)


def open_stream(number: int, name: str, unbuffered: bool) -> None:
    usual = getattr(sys, name)
    binary = open(number, "wb", 0 if unbuffered else -1, closefd=False)  # noqa: SIM115
    lines = not unbuffered and (name == "stderr" or os.isatty(number))
    stream = io.TextIOWrapper(binary, usual.encoding, usual.errors, "\n", lines, write_through=unbuffered)  # type: ignore[type-var]
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def run(arguments: list[str], usual_path: list[str]) -> None:
    """Do what the interpreter does with these arguments."""
    sys.orig_argv = [sys.executable, *arguments]
    if arguments[:2] == ["-W", "error"]:
        sys.warnoptions.append("error")
        warnings.simplefilter("error")
        arguments = arguments[2:]
    first, *others = arguments
    added = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    folder = {"-c": "", "-m": os.getcwd()}.get(first, os.path.dirname(os.path.realpath(first)))
    sys.path[:] = [folder, *dict.fromkeys([*added, *usual_path])]
    importlib.invalidate_caches()
    spec = PathFinder.find_spec(PACKAGE, sys.path)
    if spec is None or spec.origin != sys.modules[PACKAGE].__file__:  # it is to import another copy of the package
        os.execv(sys.executable, [sys.executable, *arguments])
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if first == "-m":
        sys.argv[:] = others
        runpy._run_module_as_main(others[0])  # type: ignore[attr-defined]
    elif first == "-c":
        sys.argv[:] = ["-c", *others[1:]]
        exec(compile(others[0], "<string>", "exec"), vars(main))
    else:
        sys.argv[:] = arguments
        main.__file__ = os.path.abspath(first)
        with open(first, "rb") as file:
            code = compile(file.read(), main.__file__, "exec")
        exec(code, vars(main))


if __name__ == "__main__":
    own, usual_path = __file__, sys.path[1:]  # not this folder: it has a package named queue
    sys.path[:] = usual_path
    for number in (signal.SIGINT, signal.SIGHUP):  # it ends when who asks is gone
        signal.signal(number, signal.SIG_IGN)
    preloaded: list[str] = []
    atexit.register(leave, preloaded)  # before what those modules register: it is done last
    preloaded += preload()
    gc.collect()
    gc.freeze()
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked:
        become(*asked)
        try:
            run(asked[0]["command"][1:], usual_path)
        except Exception as error:
            frame = error.__traceback__
            while frame and frame.tb_frame.f_code.co_filename == own:
                frame = frame.tb_next
            sys.excepthook(type(error), error.with_traceback(frame), frame)
            sys.exit(1)
