"""goatbeat-django imports a module of each installed app by its name: none of ours is one."""

from pathlib import Path
from typing import Any

from .projects import Client

GOATBEAT = """
INSTALLED_APPS = [*INSTALLED_APPS, "goatbeat.django"]
DATABASES = {{"default": {database!r}}}
"""


def test_goatbeat_finds_no_schedules_of_ours(tmp_path: Path, own_database: dict[str, Any]) -> None:
    """It takes ``<app>.schedules`` of each app for a declaration of its own schedules, and ends with an error."""
    project = Client(tmp_path, GOATBEAT.format(database=own_database))
    said = project.manage("check")
    assert said.startswith("exit 0"), said
