"""Whole projects of a user, made for one test in a folder of its own, and what their manage.py says."""

import os
import sys
from pathlib import Path
from tempfile import TemporaryFile
from textwrap import dedent

from .preloaded import start

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 250  # seconds of a command

SETTINGS = """
import django

SECRET_KEY = "not secret: tests only"
FRAMEWORK = ["django_tasks"] if django.VERSION < (6, 0) else []
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", *FRAMEWORK, "django_vtqueue", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}
TASKS = {"default": {"BACKEND": "django_vtqueue.backend.VTQueueBackend"}}
"""

# As a user's urls, views or models do: they import the tasks.
APP = """
from django.apps import AppConfig

class ShopConfig(AppConfig):
    name = "shop"

    def ready(self):
        from . import tasks
"""

TASKS = """
from django_vtqueue import task

@task
def receipt(order):
    return f"receipt {order}"
"""


class Project:
    """A project with one app, ``shop``. ``settings``: lines that are added to its settings."""

    def __init__(self, folder: Path, settings: str = "") -> None:
        self.folder = folder
        self.write("settings.py", SETTINGS + dedent(settings))
        self.write("shop/__init__.py", "")
        self.write("shop/apps.py", APP)
        self.write("shop/tasks.py", TASKS)

    @property
    def database(self) -> Path:
        return self.folder / "db.sqlite3"

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))

    def manage(self, *command: str) -> str:
        """Run a management command; return its output and errors after the line that has its exit code."""
        return self.run("-m", "django", *command)

    def python(self, code: str) -> str:
        """Run lines of Python after ``django.setup()``; see manage."""
        return self.run("-c", "import django; django.setup()\n" + dedent(code))

    def run(self, *arguments: str) -> str:
        return run(*arguments, folder=self.folder, DJANGO_SETTINGS_MODULE="settings")


def run(*arguments: str, folder: Path, fresh: bool = False, **variables: str) -> str:
    """Run this Python, warnings being errors; return "exit 0" (or another code), and the output in lines after it.

    ``fresh``: it is a new interpreter; see preloaded.start.
    """
    given = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "VTQUEUE_"))}
    env = {**given, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), **variables}
    command = [sys.executable, "-W", "error", *arguments]
    with TemporaryFile() as output:
        process = start(command, env, output=output.fileno(), cwd=folder, fresh=fresh)
        try:
            code = process.wait(LONGEST)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        return f"exit {code}\n{output.read().decode()}"
