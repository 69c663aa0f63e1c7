"""The check that the database has the tables that this code knows."""

from importlib import import_module
from pkgutil import iter_modules

from django.db import DatabaseError, connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

APP = "vtqueue"


def mismatch(alias: str) -> str:
    """Return what is wrong with the queue's tables, with the command that helps; "" if nothing is."""
    known = on_disk()
    applied = {name for app, name in MigrationRecorder(connections[alias]).applied_migrations() if app == APP}
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


def mismatch_or_hint(alias: str) -> str:
    """Return what mismatch does after an error; inside a transaction that this has broken, what is probably wrong."""
    try:
        return mismatch(alias)
    except DatabaseError:
        return f"the queue's tables are missing, or of another version; run: python manage.py migrate {APP}"


def on_disk() -> set[str]:
    """Return the names of the migrations of this code. To load those of all apps would take each worker 20 ms."""
    module, _ = MigrationLoader.migrations_module(APP)
    if module is None:  # MIGRATION_MODULES says so
        return set()
    found = iter_modules(import_module(module).__path__)
    return {name for _, name, is_package in found if not is_package and name[0] not in "_~"}
