"""The check that the database has the tables that this code knows."""

from django.db import connections
from django.db.migrations.loader import MigrationLoader

APP = "vtqueue"


def mismatch(alias: str) -> str:
    """Return what is wrong with the queue's tables, with the command that helps; "" if nothing is."""
    loader = MigrationLoader(connections[alias])
    known = {name for app, name in loader.disk_migrations or {} if app == APP}
    applied = {name for app, name in loader.applied_migrations or {} if app == APP}
    if missing := known - applied:
        option = "" if alias == "default" else f" --database {alias}"
        what = "are missing" if not applied else f"lack {', '.join(sorted(missing))}"
        return f"the queue's tables {what}; run: python manage.py migrate {APP}{option}"
    if unknown := applied - known:
        return (
            f"the queue's tables are ahead of this code ({', '.join(sorted(unknown))}); "
            "run: python -m pip install --upgrade django-vtqueue"
        )
    return ""
