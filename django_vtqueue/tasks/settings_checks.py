"""System checks of the settings; they read no database."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from itertools import takewhile
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.db import connections, router
from django.utils.module_loading import import_string

from ..conf import SHORTEST_SHARED, Options, configured, parse
from ..core import clock
from ..core.names import is_reserved, refusal
from ..core.rates import RateLimit, rate_for
from ..core.ticks import Ticks
from ..engines import ENGINES, database_of
from ..engines.sqlite.file_checks import file_of
from .compat import FRAMEWORK_APP, Task, unused_backport
from .lookup import loaded_tasks
from .recurring import LONGEST_SCHEDULE_NAME, Declaration, declarations
from .refusals import cannot_commit_as_one, limited_copies
from .signatures import check_call
from .task import options_of

WHEN_FULL = ("on_full", "full_timeout", "exempt_workers")


def problems(alias: str, params: Mapping[str, Any]) -> list[CheckMessage]:
    """Return the errors of one entry of ``TASKS``; what follows from an error is left out."""
    found = list(missing_apps(alias))
    if not apps.is_installed("django_vtqueue"):
        return found
    try:
        options = parse(params, alias)
    except ValueError as error:
        return [*found, *(Error(line, id="vtqueue.E002") for line in str(error).splitlines())]
    if wrong := wrong_database(options, alias):
        return [*found, wrong]
    return [
        *found,
        *wrong_connection(options, alias),
        *reserved_queues(options, alias),
        *forbidden_queues(options, alias),
        *missing_handlers(options, alias),
        *missing_modules(options, alias),
        *overlaps(options, alias),
        *split_transactions(options, alias),
        *limits_beside_copies(options, alias),
        *short_leases(options, alias),
        *wrong_schedules(alias),
        *unenforced_limits(options, alias),
        *idle_options(options, alias),
        *idle_overflow(options, alias),
        *rates_of_one_key(options, alias),
        *without_tables(options, alias),
        *unused_backport(),
    ]


def missing_apps(alias: str) -> Iterator[CheckMessage]:
    """Yield an error for each app that the queue needs and INSTALLED_APPS lacks."""
    if FRAMEWORK_APP and not apps.is_installed(FRAMEWORK_APP):
        yield Error(
            f"{FRAMEWORK_APP!r} is not in INSTALLED_APPS: without it nothing checks and logs tasks.",
            hint=f'INSTALLED_APPS = [..., "{FRAMEWORK_APP}", "django_vtqueue"]',
            id="vtqueue.E006",
        )
    if not apps.is_installed("django_vtqueue"):
        yield Error(
            f"TASKS[{alias!r}] uses django_vtqueue, but the app is not installed: its tables would be missing.",
            hint='INSTALLED_APPS = [..., "django_vtqueue"]',
            id="vtqueue.E001",
        )


def wrong_database(options: Options, alias: str) -> CheckMessage | None:
    """Return an error if the database is not there, or is of a kind that is not supported."""
    if options.database is not None and options.database not in settings.DATABASES:
        known = ", ".join(settings.DATABASES)
        return Error(
            f"TASKS[{alias!r}]: the database {options.database!r} is not in DATABASES (there are: {known}).",
            hint='"OPTIONS": {"database": "default"}',
            id="vtqueue.E003",
        )
    database = database_of(options)
    if connections[database].vendor in ENGINES:
        return None
    return Error(
        f"TASKS[{alias!r}]: database {database!r} is {connections[database].vendor}, but django_vtqueue "
        f"supports {', '.join(ENGINES)}.",
        hint='"OPTIONS": {"database": "jobs"}, where DATABASES["jobs"] is SQLite or PostgreSQL.',
        id="vtqueue.E004",
    )


def without_tables(options: Options, alias: str) -> Iterator[CheckMessage]:
    """Yield a warning if the routers keep ``migrate`` from making the tables where the jobs are to be."""
    database = database_of(options)
    if not router.allow_migrate(database, "vtqueue", model_name="job"):
        yield Warning(
            f"TASKS[{alias!r}] keeps its jobs in {database!r}, but DATABASE_ROUTERS lets migrate make no tables of "
            "'vtqueue' there.",
            hint=f"Have allow_migrate({database!r}, 'vtqueue', ...) return True. Then: "
            f"python manage.py migrate vtqueue --database {database}",
            id="vtqueue.W011",
        )


def wrong_connection(options: Options, alias: str) -> Iterator[CheckMessage]:
    """Yield an error for each setting of a database with which no worker can work."""
    connection = connections[database_of(options)]
    named = f"TASKS[{alias!r}]: DATABASES[{connection.alias!r}]"
    if connection.vendor == "postgresql" and connection.Database.__name__ != "psycopg":  # type: ignore[attr-defined]
        yield Error(
            f"{named} is used by psycopg2, but django_vtqueue needs psycopg 3.",
            hint="python -m pip install 'django-vtqueue[postgresql]'",
            id="vtqueue.E012",
        )
    if not connection.settings_dict["AUTOCOMMIT"]:
        yield Error(
            f"{named} has AUTOCOMMIT off: the writes of a worker would never be committed.",
            hint="Remove it, or give the queue an alias of its own.",
            id="vtqueue.E013",
        )


def limits_beside_copies(options: Options, alias: str) -> Iterator[CheckMessage]:
    """Yield an error for each loaded task with a limit whose queue has ``overflow``."""
    for task in loaded_tasks(options.task_modules):
        if task.backend == alias and options.policy(task.queue_name).overflow and (wrong := limited_copies(task)):
            yield Error(wrong, id="vtqueue.E011")


def short_leases(options: Options, alias: str) -> Iterator[CheckMessage]:
    """Yield an error for each queue and each loaded task whose leases are too short for a disk that hosts share."""
    if not options.shared_disk:
        return
    leases = {f"queue {name!r}": options.policy(name).visibility_timeout for name in options.queue_options}
    leases["visibility_timeout"] = options.visibility_timeout
    for task in loaded_tasks(options.task_modules):
        if task.backend == alias and (own := options_of(task.func).get("visibility_timeout")) is not None:
            leases[task.module_path] = own
    for name, seconds in leases.items():
        if seconds < SHORTEST_SHARED:
            yield Error(
                f"TASKS[{alias!r}]: {name} has leases of {seconds:g} s; with shared_disk {SHORTEST_SHARED:g} s are the "
                "least, for a file server that restarts may keep locks back for minutes.",
                hint=f'Set "visibility_timeout": {SHORTEST_SHARED:g} or more.',
                id="vtqueue.E034",
            )


def unenforced_limits(options: Options, alias: str) -> Iterator[CheckMessage]:
    """Yield a warning if a hard time limit is set that threads cannot keep."""
    if options.processes == 1 and any(options.policy(name).hard_timeout for name in ["", *options.queue_options]):
        yield Warning(
            f"TASKS[{alias!r}] sets a hard_timeout, but its workers run jobs in threads, which cannot be ended.",
            hint='"OPTIONS": {"processes": 2}, or start the worker with --processes 2.',
            id="vtqueue.W004",
        )


def idle_options(options: Options, alias: str) -> Iterator[CheckMessage]:
    """Yield a warning for each queue that has options for when it is full, and no ``max_depth``."""
    for name, given in options.queue_options.items():
        idle = [option for option in WHEN_FULL if option in given]
        if idle and options.policy(name).max_depth is None:
            yield Warning(
                f"TASKS[{alias!r}]: queue {name!r} has {', '.join(idle)}, but no max_depth, so it is never full.",
                hint=f'"queue_options": {{"{name}": {{"max_depth": 10_000, ...}}}}',
                id="vtqueue.W009",
            )


def idle_overflow(options: Options, alias: str) -> Iterator[CheckMessage]:
    """Yield a warning for each queue with ``copies`` and without ``overflow``, or with a single copy."""
    for name, given in {"": {}, **options.queue_options}.items():
        policy, where = options.policy(name), f"TASKS[{alias!r}]: queue {name!r}" if name else f"TASKS[{alias!r}]"
        if policy.overflow and policy.copies == 1:
            what = "overflow, but copies is 1, so no job is taken by a second worker while it runs"
        elif "copies" in given and not policy.overflow:
            what = "copies, but no overflow, so it has no effect"
        else:
            continue
        hint = "Set overflow to True and copies to 2 or more, or remove both."
        yield Warning(f"{where} has {what}.", hint=hint, id="vtqueue.W010")


def rates_of_one_key(options: Options, alias: str) -> Iterator[CheckMessage]:
    """Yield a warning for each loaded task with the ``rate_key`` of another one before it, and not the same rate."""
    first: dict[Any, tuple[str, str, RateLimit | None]] = {}
    for task in loaded_tasks(options.task_modules):
        own = options_of(task.func)
        if task.backend != alias or "rate_key_given" not in own:
            continue
        key, burst = own["rate_key_given"], own.get("burst", 1)
        told, rate = f"rate={own['rate']!r}, burst={burst}", rate_for(own["rate"], burst)
        where = key if isinstance(key, str) else id(key)
        other, its, its_rate = first.setdefault(where, (task.module_path, told, rate))
        if rate != its_rate:
            named = repr(key) if isinstance(key, str) else getattr(key, "__qualname__", repr(key))
            yield Warning(
                f"{task.module_path} ({told}) has the rate_key {named} of {other} ({its}): a key has one rate.",
                hint="Give both the same rate and burst, or each a rate_key of its own.",
                id="vtqueue.W013",
            )


def split_transactions(options: Options, alias: str) -> Iterator[CheckMessage]:
    """Yield an error for each loaded transactional task that writes to another database than its queue's."""
    database = database_of(options)
    for task in loaded_tasks(options.task_modules):
        writes_to = options_of(task.func).get("transactional")
        if task.backend == alias and writes_to not in (None, database):
            yield Error(cannot_commit_as_one(task.module_path, writes_to, database), id="vtqueue.E008")


