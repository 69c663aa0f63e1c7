"""The tasks of the project: the way from a stored path to a task, and which modules may be imported for it."""

import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from django.apps import apps

from ..exceptions import UnknownTask
from .compat import Task

found_tasks: dict[str, Task] = {}  # by their stored paths: each claim of jobs with keys asks again


def find_task(path: str, task_modules: Iterable[str] = ()) -> Task:
    """Return the task that a stored path names; raise UnknownTask if there is none here.

    A module that is not loaded is imported only if it belongs to an installed app or is listed in ``task_modules``:
    what stands in a row must never decide which code is imported.
    """
    if found := loaded_task(path):
        return found
    outer, _ = _loaded_part(path)
    if _is_being_imported(outer):
        import_module(outer)  # if another thread does it, this waits for its end; else what is there already counts
        if found := loaded_task(path) or _task_at(path):
            return found
    name = path.rpartition(".")[0]
    inside = any(name == config.name or name.startswith(f"{config.name}.") for config in apps.get_app_configs())
    if not name or not (name in sys.modules or inside or name in task_modules):
        raise UnknownTask(
            f"{path!r} is not in an installed app, so it was not imported; add the app to INSTALLED_APPS, or its "
            "module to OPTIONS['task_modules']."
        )
    missing: ModuleNotFoundError | None = None
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if not error.name or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        missing = error
    if found := loaded_task(path):  # ``name`` may be a class: to import it has loaded its module
        return found
    if missing:
        raise UnknownTask(f"{path!r}: there is no module {missing.name!r} (yet).") from missing
    raise UnknownTask(f"{path!r} is not a task: {name} has no task of that name.")


def loaded_task(path: str) -> Task | None:
    """Return the task that a stored path names if its module is loaded; imports nothing, and waits for no import.

    A module that is being imported is not loaded yet: its import may fail.
    """
    if path in found_tasks:
        return found_tasks[path]
    if _is_being_imported(_loaded_part(path)[0]) or not (found := _task_at(path)):
        return None
    return found_tasks.setdefault(path, found)


def _loaded_part(path: str) -> tuple[str, str]:
    """Return the name of the loaded module that a path begins with ("": there is none), and the rest of the path."""
    name, _, rest = path.rpartition(".")
    while name and not isinstance(sys.modules.get(name), ModuleType):
        name, _, outer = name.rpartition(".")
        rest = f"{outer}.{rest}"
    return name, rest


def _is_being_imported(name: str) -> bool:
    """Return whether the code of a module has not run to its end; asked as in django.utils.module_loading."""
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))


def _task_at(path: str) -> Task | None:
    """Return the task that stands there now, whether its module is loaded to its end or not."""
    name, rest = _loaded_part(path)
    found: Any = sys.modules.get(name)
    for part in rest.split("."):
        found = vars(found).get(part) if isinstance(found, (ModuleType, type)) else None
    found = found.__func__ if isinstance(found, staticmethod) else found
    return found if isinstance(found, Task) else None


def loaded_tasks(extra: Iterable[str] = ()) -> Iterator[Task]:
    """Yield the tasks in the ``tasks`` modules of installed apps, and in ``extra`` ones, as far as they are loaded."""
    for name in (*(f"{config.name}.tasks" for config in apps.get_app_configs()), *extra):
        module = sys.modules.get(name)
        yield from (found for found in list(vars(module or object).values()) if isinstance(found, Task))


def import_task_modules(extra: Iterable[str] = ()) -> None:
    """Import the ``tasks`` module of every installed app that has one, and the modules named in ``extra``."""
    for config in apps.get_app_configs():
        name = f"{config.name}.tasks"
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
    for name in extra:
        import_module(name)
