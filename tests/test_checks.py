"""``manage.py check``: what is wrong is found before anything runs, with an id, and a hint that can be pasted."""

import ast
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import django
import pytest
from django.conf import global_settings
from django.core.checks import CheckMessage, run_checks
from django.core.management import CommandError, call_command
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.utils import ConnectionHandler
from pytest_django import DjangoDbBlocker, Settings

from django_vtqueue import task
from django_vtqueue.conf import configured
from django_vtqueue.database_checks import check_databases, check_defaults, check_durability
from django_vtqueue.engines.sqlite import file_checks
from django_vtqueue.tasks import settings_checks
from django_vtqueue.tasks.compat import Task
from django_vtqueue.tasks.settings_checks import overlaps, problems
from tests.project import tasks as project_tasks
from tests.project import transactional

from .projects import Project

FRAMEWORK = Task.__module__.rpartition(".")[0]  # django.tasks or django_tasks
BACKEND = "django_vtqueue.backend.VTQueueBackend"
GOOD = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
}

Open = Callable[..., BaseDatabaseWrapper]


def entry(queues: list[str] | None = None, **options: Any) -> dict[str, Any]:
    return {"BACKEND": BACKEND, "OPTIONS": options, **({} if queues is None else {"QUEUES": queues})}


def ids(messages: list[CheckMessage]) -> list[str | None]:
    return [message.id for message in messages]


@pytest.fixture
def jobs(tmp_path: Path, settings: Settings, django_db_blocker: DjangoDbBlocker) -> Iterator[Open]:
    """Return a function that puts a database behind the alias ``jobs``, which our backend uses."""
    settings.TASKS = {"default": entry(database="jobs")}

    opened: list[BaseDatabaseWrapper] = []

    def close() -> None:
        while opened:
            if raw := opened.pop().connection:
                raw.close()  # Django itself never closes a database in memory
            del connections["jobs"]

    def open_database(name: object = tmp_path / "jobs.sqlite3", **values: Any) -> BaseDatabaseWrapper:
        close()
        given = {"ENGINE": "django.db.backends.sqlite3", "NAME": name, **values}
        connections["jobs"] = ConnectionHandler({"default": {}, "jobs": given})["jobs"]
        opened.append(connections["jobs"])
        return opened[0]

    with django_db_blocker.unblock():
        yield open_database
        close()


def warnings() -> list[CheckMessage]:
    """Return what is said of the settings of ``jobs``; it has no tables."""
    found = [*check_defaults(), *check_databases(databases=["jobs"])]
    return [message for message in found if message.id != "vtqueue.W008"]


# -- what a live connection says -----------------------------------------------------------------------------------


def test_defaults_of_sqlite(jobs: Open) -> None:
    """A SQLite file as Django sets it up by default gets one warning, which is no error."""
    jobs()
    assert ids(warnings()) == ["vtqueue.W007"]
    assert not any(message.is_serious() for message in warnings())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"init_command": ""}, ["vtqueue.W001"]),
        ({"init_command": "PRAGMA journal_mode=TRUNCATE"}, ["vtqueue.W001"]),
        ({"transaction_mode": None}, ["vtqueue.W002"]),
        ({"transaction_mode": "deferred"}, ["vtqueue.W002"]),
        ({"transaction_mode": "immediate"}, []),
        ({"transaction_mode": "EXCLUSIVE"}, []),
        ({"timeout": 5}, ["vtqueue.W003"]),
        ({"timeout": 9.9}, ["vtqueue.W003"]),
        ({"timeout": 10}, []),
        ({"init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF"}, ["vtqueue.W005"]),
        ({"init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL"}, []),
    ],
)
def test_one_warning_for_each_setting(jobs: Open, change: dict[str, Any], expected: list[str]) -> None:
    """Each setting has a warning of its own: WAL, IMMEDIATE, a timeout of 10 seconds or more, synchronous not OFF."""
    jobs(OPTIONS={**GOOD, **change})
    assert ids(warnings()) == expected