def wrong_schedules(alias: str) -> Iterator[CheckMessage]:
    """Yield an error for each declaration of loaded code, for the tasks of a backend, that can never be run."""
    seen: dict[str, Declaration] = {}
    for name, declaration in declarations():
        task = declaration.task
        if alias != (task.backend if task else next(iter(configured()), alias)):
            continue
        wrong = wrong_schedule(name, declaration, task)
        if not wrong and (other := seen.setdefault(name, declaration)) is not declaration:
            wrong = f"{other.path} has a schedule of that name, too. Give each its own: name=..."
        if wrong:
            yield Error(f"The schedule {name!r} (@recurring on {declaration.path}): {wrong}", id="vtqueue.E020")


def wrong_schedule(name: str, declaration: Declaration, task: Task | None) -> str:
    """Return what is wrong with a declaration; "" if nothing is."""
    if task is None:
        return "it is not above a task. Write @task below it, and keep the function at the top of its module."
    if len(name) > LONGEST_SCHEDULE_NAME:
        return f"its name has more than {LONGEST_SCHEDULE_NAME} characters. Give it a shorter one: name=..."
    try:
        ticks = Ticks(declaration.expression, declaration.zone_name)
        check_call(task, declaration.args, declaration.kwargs)
        if ticks.after(clock.now()) is None:
            return f"{declaration.expression!r} never comes: there is no such day in the next 50 years."
    except (ValueError, TypeError) as error:
        return str(error)
    return ""


