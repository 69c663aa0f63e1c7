"""Which settings hold for a queue or a database, and in which database a backend keeps its jobs."""

from functools import lru_cache
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import router

from ..conf import Options, configured
from ..core.text import shown


def database_of(options: Options) -> str:
    """Return the one alias that the workers, the admin and the commands of a backend use."""
    return options.database or router.db_for_write(_job_model())


@lru_cache
def _job_model() -> type[Any]:
    require_app()
    from ..models import Job  # this module is imported before the apps are ready

    return Job


def require_app() -> None:
    """Raise ImproperlyConfigured if the tables are not those of an installed app."""
    if not apps.is_installed("django_vtqueue"):
        raise ImproperlyConfigured(
            'TASKS uses django_vtqueue, which is not installed: INSTALLED_APPS = [..., "django_vtqueue"]. Then run: '
            "python manage.py migrate"
        )


def options_for(queue_name: str, database: str | None = None) -> Options:
    """Return the options for a queue: of the backend that names it, else of one that allows any, else of the first.

    ``database``: only of backends that use this alias. Without any backend the defaults hold.
    """
    return _serving(queue_name, database)[0]


def mask_words(queue_name: str, database: str | None = None) -> tuple[str, ...]:
    """Return the words of ``mask`` for a queue, in small letters.

    They are those of the backend that names the queue, else of backends that allow any queue, else of all backends.
    ``database``: only of backends that use this alias. Without any backend the defaults hold.
    """
    masks = [entry.mask for entry in _serving(queue_name, database)]
    return tuple(dict.fromkeys(word.lower() for mask in masks for word in mask))


def _serving(queue_name: str, database: str | None) -> list[Options]:
    """Return the options of those backends that may serve a queue; one at least."""
    entries = options_of_database(database)
    naming = [entry for entry in entries if queue_name in entry.queues or queue_name in entry.queue_options]
    allowing = [entry for entry in entries if not entry.queues]
    return naming or allowing or entries or [Options()]


def backend_options(database: str | None = None) -> Options:
    """Return the options of the backend that uses a database (None: of the first one), for what concerns any queue."""
    return next(iter(options_of_database(database)), Options())


def database_for(using: str | None = None, queue_name: str | None = None) -> str:
    """Return the database alias that a caller gave, or else that of a queue (None: of the first backend).

    Raise ValueError for what can be no alias.
    """
    if using is None:
        return database_of(backend_options() if queue_name is None else options_for(queue_name))
    if not isinstance(using, str) or not using:
        raise ValueError(
            f"using is {shown(using)}, but must be an alias of DATABASES, or None for the one of your settings."
        )
    return using


def options_of_database(database: str | None) -> list[Options]:
    """Return the options of the backends that use a database (None: of all)."""
    return [entry for entry in configured().values() if database in (None, database_of(entry))]


def shares_disk(database: str) -> bool:
    """Return whether several hosts write to the file of a database (``shared_disk``)."""
    return any(entry.shared_disk for entry in options_of_database(database))


def named_queues(database: str | None) -> set[str]:
    """Return the queues that the settings of a database's backends (None: of all) name."""
    return {name for entry in options_of_database(database) for name in (*entry.queues, *entry.queue_options)}