@pytest.mark.parametrize(("mode", "expected"), [("NORMAL", ["vtqueue.W006"]), ("FULL", []), ("EXTRA", []), ("OFF", [])])
def test_what_a_power_loss_may_take_back(jobs: Open, mode: str, expected: list[str]) -> None:
    """Where NORMAL may lose the last commits a deployment is told so; its hint, followed, leaves nothing to say."""
    jobs(OPTIONS={**GOOD, "init_command": f"PRAGMA journal_mode=WAL; PRAGMA synchronous={mode}"})
    found = check_durability(databases=["jobs"])
    assert ids(found) == expected
    assert all("PRAGMA synchronous=FULL" in (warning.hint or "") for warning in found)


@pytest.mark.parametrize("options", [{}, {"init_command": ""}, {"transaction_mode": "IMMEDIATE"}])
def test_hint_is_the_block_to_paste(jobs: Open, tmp_path: Path, options: dict[str, Any]) -> None:
    """Whichever hint is followed, to the letter, no warning is left; it names the place where the block belongs."""
    jobs(OPTIONS=options)
    hint = warnings()[0].hint or ""
    assert hint.startswith("In DATABASES['jobs']")
    [block] = re.findall(r'^    "OPTIONS": \{$.*?^    \},$', hint, re.MULTILINE | re.DOTALL)
    pasted = ast.literal_eval("{" + block + "}")
    assert set(pasted) == {"OPTIONS"}

    jobs(**pasted)
    assert warnings() == []


def test_settings_in_the_wrong_place(jobs: Open) -> None:
    """Settings beside ``OPTIONS``, where Django ignores them, do not help."""
    jobs(**GOOD)
    assert ids(warnings()) == ["vtqueue.W007"]


