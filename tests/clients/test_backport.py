"""django-tasks, the backport, beside the framework of Django's own."""

from pathlib import Path

from .projects import Client

SETTINGS = """
INSTALLED_APPS = ["django_tasks", *INSTALLED_APPS]
TASKS["default"]["OPTIONS"] = {"threads": "many"}
"""


def test_each_error_is_said_once(tmp_path: Path) -> None:
    """An error of the settings is said once, and what is not used there is a warning."""
    project = Client(tmp_path, SETTINGS)
    assert project.manage("check").count("(vtqueue.E002)") == 1


def test_a_backport_that_is_not_used_is_a_warning(tmp_path: Path) -> None:
    """It says what is not raised and not sent, and what to import instead."""
    project = Client(tmp_path, SETTINGS + "TASKS['default']['OPTIONS'] = {}")
    said = project.manage("check")
    assert said.startswith("exit 0"), said
    assert said.count("(vtqueue.W017)") == 1
    assert "import from django.tasks" in said
