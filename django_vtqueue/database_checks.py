"""System checks of each database: its entry in DATABASES, and what holds on a live connection.

A setting in the wrong place is believed for years, so most of them ask the connection. The checks of TASKS are each
backend's own: see ``tasks/settings_checks.py``. They are at most warnings, so that none of them ever stands in the
way of ``migrate``. Errors are only those of where a SQLite file is: on a local disk, or on one that several hosts share
(``shared_disk``).
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

from django.conf import global_settings, settings
from django.core.checks import CheckMessage, Tags, Warning, register
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.utils.connection import ConnectionDoesNotExist

from .conf import configured
from .engines import database_of, shares_disk
from .engines.sqlite.file_checks import error, errors_of_folder, errors_of_mount, file_of
from .engines.sqlite.opened import guard_connection
from .queue.schema import mismatch
from .tasks.compat import FRAMEWORK_APP  # nothing else imports the framework after setup(), and it asks the backends

if FRAMEWORK_APP:  # the backport registers its check in its app's ready(), which may be what is missing
    import_module(f"{FRAMEWORK_APP}.checks")

TAG = "vtqueue"
OFF, NORMAL = 0, 1  # PRAGMA synchronous
HERE = ("", "localhost", "127.0.0.1", "::1")
SHORTEST_TIMEOUT = 10_000  # milliseconds: a backup, a migration or a checkpoint may hold the write lock for seconds

BLOCK = """
    "OPTIONS": {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    },
"""

SHARED_BLOCK = """
    "OPTIONS": {
        "transaction_mode": "IMMEDIATE",
        "timeout": 60,
        "init_command": "PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL;",
    },
"""

ATOMIC_REQUESTS = (
    "ATOMIC_REQUESTS is on: with IMMEDIATE every request takes the write lock at its start, also one that only reads, "
    "so such requests run one after the other."
)
ATOMIC_REQUESTS_HINT = "Turn it off, or put @transaction.non_atomic_requests on those views."

NO_TASKS = (
    "django_vtqueue is installed, but there is no setting TASKS: a task runs at once inside enqueue(), and no worker "
    "has anything to do."
)
NO_TASKS_HINT = (
    'TASKS = {"default": {"BACKEND": "django_vtqueue.backend.VTQueueBackend"}}. Where Queue is used alone, put '
    "'vtqueue.W015' into SILENCED_SYSTEM_CHECKS."
)

DEFAULTS = (
    "its OPTIONS are Django's defaults for SQLite: a reader keeps the workers from writing, a transaction that "
    "reads first fails when another has written, and a writer gives up with 'database is locked' after 5 s."
)

POWER_LOSS = (
    "a power loss, or a crash of the operating system, may take back the last commits. A job just enqueued may be "
    "gone, one just done may run again."
)
POWER_LOSS_HINT = (
    "If that may happen to your jobs, put 'vtqueue.W006' into SILENCED_SYSTEM_CHECKS. If not, write "
    "PRAGMA synchronous=FULL in its init_command: then each commit waits for the disk."
)
SERVER_HINT = (
    "If that may happen to your jobs, put 'vtqueue.W006' into SILENCED_SYSTEM_CHECKS. If not, set "
    "synchronous_commit = on: then each commit waits for the disk."
)
CUT_OFF = (
    "it is on another host, and its OPTIONS have no tcp_user_timeout: a task, a web process or a Queue.run that is cut "
    "off from it waits for an answer for as long as its kernel does, 15 minutes on Linux."
)
CUT_OFF_HINT = (
    'Add to its OPTIONS: "connect_timeout": 5, "tcp_user_timeout": 5000, "keepalives_idle": 5, '
    '"keepalives_interval": 2, "keepalives_count": 2. The control loop of a worker has these by itself.'
)
NO_FSYNC = "fsync is off: a power loss may destroy the database cluster, with all that is in it."

NO_UTF8 = "and must be UTF8: a text that it cannot hold, of an exception or of a job's progress, loses the job's end."
UTF8_HINT = "Move the data to a database of another encoding: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0."


@register(TAG)
def check_defaults(**kwargs: Any) -> list[CheckMessage]:
    """Return a warning about each SQLite file that holds a queue and has no settings of its own; opens none of them."""
    found: list[CheckMessage] = []
    for alias in sorted(databases_of_queues()):
        with suppress(ConnectionDoesNotExist):  # an error of the settings: E003
            if has_defaults(connection := connections[alias]) and not shares_disk(alias):
                found.append(warning("W007", connection, DEFAULTS, hint_for(connection)))
    return found


@register(Tags.database)
def check_databases(*, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Return warnings about those of ``databases`` that hold queues; what ``check_defaults`` says is not repeated."""
    found: list[CheckMessage] = []
    for connection in ours(databases):
        setup = effective(connection)
        if setup and sys.argv[1:2] != ["migrate"] and (problem := mismatch(connection.alias)):
            found.append(warning("W008", connection, problem))
        if isinstance(setup, Pragmas):
            mode = connection.transaction_mode  # type: ignore[attr-defined]  # set anew by each connect
            found += [
                warning(number, connection, text, hint_for(connection))
                for number, text in faults(setup, mode)
                if not shares_disk(connection.alias) and (number == "W005" or not has_defaults(connection))
            ]
        elif setup:
            if setup.fsync == "off":
                found.append(warning("W005", connection, NO_FSYNC))
            if setup.encoding != "UTF8":
                found.append(warning("W014", connection, f"its encoding is {setup.encoding}, {NO_UTF8}", UTF8_HINT))
    return found