def test_settings_made_elsewhere(jobs: Open) -> None:
    """A project that sets its connections up by a signal is right without OPTIONS, and wrong in spite of them."""

    def well(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
        connection.connection.execute("PRAGMA journal_mode = WAL")
        connection.connection.execute("PRAGMA busy_timeout = 10000")
        connection.transaction_mode = "IMMEDIATE"  # type: ignore[attr-defined]

    def badly(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
        connection.connection.execute("PRAGMA busy_timeout = 0")
        connection.transaction_mode = None  # type: ignore[attr-defined]

    for receiver, options, expected in [(well, {}, 0), (badly, GOOD, 2)]:
        connection_created.connect(receiver, weak=False)
        try:
            jobs(OPTIONS=options)
            assert len(warnings()) == expected
        finally:
            connection_created.disconnect(receiver)


def test_atomic_requests(jobs: Open) -> None:
    """Where ATOMIC_REQUESTS is on, the hint says what IMMEDIATE means there; elsewhere it is not spoken of."""
    jobs(ATOMIC_REQUESTS=True)
    for warning in warnings():
        assert "every request takes the write lock at its start" in (warning.hint or "")

    jobs()
    for warning in warnings():
        assert "ATOMIC_REQUESTS" not in (warning.hint or "")


def deployed() -> list[str | None]:
    """Return the ids of what ``check --deploy`` has of ours, without a look at a database."""
    found = run_checks(tags=["vtqueue"], include_deployment_checks=True)
    return ids(found)


def test_atomic_requests_with_immediate_are_a_question_of_deployment(jobs: Open) -> None:
    """With the recommended OPTIONS nothing else would say that each request takes the write lock."""
    jobs(OPTIONS={**GOOD, "transaction_mode": "immediate"}, ATOMIC_REQUESTS=True)
    assert deployed() == ["vtqueue.W016"]
    assert warnings() == []
    jobs(OPTIONS=GOOD)
    assert deployed() == []


def test_an_app_without_tasks(settings: Settings) -> None:
    """Without TASKS each task runs inline, in the process of the site: that is said; another backend was chosen."""
    if hasattr(global_settings, "TASKS"):
        settings.TASKS = global_settings.TASKS  # the default is what a project without the setting has
    else:
        del settings.TASKS
    [found] = run_checks(tags=["vtqueue"])
    assert (found.id, "inside enqueue()" in found.msg) == ("vtqueue.W015", True)
    settings.TASKS = {"default": {"BACKEND": f"{FRAMEWORK}.backends.immediate.ImmediateBackend"}}
    assert run_checks(tags=["vtqueue"]) == []


@pytest.mark.parametrize("name", [":memory:", "file::memory:?cache=shared", "file:jobs?mode=memory&cache=shared"])
def test_in_memory(jobs: Open, name: str) -> None:
    """A database in memory, as test runners use it, gets no warnings."""
    jobs(name)
    assert warnings() == []


def test_only_databases_with_queues(jobs: Open, settings: Settings) -> None:
    """A database that none of our backends uses is not looked at."""
    jobs()
    for tasks in [
        {"default": entry()},
        {"default": {"BACKEND": settings.TASKS["default"]["BACKEND"], "OPTIONS": {"database": "default"}}},
        {"default": {"BACKEND": "tests.test_checks.SomebodyElses"}},
        {"default": {"BACKEND": "tests.test_checks.NoSuchBackend"}},
        {"default": {}},
        {"default": entry(databse="jobs")},
        {},
    ]:
        settings.TASKS = tasks
        assert warnings() == []
    assert connections["jobs"].connection is None


class SomebodyElses:
    """A task backend that has nothing to do with us."""

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        self.alias = alias

    def check(self) -> list[CheckMessage]:
        return []


def test_database_of_the_router(jobs: Open, settings: Settings) -> None:
    """Without the option ``database`` it is the router's choice for writes that is looked at."""
    settings.TASKS = {"default": entry()}
    settings.DATABASE_ROUTERS = ["tests.test_checks.JobsToJobs"]
    jobs()
    assert ids(warnings()) == ["vtqueue.W007"]


class JobsToJobs:
    """A router that keeps our tables in a database of their own."""

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "jobs" if model._meta.app_label == "vtqueue" else None


def test_database_that_cannot_be_opened(jobs: Open, tmp_path: Path) -> None:
    """A database that cannot be opened, for whatever reason, does not make the check fail."""
    garbage = tmp_path / "garbage.sqlite3"
    garbage.write_bytes(b"this is not a database" * 100)
    cases: list[dict[str, Any]] = [
        {"name": tmp_path},
        {"name": tmp_path / "nowhere" / "db.sqlite3"},
        {"name": garbage},
        {"name": ""},
        {"OPTIONS": {"transaction_mode": "SOMETIMES"}},
        {"OPTIONS": {"no_such_option": 1}},
    ]
    for values in cases:
        jobs(**values)
        assert check_databases(databases=["jobs"]) == []


# -- whole projects -------------------------------------------------------------------------------------------------


def test_check_touches_no_database(tmp_path: Path) -> None:
    """``check`` without ``--database`` opens none: the file is not even made; with it, it misses the tables."""
    project = Project(tmp_path)
    said = project.manage("check")
    assert said.startswith("exit 0\n")
    assert re.findall(r"\(vtqueue\.\w+\)", said) == ["(vtqueue.W007)"]
    assert not project.database.exists()

    said = project.manage("check", "--database", "default")
    assert said.startswith("exit 0\n")
    assert re.findall(r"\(vtqueue\.\w+\)", said) == ["(vtqueue.W007)", "(vtqueue.W008)"]
    assert "the queue's tables are missing; run: python manage.py migrate vtqueue" in said

    project.manage("migrate")
    assert "W008" not in project.manage("check", "--database", "default")


def test_power_loss_is_a_question_of_deployment(tmp_path: Path, empty_file: Path) -> None:
    """NORMAL, which the documentation recommends, is warned of by ``check --deploy`` only, and can be silenced."""
    options = f'DATABASES["default"]["OPTIONS"] = {GOOD!r}'
    project = Project(tmp_path, options)
    shutil.copy(empty_file, project.database)
    assert "vtqueue" not in project.manage("check", "--database", "default")
    assert "vtqueue" not in project.manage("check", "--deploy")
    assert "(vtqueue.W006)" in project.manage("check", "--deploy", "--database", "default")
    project = Project(tmp_path, f'{options}\nSILENCED_SYSTEM_CHECKS = ["vtqueue.W006"]')
    assert "vtqueue" not in project.manage("check", "--deploy", "--database", "default")


ROLLBACK_JOURNAL = """
    DATABASES["default"]["OPTIONS"] = {"init_command": "PRAGMA journal_mode=DELETE"}
    SILENCED_SYSTEM_CHECKS = ["vtqueue.W001", "vtqueue.W003"]
    """


@pytest.mark.parametrize(("settings", "number"), [("", "W007"), (ROLLBACK_JOURNAL, "W002")], ids=["plain", "silenced"])
def test_migrate_and_worker(tmp_path: Path, settings: str, number: str) -> None:
    """On an empty database ``migrate`` warns and does its work; a worker says the same when it starts, and works.

    A warning in SILENCED_SYSTEM_CHECKS is not repeated by the worker either.
    """
    project = Project(tmp_path, settings)
    for command in [("migrate",), ("vtworker", "--drain")]:
        said = project.manage(*command)
        assert said.startswith("exit 0\n"), said
        assert set(re.findall(r"vtqueue\.(W\d+)", said)) == {number}


def test_an_enqueue_says_what_is_missing(tmp_path: Path) -> None:
    """Without the app, and without its tables, the error of the first enqueue says what to do."""
    enqueue = ("shell", "-c", "from shop.tasks import receipt; receipt.enqueue(7)")
    project = Project(tmp_path, 'INSTALLED_APPS.remove("django_vtqueue")')
    assert 'which is not installed: INSTALLED_APPS = [..., "django_vtqueue"]' in project.manage(*enqueue)
    project = Project(tmp_path)
    assert "the queue's tables are missing; run: python manage.py migrate vtqueue" in project.manage(*enqueue)
    project.manage("migrate")
    assert project.manage(*enqueue).startswith("exit 0\n")


def test_a_workers_tasks_are_those_of_its_backend(tmp_path: Path, empty_file: Path) -> None:
    """A task that cannot commit as one (E008) stops the workers of its own backend, whichever that is."""
    backends = """
        DATABASES["mail"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": "mail.sqlite3"}
        TASKS["mail"] = {**TASKS["default"], "OPTIONS": {"database": "mail"}}
        """
    project = Project(tmp_path, backends)
    for database in (project.database, tmp_path / "mail.sqlite3"):
        shutil.copy(empty_file, database)
    project.write(
        "shop/tasks.py",
        """
        from django_vtqueue import task

        @task(backend="mail", transactional="default")
        def send(): ...
        """,
    )
    assert "(vtqueue.E008)" in project.manage("vtworker", "--backend", "mail", "--drain")
    assert project.manage("vtworker", "--drain").startswith("exit 0\n")


def test_test_runner_is_silent(tmp_path: Path) -> None:
    """``manage.py test`` checks its databases too, and says nothing of ours: they are in memory."""
    project = Project(tmp_path)
    project.write(
        "shop/tests.py",
        """
        from django.test import TestCase
        from django_vtqueue.testing import run_pending
        from .tasks import receipt

        class Shop(TestCase):
            def test_receipt(self):
                result = receipt.enqueue(7)
                run_pending()
                result.refresh()
                self.assertEqual(result.return_value, "receipt 7")
        """,
    )
    said = project.manage("test")
    assert said.startswith("exit 0\n"), said
    assert "vtqueue." not in said


def test_app_not_installed(tmp_path: Path) -> None:
    """A project that names the backend but forgot the app is told so by ``check``, not by a traceback (E001)."""
    project = Project(tmp_path, 'INSTALLED_APPS = [*FRAMEWORK, "shop"]')
    said = project.manage("check")
    assert said.startswith("exit 1\n")
    assert "(vtqueue.E001) TASKS['default'] uses django_vtqueue, but the app is not installed" in said
    assert 'HINT: INSTALLED_APPS = [..., "django_vtqueue"]' in said
    assert "Traceback" not in said


def test_framework_app_not_installed(tmp_path: Path) -> None:
    """On Django 5.2 the backport's app must be installed (E006); from 6.0 on there is none to ask for."""
    said = Project(tmp_path, 'INSTALLED_APPS = ["django_vtqueue", "shop"]').manage("check")
    if django.VERSION >= (6, 0):
        assert said.startswith("exit 0\n")
    else:
        assert said.startswith("exit 1\n")
        assert "(vtqueue.E006) 'django_tasks' is not in INSTALLED_APPS" in said
        assert 'HINT: INSTALLED_APPS = [..., "django_tasks", "django_vtqueue"]' in said


def test_check_runs_without_tasks(tmp_path: Path) -> None:
    """The settings are checked although no code imports the framework or a task: the app sees to it."""
    project = Project(tmp_path, 'TASKS["default"]["OPTIONS"] = {"max_atempts": 3}')
    project.write("shop/apps.py", "")
    said = project.manage("check")
    assert said.startswith("exit 1\n")
    assert "(vtqueue.E002)" in said


# -- the settings of a backend --------------------------------------------------------------------------------------


def errors(settings: Settings, **tasks: dict[str, Any]) -> list[CheckMessage]:
    """Return what Django's own run of all checks finds of ours, in a test that may touch no database."""
    settings.TASKS = tasks
    return [message for message in run_checks() if (message.id or "").startswith("vtqueue.")]


def test_good_settings(settings: Settings) -> None:
    """The settings of this test project, and those of a queue with options of its own, have no faults."""
    assert errors(settings, default=entry()) == []
    assert errors(settings, default=entry(["emails"], queue_options={"emails": {"visibility_timeout": 300}})) == []


def test_unknown_option(settings: Settings) -> None:
    """An unknown option is an error that names the nearest one (E002), in OPTIONS and in queue_options, all at once."""
    found = errors(settings, default=entry([], visibility_timout=1, queue_options={"emails": {"max_atempts": 1}}))
    assert ids(found) == ["vtqueue.E002", "vtqueue.E002"]
    assert [message.msg for message in found] == [
        "TASKS['default']['OPTIONS'] has no option 'visibility_timout': did you mean 'visibility_timeout'?",
        "TASKS['default']['OPTIONS']['queue_options']['emails'] has no option 'max_atempts': "
        "did you mean 'max_attempts'?",
    ]


def test_tasks_that_nothing_has_imported(tmp_path: Path) -> None:
    """``check`` imports the modules of tasks: what it says does not depend on which check runs first."""
    project = Project(tmp_path)
    project.write("shop/apps.py", "")
    project.write(
        "shop/tasks.py",
        """
        from django_vtqueue import task

        @task(transactional="other")
        def clean_up():
            pass
        """,
    )
    assert "vtqueue.E008" in project.manage("check")
    project.write("shop/tasks.py", "import no_such_module")
    assert project.manage("check").startswith("exit 0")


def test_settings_that_cannot_be_read_while_tasks_are_imported(tmp_path: Path) -> None:
    """It is an error of the check (E002), not a traceback of the import."""
    text = Project(tmp_path, 'TASKS["default"]["QUEUES"] = "default"').manage("check")
    assert "vtqueue.E002" in text
    assert "Traceback" not in text


def test_a_transaction_across_databases(jobs: Open, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transactional task that writes to another database than its queue's is an error (E008), also of the worker."""
    monkeypatch.setattr(project_tasks, "booking", transactional.append, raising=False)
    assert errors(settings, default=entry()) == []
    jobs(OPTIONS=GOOD)
    monkeypatch.setitem(settings.DATABASES, "jobs", {})
    [message] = errors(settings, default=entry(database="jobs"))
    assert message.id == "vtqueue.E008"
    assert "append is transactional in the database 'default', but its queue is in 'jobs'" in message.msg


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"threads": 3}, "TASKS['default'] has 'threads', which belongs into its OPTIONS."),
        ({"queue_options": {}}, "TASKS['default'] has 'queue_options', which belongs into its OPTIONS."),
        ({"QUEUE": ["default"]}, "TASKS['default'] has no key 'QUEUE': did you mean 'QUEUES'?"),
        (
            {"QUEUES": "emails"},
            "TASKS['default']: QUEUES is 'emails', but must be a list of texts; [] allows any queue.",
        ),
        ({"QUEUES": None}, "TASKS['default']: QUEUES is None, but must be a list of texts; [] allows any queue."),
        ({"QUEUES": [[]]}, "TASKS['default']: QUEUES is [[]], but must be a list of texts; [] allows any queue."),
        ({"OPTIONS": 5}, "TASKS['default']['OPTIONS'] is 5, but must be {option: value}."),
        ({"OPTIONS": [{}]}, "TASKS['default']['OPTIONS'] is [{}], but must be {option: value}."),
    ],
)
def test_an_entry_has_three_keys(settings: Settings, given: dict[str, Any], expected: str) -> None:
    """What stands beside OPTIONS, and what is no list or no dictionary, are errors (E002) that say what was meant."""
    [message] = errors(settings, default={**entry(), **given})
    assert (message.id, message.msg) == ("vtqueue.E002", expected)