def reserved_queues(options: Options, alias: str) -> Iterator[CheckMessage]:
    """Yield an error for each queue of the settings, with or without a handler, that is reserved."""
    for name in filter(is_reserved, sorted({*options.queues, *options.queue_options})):
        yield Error(
            f"TASKS[{alias!r}]: {refusal(name)}",
            hint="Give the queue another name; a Lease needs no settings.",
            id="vtqueue.E010",
        )


def forbidden_queues(options: Options, alias: str) -> Iterator[CheckMessage]:
    """Yield an error for each queue that has options and to which no task may go."""
    allowed = sorted(options.queues)
    for name in options.queue_options:
        if allowed and name not in allowed:
            yield Error(
                f"TASKS[{alias!r}]: queue_options has the queue {name!r}, but QUEUES has {allowed} only.",
                hint=f'"QUEUES": {json.dumps([*allowed, name])}; [] allows any queue.',
                id="vtqueue.E009",
            )


def missing_handlers(options: Options, alias: str) -> Iterator[CheckMessage]:
    """Yield an error for each handler of raw jobs that cannot be imported, or called."""
    for queue_name in options.handler_queues():
        path = options.policy(queue_name).handler or ""
        try:
            found = import_string(path)
        except ImportError as error:
            wrong = f"cannot be imported: {error}"
        else:
            kind = "a task" if isinstance(found, Task) else f"of type {type(found).__name__}"
            fits = callable(found) and not isinstance(found, Task)
            wrong = "" if fits else f"is {kind}, but must be a function that takes the job"
        if wrong:
            yield Error(
                f"TASKS[{alias!r}]: the handler {path!r} of queue {queue_name!r} {wrong}.",
                hint=f'"queue_options": {{"{queue_name}": {{"handler": "app.module.function"}}}}',
                id="vtqueue.E007",
            )