@register(Tags.database, deploy=True)
def check_durability(*, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Return a warning where a power loss may take back what was committed.

    That is a decision to be made once, for production, and NORMAL is the right one for most; so only ``--deploy`` asks.
    """
    found: list[CheckMessage] = []
    for connection in ours(databases):
        setup = effective(connection)
        if isinstance(setup, Pragmas) and setup.synchronous == NORMAL and not shares_disk(connection.alias):
            found.append(warning("W006", connection, f"synchronous is NORMAL: {POWER_LOSS}", POWER_LOSS_HINT))
        elif isinstance(setup, Durability) and setup.synchronous_commit == "off":
            found.append(warning("W006", connection, f"synchronous_commit is off: {POWER_LOSS}", SERVER_HINT))
    return found


@register(TAG, deploy=True)
def check_cut_off(**kwargs: Any) -> list[CheckMessage]:
    """Return a warning about each server of PostgreSQL on another host for which processes would wait too long.

    It reads the settings, and only ``--deploy`` asks: a server in the next container is as near as one can be.
    """
    found: list[CheckMessage] = []
    for alias in sorted(databases_of_queues()):
        with suppress(ConnectionDoesNotExist):  # an error of the settings: E003
            connection = connections[alias]
            if is_far(connection) and "tcp_user_timeout" not in connection.settings_dict["OPTIONS"]:
                found.append(warning("W012", connection, CUT_OFF, CUT_OFF_HINT))
    return found


@register(TAG, deploy=True)
def check_atomic_requests(**kwargs: Any) -> list[CheckMessage]:
    """Return a warning about each SQLite file whose write lock every request takes; it reads the settings.

    Only ``--deploy`` asks: it is slow where many ask at once.
    """
    found: list[CheckMessage] = []
    for alias in filter(file_of, sorted(databases_of_queues())):
        given = connections[alias].settings_dict
        mode = str(given["OPTIONS"].get("transaction_mode")).upper()
        if given["ATOMIC_REQUESTS"] and mode in ("IMMEDIATE", "EXCLUSIVE"):
            found.append(warning("W016", connections[alias], ATOMIC_REQUESTS, ATOMIC_REQUESTS_HINT))
    return found


@register(TAG)
def check_tasks(**kwargs: Any) -> list[CheckMessage]:
    """Return a warning if the app is installed and nothing says which backend tasks have: Django's runs them inline."""
    given = getattr(settings, "TASKS", None)
    if given is not None and given is not getattr(global_settings, "TASKS", None):
        return []
    return [Warning(NO_TASKS, hint=NO_TASKS_HINT, id="vtqueue.W015")]


@register(TAG)
def check_mounts(**kwargs: Any) -> list[CheckMessage]:
    """Return an error about each SQLite file that is where it may be destroyed; opens none of them."""
    return [message for alias in sorted(databases_of_queues()) for message in errors_of_mount(alias)]


@register(Tags.database)
def check_shared_disks(*, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Return errors about those of ``databases`` that several hosts share, and are not fit for that."""
    return [message for connection in ours(databases) for message in errors_of_sharing(connection)]


def warning(number: str, connection: BaseDatabaseWrapper, text: str, hint: str | None = None) -> CheckMessage:
    """Return a warning about one database."""
    return Warning(f"DATABASES[{connection.alias!r}]: {text}", hint=hint, id=f"vtqueue.{number}")


def ours(databases: Sequence[str] | None) -> list[BaseDatabaseWrapper]:
    """Return the connections of those databases that hold queues."""
    holding = databases_of_queues() if databases else set()
    return [connections[alias] for alias in databases or () if alias in holding]


def databases_of_queues() -> set[str]:
    """Return the aliases that our backends use; none while TASKS is wrong, which other checks say."""
    try:
        return {database_of(options) for options in configured().values()}
    except (ValueError, ImportError, LookupError):
        return set()


class Pragmas(NamedTuple):
    """What holds on a connection; ``busy_timeout`` in milliseconds."""

    journal: str
    synchronous: int
    busy_timeout: int


class Durability(NamedTuple):
    """What a server of PostgreSQL waits for, and what a database of it may hold, as it says it."""

    fsync: str
    synchronous_commit: str
    encoding: str


def effective(connection: BaseDatabaseWrapper) -> Pragmas | Durability | None:
    """Return what holds on a database; None for one in memory (tests), or one that cannot be opened."""
    try:
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                names = ("fsync", "synchronous_commit", "server_encoding")
                cursor.execute(f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}")
                return Durability(*cursor.fetchone())
            file = cursor.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()[0]
            names = ("journal_mode", "synchronous", "busy_timeout")
            pragmas = Pragmas(*(cursor.execute(f"PRAGMA {name}").fetchone()[0] for name in names))
    except Exception:  # the command that needs the database says what is wrong
        return None
    return pragmas if file else None


def has_receivers(sender: type[BaseDatabaseWrapper]) -> bool:
    """Return whether the project receives the signal of new connections of this kind; one receiver is ours."""
    keys = [key for key, *_ in list(connection_created.receivers)]  # another thread may connect one meanwhile
    return any(of != id(guard_connection) and sent_by in (id(None), id(sender)) for of, sent_by in keys)


def has_defaults(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a SQLite file is not set up for several writers, neither by OPTIONS nor by a signal's receiver."""
    if not file_of(connection.alias) or has_receivers(type(connection)):
        return False
    return not {"transaction_mode", "init_command"} & set(connection.settings_dict["OPTIONS"])


def is_far(connection: BaseDatabaseWrapper) -> bool:
    """Return whether one of the hosts of a database of PostgreSQL is not this one; no host, or a path, is a socket."""
    hosts = str(connection.settings_dict["HOST"]).split(",")
    return connection.vendor == "postgresql" and not all(host in HERE or host[0] in "/@" for host in hosts)


def hint_for(connection: BaseDatabaseWrapper) -> str:
    """Return the settings that a SQLite file needs."""
    hint = f"In DATABASES[{connection.alias!r}], add these OPTIONS:\n{BLOCK}"
    atomic_requests = connection.settings_dict["ATOMIC_REQUESTS"]
    return hint + (f"\n{ATOMIC_REQUESTS} {ATOMIC_REQUESTS_HINT}" if atomic_requests else "")


def faults(pragmas: Pragmas, mode: str | None) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a database's pragmas and its transaction mode."""
    if pragmas.journal != "wal":
        yield "W001", f"its journal mode is {pragmas.journal!r}, not WAL: a reader keeps the workers from writing."
    if mode not in ("IMMEDIATE", "EXCLUSIVE"):
        yield "W002", "its transactions do not begin IMMEDIATE: one that reads first fails when another has written."
    if pragmas.busy_timeout < SHORTEST_TIMEOUT:
        seconds = pragmas.busy_timeout / 1000
        yield "W003", f"a writer gives up with 'database is locked' after {seconds:g} s; 10 s is the least."
    if pragmas.synchronous == OFF:
        yield "W005", "synchronous is OFF: a power loss may destroy the file, with all that is in it."


def errors_of_sharing(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    """Yield what keeps several hosts from sharing a database; nothing if that is not asked for."""
    alias, found = connection.alias, list(errors_of_folder(connection.alias))
    yield from found
    tested = "vtqueue.E032" not in {message.id for message in found}
    if shares_disk(alias) and file_of(alias) and tested:  # else nothing is opened
        for text in wrong_settings(connection):
            yield error("E031", alias, f"with shared_disk {text}.", f"In DATABASES[{alias!r}]:\n{SHARED_BLOCK}")


def wrong_settings(connection: BaseDatabaseWrapper) -> Iterator[str]:
    """Yield what holds on a live connection and does not fit to a file that several hosts share."""
    if not isinstance(pragmas := effective(connection), Pragmas):
        return
    if pragmas.journal != "delete":
        yield f"journal_mode must be DELETE, not {pragmas.journal.upper()}"
    if pragmas.synchronous <= NORMAL:
        yield f"synchronous must be FULL, not {('OFF', 'NORMAL')[pragmas.synchronous]}"
    if pragmas.busy_timeout < SHORTEST_TIMEOUT:
        yield f"timeout must be {SHORTEST_TIMEOUT / 1000:g} seconds or more, not {pragmas.busy_timeout / 1000:g}"
    if connection.transaction_mode not in ("IMMEDIATE", "EXCLUSIVE"):  # type: ignore[attr-defined]
        yield f"transaction_mode must be 'IMMEDIATE', not {connection.transaction_mode!r}"  # type: ignore[attr-defined]
    with connection.cursor() as cursor:
        row = cursor.execute("PRAGMA mmap_size").fetchone()
    if row and row[0]:
        yield f"mmap_size must be 0, not {row[0]}: memory that is mapped may be older than the file"