def test_options_of_a_queue_without_tasks(settings: Settings) -> None:
    """Options of a queue that QUEUES does not name are an error (E009) whose hint, followed, leaves none."""
    options: dict[str, Any] = {"emails": {"max_attempts": 2}}
    [message] = errors(settings, default=entry(queue_options=options))
    assert message.id == "vtqueue.E009"
    [queues] = re.findall(r'"QUEUES": (\[.*?\])', message.hint or "")
    assert errors(settings, default=entry(ast.literal_eval(queues), queue_options=options)) == []
    assert errors(settings, default=entry([], queue_options=options)) == []


def test_missing_handler(settings: Settings) -> None:
    """A handler of raw jobs that cannot be imported is an error that names its queue (E007)."""
    handlers = {"good": {"handler": "tests.test_checks.entry"}, "bad": {"handler": "tests.test_checks.nothing"}}
    [message] = errors(settings, default=entry([], queue_options=handlers))
    assert message.id == "vtqueue.E007"
    assert "the handler 'tests.test_checks.nothing' of queue 'bad' cannot be imported" in message.msg


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("tests.project.tasks.add", "is a task, but must be a function"),
        ("tests.processes.inside.NEVER_LOOKS", "is of type dict, but must be a function that takes the job"),
    ],
)
def test_a_handler_that_is_no_function(settings: Settings, path: str, what: str) -> None:
    """A handler of raw jobs that is a task, or cannot be called, is an error that says so (E007)."""
    [message] = errors(settings, default=entry([], queue_options={"sensors": {"handler": path}}))
    assert message.id == "vtqueue.E007"
    assert re.search(f"of queue 'sensors' {what}", message.msg)