def missing_modules(options: Options, alias: str) -> Iterator[CheckMessage]:
    """Yield an error for each of ``task_modules`` that does not exist; none of them is imported for that."""
    for name in options.task_modules:
        try:
            found = name in sys.modules or find_spec(name)
        except (ImportError, ValueError):  # there is no such package; an empty name
            found = None
        if not found:
            yield Error(
                f"TASKS[{alias!r}]: there is no module {name!r}, which is in task_modules.",
                hint='"OPTIONS": {"task_modules": ["package.module"]}',
                id="vtqueue.E014",
            )


# What says to which database of PostgreSQL a connection leads; the user and the options may choose a schema.
PLACE = ("host", "hostaddr", "port", "dbname", "user", "service", "options")


def place_of(alias: str) -> Any:
    """Return what two aliases have in common that name one database, as far as the settings say it."""
    if alias not in connections or connections[alias].settings_dict["TEST"]["MIRROR"]:
        return alias  # E003; and a mirror is a second way to a database in tests only
    connection = connections[alias]
    if connection.vendor == "sqlite":
        return os.path.realpath(file) if (file := file_of(alias)) else alias
    try:
        given = connection.get_connection_params()  # OPTIONS may say what HOST and PORT do not
    except Exception:  # said by Django, or by who makes a password when it is needed
        return alias
    service = given.get("service") or os.environ.get("PGSERVICE")  # whose file may have a port
    port = None if service else os.environ.get("PGPORT") or "5432"
    return [str({"port": port, **given}.get(name)) for name in PLACE]


def overlaps(options: Options, alias: str) -> Iterator[CheckMessage]:
    """Yield an error if an entry before ``alias`` shares queues with it: each one's workers would take both's jobs."""
    try:
        entries = configured()
    except ValueError:
        return  # said by the check of that entry
    for other, earlier in takewhile(lambda entry: entry[0] != alias, entries.items()):
        shared = sorted(options.queues & earlier.queues)
        one, two = database_of(earlier), database_of(options)
        if place_of(one) == place_of(two) and (shared or not options.queues or not earlier.queues):
            named = "" if one == two else f" ({one!r} and {two!r} name it)"
            what = f"both have {', '.join(shared)}" if shared else "one of them allows any queue"
            yield Error(
                f"TASKS[{other!r}] and TASKS[{alias!r}] use the same database{named}, and {what}.",
                hint='Give each its own queues: "QUEUES": ["default", "emails"] and "QUEUES": ["reports"].',
                id="vtqueue.E005",
            )
            return
