"""What may import what, what may be imported by others, and when."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import django
import pytest

import django_vtqueue
from django_vtqueue.tasks import compat

from .projects import ROOT, SETTINGS, Project, run

PACKAGE = ROOT / "django_vtqueue"

# From the bottom to the top: a folder, or a module at the top, imports its own layer and those below it. The door of
# the package, ``__init__``, is in no layer.
LAYERS = {
    # plain values and arithmetic; the wall clock is read in one place, so that all else can be given a time
    "core": "core conf exceptions slots",
    # threads, event loops, signals and processes, without a database
    "runtime": "runtime",
    # what is stored, for the ORM, the admin and migrations
    "tables": "fields migrations models",
    # the SQL that differs from database to database, each statement whole
    "engines": "engines",
    # the primitive, and what else needs nothing but the tables: live workers, doorbells, pauses, dead letters
    "queue": "queue",
    # leaders and time slots: rows that are held and never done
    "patterns": "patterns",
    # Django's Tasks on top of the primitive, and what pages and commands read
    "tasks": "backend inspection moving recurrence requeueing tasks",
    # what operators do and read from code
    "operations": "control throughput",
    # what runs
    "execution": "execution",
    "worker": "worker",
    # what a user touches
    "user": "admin apps database_checks management middleware templatetags testing",
}
LEVELS = {module: level for level, modules in enumerate(LAYERS.values()) for module in modules.split()}


@cache
def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def module_of(path: Path) -> str:
    """Return the first name below the package: ``engines`` for ``django_vtqueue/engines/sqlite/engine.py``."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the first name below the package of each of its own imports, wherever in the file."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = [*package[: len(package) - node.level + 1]] if node.level else []
            origin += node.module.split(".") if node.module else []
            names = [[*origin, alias.name] for alias in node.names]
        else:
            continue
        for name in names:
            if name[0] == PACKAGE.name and len(name) > 1:
                yield node.lineno, name[1]


# -- layers ---------------------------------------------------------------------------------------------------------


def test_every_module_has_a_layer() -> None:
    """LAYERS has each module of the package, and no other."""
    assert {module_of(path) for path in sources()} - {"__init__"} == LEVELS.keys()


def test_imports_go_down_only() -> None:
    """No module imports one of a higher layer, neither at its top nor inside a function."""
    upward = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sources()
        if module_of(path) != "__init__"
        for line, name in imported(path)
        if LEVELS.get(name, -1) > LEVELS[module_of(path)]
    ]
    assert upward == []


def test_imports_are_seen() -> None:
    """The walk sees each kind of import: of a module, of names, relative ones from a folder, and inside functions."""
    seen = {path.relative_to(PACKAGE).as_posix(): {name for _, name in imported(path)} for path in sources()}
    assert {"core", "tasks"} <= seen["backend.py"]  # from .core import clock; from .tasks.task import …
    assert {"core", "engines"} <= seen["engines/sqlite/engine.py"]  # from ...core.ids import …; from .lock import …
    assert "worker" in seen["management/commands/vtworker.py"]  # from ...worker.loop import …
    assert "database_checks" in seen["apps.py"]  # inside a function
    assert "fields" in seen["migrations/0001_initial.py"]  # import django_vtqueue.fields


def test_no_circle() -> None:
    """No module imports itself by way of others, for type checkers included; the door of the package is no way."""
    graph = {dotted(path): {name for name in origins(path) if name != PACKAGE.name} for path in sources()}
    seen: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " -> ".join([*way[way.index(module) :], module])
        if module not in seen:
            for each in sorted(graph[module] - {module}):
                visit(each, (*way, module))
            seen.add(module)

    for module in graph:
        visit(module, ())


def test_few_modules_at_the_top() -> None:
    """At the top of the package stands what a project or Django imports; the rest is in the folders of the layers."""
    assert len(list(PACKAGE.glob("*.py"))) <= 14


def test_transactions_wait_for_the_lock_as_an_engine_does() -> None:
    """Django's own ``atomic`` waits by SQLite's busy handler, which may never get the lock beside busy writers.

    So the engines call it, and nothing else does, but for a look at the transaction that is there already.
    """
    called = {
        path.relative_to(PACKAGE).as_posix()
        for path in sources()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and node.attr == "atomic" and isinstance(node.value, ast.Name)
        if node.value.id == "transaction" and "engines" not in path.parts
    }
    assert called == {"patterns/reserved.py"}


# What packages import of each installed app; Django itself: admin, models, apps, management, migrations, templatetags.
AUTODISCOVERED = """
actors api celery checks components cron crons cronjobs dashboard documents events feeds handlers hooks huey indexes
jobs listeners menus notifications panels periodic permissions plugins receivers rq_jobs rules schedule schedules schema
search_indexes serializers signals sitemaps tables telemetry translation urls views viewsets wagtail_hooks widgets
"""


def test_no_module_is_taken_for_another_packages() -> None:
    """No module of the app has a name by which packages look for theirs in each app; ``tasks`` is only imported."""
    names = {path.stem for path in PACKAGE.iterdir() if path.suffix in ("", ".py")}
    assert names & set(AUTODISCOVERED.split()) == set()


def test_the_length_of_files() -> None:
    """No file is longer than can be read at one go: 350 lines, but for the first migration."""
    lengths = {path.relative_to(PACKAGE).as_posix(): path.read_text().count("\n") for path in sources()}
    assert {name for name, length in lengths.items() if length > 350} == {"migrations/0001_initial.py"}