@pytest.mark.parametrize("name", ["tests.nothing", "nothing.at.all", "", ".tasks"])
def test_missing_task_module(settings: Settings, name: str) -> None:
    """A module of task_modules that does not exist is an error (E014), and not the traceback of a worker."""
    [message] = errors(settings, default=entry(task_modules=["tests.project.tasks", "tests.test_checks", name]))
    assert message.id == "vtqueue.E014"
    assert message.msg == f"TASKS['default']: there is no module {name!r}, which is in task_modules."


def test_unknown_database(settings: Settings) -> None:
    """A database alias that does not exist is an error that names those that do (E003)."""
    [message] = errors(settings, default=entry(database="joobs"))
    assert message.id == "vtqueue.E003"
    assert message.msg == "TASKS['default']: the database 'joobs' is not in DATABASES (there are: default)."
    assert message.hint == '"OPTIONS": {"database": "default"}'


class NoTables:
    """A router that keeps the queue's tables out of each database."""

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return False if app_label == "vtqueue" else None


def test_a_router_without_tables(settings: Settings) -> None:
    """A router that lets migrate make no tables where the jobs are to be is a warning (W011)."""
    settings.DATABASE_ROUTERS = [f"{__name__}.NoTables"]
    [message] = problems("default", entry(database="default"))
    assert message.id == "vtqueue.W011"
    assert "keeps its jobs in 'default', but DATABASE_ROUTERS lets migrate make no tables" in message.msg
    assert (message.hint or "").endswith("python manage.py migrate vtqueue --database default")


