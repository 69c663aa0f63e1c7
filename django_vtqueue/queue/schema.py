"""The check that the database has the tables that this code knows."""

from contextlib import suppress
from importlib import import_module
from pkgutil import iter_modules

from django.db import Error, connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

APP = "vtqueue"


def mismatch(alias: str) -> str:
    """Return what is wrong with the queue's tables, with the command that helps; "" if nothing is."""
    known = on_disk()
    applied = {name for app, name in MigrationRecorder(connections[alias]).applied_migrations() if app == APP}
    if missing := known - applied:
        what = "are missing" if not applied else f"lack {', '.join(sorted(missing))}"
        return f"the queue's tables {what}; run: {migrate(alias)}"
    if unknown := applied - known:
        return (
            f"the queue's tables are ahead of this code ({', '.join(sorted(unknown))}); "
            "run: python -m pip install --upgrade django-vtqueue"
        )
    return ""


def mismatch_or_hint(alias: str) -> str:
    """Return what mismatch does, after an error; else, as in a transaction that this has broken, what may be wrong."""
    with suppress(Error):
        if found := mismatch(alias):
            return found
    return f"if that is of the queue's tables, run: {migrate(alias)}"


def migrate(alias: str) -> str:
    """Return the command that makes the queue's tables."""
    return f"python manage.py migrate {APP}" + ("" if alias == "default" else f" --database {alias}")


def on_disk() -> set[str]:
    """Return the names of the migrations of this code. To load those of all apps would take each worker 20 ms."""
    module, _ = MigrationLoader.migrations_module(APP)
    if module is None:  # MIGRATION_MODULES says so
        return set()
    found = iter_modules(import_module(module).__path__)
    return {name for _, name, is_package in found if not is_package and name[0] not in "_~"}
