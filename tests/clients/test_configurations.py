"""django-configurations: the children of ``--processes`` load the settings as their supervisor did."""

from pathlib import Path

from .projects import Client

SETTINGS = """
from configurations import Configuration

class Production(Configuration):
    SECRET_KEY = "not secret: tests only"
    INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django_vtqueue", "shop"]
    DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}
    TASKS = {"default": {"BACKEND": "django_vtqueue.backend.VTQueueBackend"}}
"""
MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
os.environ["DJANGO_CONFIGURATION"] = "Production"
from configurations.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
ENQUEUE = """
import os
os.environ["DJANGO_CONFIGURATION"] = "Production"
import configurations
configurations.setup()
from shop.tasks import receipt
receipt.enqueue(7)
"""


def test_children_have_the_settings_of_their_supervisor(tmp_path: Path) -> None:
    """A worker with ``--processes`` runs jobs in a project whose settings are classes."""
    project = Client(tmp_path)
    project.write("settings.py", SETTINGS)
    project.write("manage.py", MANAGE)
    for command in (["manage.py", "migrate", "-v0"], ["-c", ENQUEUE]):
        assert (said := project.run(*command)).startswith("exit 0"), said
    said = project.run("manage.py", "vtworker", "--drain", "--processes", "2")
    assert said.startswith("exit 0"), said
    assert "ok    shop.tasks.receipt" in said