def dotted(path: Path) -> str:
    """Return the name by which a file is imported."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def known() -> set[str]:
    """Return the dotted names of all files."""
    return {dotted(path) for path in sources()}


def origins(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, each by its dotted name."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith(PACKAGE.name)):
            above = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{origin}.{alias.name}" if f"{origin}.{alias.name}" in known() else origin


def test_pure_modules() -> None:
    """The lowest layer knows no database, but for a base class of exceptions: what it decides is tested by values."""
    modules = [path for path in sources() if module_of(path) in LAYERS["core"].split() and path.stem != "exceptions"]
    assert [path.name for path in modules if "django.db" in path.read_text()] == []


def test_one_place_reads_the_clock() -> None:
    """The wall clock is read in ``clock``, and for the time in a new id, and nowhere else."""
    clocks = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "timezone.now"}
    readers = {
        path.name
        for path in sources()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in clocks
    }
    assert readers == {"clock.py", "ids.py"}


# -- what is public -------------------------------------------------------------------------------------------------


def test_names_that_do_not_exist() -> None:
    """Any other name is an AttributeError, as of every module."""
    with pytest.raises(AttributeError, match="module 'django_vtqueue' has no attribute 'Jobs'"):
        _ = django_vtqueue.Jobs  # type: ignore[attr-defined]


def test_the_framework_is_djangos_own() -> None:
    """From Django 6.0 on the Tasks framework is Django's, before it is the backport; its names are handed on."""
    framework = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"
    assert compat.Task.__module__ == f"{framework}.base"
    assert (compat.FRAMEWORK_APP is None) is (django.VERSION >= (6, 0))
    base = sys.modules[f"{framework}.base"]
    for name in ("TaskContext", "TaskResult", "TaskResultStatus"):
        assert getattr(django_vtqueue, name) is getattr(base, name)


# -- when -----------------------------------------------------------------------------------------------------------


def test_import_without_settings(tmp_path: Path) -> None:
    """The package, and what a task raises, can be imported in a project that has no settings yet."""
    code = (
        "import django_vtqueue; from django_vtqueue import GiveUp, LeaseLost, Retry; print(django_vtqueue.__version__)"
    )
    assert run("-c", code, folder=tmp_path, fresh=True) == f"exit 0\n{django_vtqueue.__version__}\n"


def test_import_before_setup(tmp_path: Path) -> None:
    """Each public name can be imported before the apps are ready."""
    (tmp_path / "settings.py").write_text(SETTINGS)
    names = ", ".join(django_vtqueue.__all__)
    code = f"from django_vtqueue import {names}; from django.apps import apps; print(apps.models_ready)"
    assert run("-c", code, folder=tmp_path, fresh=True, DJANGO_SETTINGS_MODULE="settings") == "exit 0\nFalse\n"


@pytest.mark.parametrize("place", ["shop/__init__.py", "shop/models.py", "shop/apps.py"])
def test_tasks_defined_early(tmp_path: Path, place: str) -> None:
    """A project may import its tasks while its apps are being loaded: from a package, an AppConfig, models."""
    project = Project(tmp_path)
    early = tmp_path / place
    early.write_text("from shop.tasks import receipt\n" + (early.read_text() if early.exists() else ""))
    assert project.manage("check", "--fail-level", "ERROR").startswith("exit 0\n")


WITHOUT_BACKPORT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "django_tasks":
            raise ModuleNotFoundError(f"No module named {name!r}", name="django_tasks")

sys.meta_path.insert(0, Missing())
from django_vtqueue import task
"""


def test_import_without_the_backport(tmp_path: Path) -> None:
    """On Django 5.2 without the backport the error is the command that installs it; from 6.0 on it is not needed."""
    said = run("-c", WITHOUT_BACKPORT, folder=tmp_path, fresh=True, DJANGO_SETTINGS_MODULE="settings")
    if django.VERSION >= (6, 0):
        assert said == "exit 0\n"
    else:
        assert said.startswith("exit 1\n")
        assert said.endswith(
            f"ImproperlyConfigured: Django {django.get_version()} has no Tasks framework of its own; install its "
            'backport:\n\n    python -m pip install "django-vtqueue[backport]"\n\n'
        )


# The suites that judge any heart: what each knows of the inside of this one is in these files.
JUDGES = {"conformance": "bench/", "processes": "inside.py", "faults": "inside.py"}
OF_LEASES = {"commanded", "holders", "instance", "slot_instance", "test_leaders", "test_restores", "test_slots"}
OF_LEASES |= {"test_vtleader"}
PUBLIC = ["backend", "control", "exceptions", "middleware", "models", "requeueing", "slots", "testing", "throughput"]


@pytest.mark.parametrize("suite", JUDGES)
def test_the_judges_use_public_names(suite: str) -> None:
    """Their other files import nothing from inside; those of leases and time slots do, until their room has moved."""
    folder, found = ROOT / "tests" / suite, set()
    for path in sorted(folder.rglob("*.py")):
        if not path.relative_to(folder).as_posix().startswith(JUDGES[suite]) and path.stem not in OF_LEASES:
            for node in ast.walk(parsed(path)):
                if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                    names = [f"{node.module}.{each.name}" for each in node.names]
                    found |= {(path.name, name) for name in names if is_inner(name)}
    assert found == set()


def is_inner(name: str) -> bool:
    """Return whether an imported name is of a module of the package that no project imports."""
    top, _, rest = name.partition(".")
    first = rest.partition(".")[0]
    return top == PACKAGE.name and first not in PUBLIC and first in LEVELS