def test_unsupported_database(settings: Settings, jobs: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind of database that has no engine is an error (E004), found without a connection."""
    jobs(ENGINE="django.db.backends.dummy")
    monkeypatch.setitem(settings.DATABASES, "jobs", {})
    [message] = errors(settings, default=entry(database="jobs"))
    assert message.id == "vtqueue.E004"
    assert "database 'jobs' is unknown, but django_vtqueue supports sqlite" in message.msg
    assert '"OPTIONS": {"database": "jobs"}' in (message.hint or "")


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (["a", "b"], ["b", "c"], "both have b"),
        (["a"], [], "one of them allows any queue"),
        ([], ["a"], "one of them allows any queue"),
        (None, None, "both have default"),
        (["a"], ["b"], ""),
        (["a"], None, ""),
    ],
)
def test_overlapping_backends(settings: Settings, first: list[str] | None, second: list[str] | None, why: str) -> None:
    """Two backends on one database need disjoint, non-empty QUEUES (E005), said once, by the second of them."""
    found = errors(settings, one=entry(first), two=entry(second))
    assert ids(found) == (["vtqueue.E005"] if why else [])
    for message in found:
        assert message.msg == f"TASKS['one'] and TASKS['two'] use the same database, and {why}."
        assert '"QUEUES": ["reports"]' in (message.hint or "")


def test_a_backend_whose_database_does_not_exist(settings: Settings) -> None:
    """Beside another backend too, it is an error of its own, not one of the checks."""
    assert ids(errors(settings, one=entry(database="nowhere"), two=entry())) == ["vtqueue.E003"]


def test_backends_on_two_databases(settings: Settings, jobs: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backends on different databases may have queues of the same name."""
    jobs(OPTIONS=GOOD)
    monkeypatch.setitem(settings.DATABASES, "jobs", {})
    assert errors(settings, one=entry(), two=entry(database="jobs")) == []


@pytest.mark.parametrize("vendor", ["sqlite3", "postgresql"])
def test_two_aliases_of_one_database(
    vendor: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Backends whose aliases name one database are as those of one alias (E005); another schema is another database."""
    pytest.importorskip("psycopg")
    (tmp_path / "here").symlink_to(tmp_path)
    path = "db" if vendor == "postgresql" else str(tmp_path / "db")
    given = {"ENGINE": f"django.db.backends.{vendor}", "NAME": path, "OPTIONS": GOOD}
    twin = given | {"NAME": path if vendor == "postgresql" else str(tmp_path / "here" / "db"), "CONN_MAX_AGE": 9}
    other = given | ({"OPTIONS": {"options": "-csearch_path=b"}} if vendor == "postgresql" else {"NAME": f"{path}2"})
    opened = ConnectionHandler({"default": given, "twin": twin, "other": other})
    monkeypatch.setattr(settings_checks, "connections", opened)
    monkeypatch.setattr(file_checks, "connections", opened)
    settings.TASKS = {name: entry(database=name) for name in ("default", "twin", "other")}
    first, twins, others = (list(overlaps(options, name)) for name, options in configured().items())
    assert (first, others) == ([], [])
    [message] = twins
    assert "use the same database ('default' and 'twin' name it), and both have default." in message.msg


def test_aliases_of_several_servers(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the server is said by OPTIONS, other aliases lead to other databases; other roles do not (no E005).

    Nor does the port that holds where none is given.
    """
    pytest.importorskip("psycopg")
    given = {"ENGINE": "django.db.backends.postgresql", "NAME": "jobs"}
    options = {
        "one": {"host": "one"},
        "two": {"host": "two"},
        "port": {"host": "one", "port": 6432},
        "address": {"host": "one", "hostaddr": "10.0.0.2"},
        "role": {"host": "one", "assume_role": "clerk"},
    }
    databases: dict[str, Any] = {name: given | {"OPTIONS": each} for name, each in options.items()}
    databases["same"] = given | {"HOST": "two"}
    databases["default"] = given
    databases["usual port"] = given | {"PORT": "5432"}
    databases["service"] = {**given, "NAME": "", "OPTIONS": {"service": "jobs"}}
    databases["its port"] = {**databases["service"], "PORT": "5432"}
    monkeypatch.delenv("PGPORT", raising=False)
    monkeypatch.setattr(settings_checks, "connections", ConnectionHandler(databases))
    settings.TASKS = {name: entry(database=name) for name in databases}
    found = {name: [each.msg for each in overlaps(options, name)] for name, options in configured().items()}
    assert [name for name, messages in found.items() if messages] == ["role", "same", "usual port"]
    assert "('one' and 'role' name it)" in found["role"][0]
    assert "('two' and 'same' name it)" in found["same"][0]
    assert "('default' and 'usual port' name it)" in found["usual port"][0]


def test_worker_refuses_wrong_settings(settings: Settings) -> None:
    """A worker does not start with settings that ``check`` calls wrong, and says what is."""
    settings.TASKS = {"default": entry(max_attempts="3")}
    with pytest.raises(CommandError, match=r"max_attempts is '3', but must be a whole number.*\(vtqueue.E002\)"):
        call_command("vtworker", drain=True)


def test_a_hard_time_limit_without_children() -> None:
    """A ``hard_timeout`` is warned of where workers run jobs in threads, which cannot be ended."""

    def said(**options: Any) -> list[str | None]:
        return ids(problems("default", {"QUEUES": [], "OPTIONS": options}))

    settings = {"emails": {"hard_timeout": 5}}
    assert said(queue_options=settings) == said(hard_timeout=5) == ["vtqueue.W004"]
    assert said(queue_options=settings, processes=2) == said(timeout=5) == []


def test_options_of_a_full_queue_that_is_never_full() -> None:
    """What is said for a full queue is warned of where no ``max_depth`` says when it is full."""

    def said(**options: Any) -> list[str | None]:
        return ids(problems("default", {"QUEUES": [], "OPTIONS": options}))

    assert said(queue_options={"emails": {"on_full": "wait"}, "b": {"full_timeout": 1}}) == ["vtqueue.W009"] * 2
    assert said(max_depth=10, queue_options={"emails": {"on_full": "wait"}}) == []
    assert said(on_full="wait", queue_options={"emails": {"max_depth": 10}}) == []
    assert said(queue_options={"emails": {"max_depth": 0}}) == ["vtqueue.E002"]
    assert said(queue_options={"emails": {"max_depth": 1, "on_full": "block"}}) == ["vtqueue.E002"]


def test_overflow_without_copies() -> None:
    """``copies`` without ``overflow``, and ``overflow`` with a single copy, do nothing: a warning."""

    def said(**options: Any) -> list[str | None]:
        return ids(problems("default", {"QUEUES": [], "OPTIONS": options}))

    assert said(queue_options={"a": {"copies": 3}, "b": {"overflow": True, "copies": 1}}) == ["vtqueue.W010"] * 2
    assert said(overflow=True, copies=1) == ["vtqueue.W010"]
    assert said(overflow=True, queue_options={"a": {"copies": 3}, "b": {"overflow": False}}) == []
    assert said(queue_options={"a": {"overflow": True}, "b": {"max_attempts": 1}}) == []


def fetch(host: str) -> None:
    """A task of the test below."""


def push(host: str) -> None:
    """Another one."""


def test_rates_of_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks with one rate_key have one rate and burst, or W013 names both; those with keys of their own have any."""

    def said(**options: Any) -> list[str]:
        for function, own in ((fetch, {"rate": "10/s", "rate_key": "api:{host}"}), (push, options)):
            monkeypatch.setattr(project_tasks, function.__name__, task(**own)(function), raising=False)
        found = problems("default", entry([]))
        assert set(ids(found)) <= {"vtqueue.W013"}
        return [message.msg for message in found]

    path = __name__
    assert said(rate="10/s", burst=1, rate_key="api:{host}") == []
    assert said(rate="5/s", rate_key="other:{host}") == said(rate="5/s") == []
    assert said(rate="600/m", rate_key="api:{host}") == []
    assert said(rate="10/s", burst=5, rate_key="api:{host}") == [
        f"{path}.push (rate='10/s', burst=5) has the rate_key 'api:{{host}}' of {path}.fetch (rate='10/s', burst=1): "
        "a key has one rate."
    ]
    assert len(said(rate="9/s", rate_key="api:{host}")) == 1


def test_rates_of_one_key_that_is_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callable of any kind may be the key of two tasks: it has no name, or no hash."""

    class Key(dict[str, str]):
        def __call__(self, host: str) -> str:
            return host

    for key in (partial(str), Key()):
        for function, rate in ((fetch, "10/s"), (push, "5/s")):
            monkeypatch.setattr(
                project_tasks, function.__name__, task(rate=rate, rate_key=key)(function), raising=False
            )
        assert ids(problems("default", entry([]))) == ["vtqueue.W013"]
