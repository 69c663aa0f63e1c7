"""Settings: the call beats ``@task``, which beats ``queue_options``, which beat ``OPTIONS``, which beat the default."""

import math
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import router
from pytest_django import Settings

import django_vtqueue
from django_vtqueue import ClaimedJob, Queue, task
from django_vtqueue.backend import VTQueueBackend, make_task
from django_vtqueue.conf import BACKEND, OF_QUEUE, POLICY, Options, configured, parse
from django_vtqueue.core.clock import to_instant
from django_vtqueue.execution.outcomes import Outcome
from django_vtqueue.models import DeadLetter, Job
from django_vtqueue.tasks.compat import Task, TaskResultStatus, framework_task, task_backends
from django_vtqueue.tasks.task import KNOWN, options_of
from django_vtqueue.worker.inline import Line, run_due
from django_vtqueue.worker.options import scopes_of
from tests.pending import run_pending

FRAMEWORK = Task.__module__.rpartition(".")[0]  # django.tasks or django_tasks
BACKEND_PATH = "django_vtqueue.backend.VTQueueBackend"

Values = dict[str, Any]

any_task: Any = task  # for calls that type checkers refuse, as they should
any_framework_task: Any = framework_task


@task
def plain() -> None:
    raise RuntimeError("plain")


@task(max_attempts=5, visibility_timeout=50, backoff=500)
def chosen() -> None:
    raise RuntimeError("chosen")


@task(visibility_timeout=timedelta(minutes=5), backoff=[timedelta(seconds=1), 10, 60.5])
def timed() -> None: ...


@task
def succeeds() -> str:
    return "done"


def configure(settings: Settings, **options: Any) -> VTQueueBackend:
    """Set OPTIONS; every test job goes to queue ``q``, whose own settings are ``queue_options={"q": …}``."""
    settings.TASKS = {"default": {"BACKEND": BACKEND_PATH, "QUEUES": [], "OPTIONS": options}}
    backend = task_backends["default"]
    assert isinstance(backend, VTQueueBackend)
    return backend


# -- precedence -----------------------------------------------------------------------------------------------------

IN_OPTIONS = {"max_attempts": 3, "visibility_timeout": 30, "backoff": 300}
IN_QUEUE = {"q": {"max_attempts": 4, "visibility_timeout": 40, "backoff": 400}}
ELSEWHERE = {"other": {"max_attempts": 9, "visibility_timeout": 90, "backoff": 900}}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("called", "options", "attempts", "seconds", "backoff"),
    [
        (plain, {}, 10, 60, 2),
        (plain, IN_OPTIONS, 3, 30, 300),
        (plain, {**IN_OPTIONS, "queue_options": ELSEWHERE}, 3, 30, 300),
        (plain, {**IN_OPTIONS, "queue_options": {"q": {"max_attempts": 4}}}, 4, 30, 300),
        (plain, {**IN_OPTIONS, "queue_options": IN_QUEUE}, 4, 40, 400),
        (chosen, {}, 5, 50, 500),
        (chosen, {**IN_OPTIONS, "queue_options": IN_QUEUE}, 5, 50, 500),
    ],
)
def test_precedence_of_tasks(
    settings: Settings, called: Task, options: Values, attempts: int, seconds: float, backoff: float
) -> None:
    """``@task`` beats ``queue_options``, which beat ``OPTIONS``, which beat the default; each option for itself."""
    configure(settings, **options)
    called.using(queue_name="q").enqueue()
    job = Job.objects.get()
    assert (job.max_attempts, job.lease_us) == (attempts, seconds * 1_000_000)

    run_pending()
    job.refresh_from_db()
    assert job.started_at is not None
    waits = (to_instant(job.visible_at) - to_instant(job.started_at)) / 1_000_000
    assert 0.8 * backoff <= waits < backoff + 5


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("options", "of_queue", "of_call", "attempts", "seconds"),
    [
        ({}, {}, {}, 10, 60),
        (IN_OPTIONS, {}, {}, 3, 30),
        ({**IN_OPTIONS, "queue_options": IN_QUEUE}, {}, {}, 4, 40),
        ({**IN_OPTIONS, "queue_options": IN_QUEUE}, {"max_attempts": 5, "visibility_timeout": 50}, {}, 5, 50),
        ({"queue_options": IN_QUEUE}, {"max_attempts": 5, "visibility_timeout": 50}, {"max_attempts": 6}, 6, 50),
        ({"queue_options": IN_QUEUE}, {"max_attempts": 0}, {}, 0, 40),
        ({"queue_options": IN_QUEUE}, {"max_attempts": 5}, {"max_attempts": 0}, 0, 40),
    ],
)
def test_precedence_of_raw_jobs(
    settings: Settings, options: Values, of_queue: Values, of_call: Values, attempts: int, seconds: float
) -> None:
    """The call beats the Queue's own values, which beat ``queue_options``, ``OPTIONS`` and the default."""
    configure(settings, **options)
    queue = Queue("q", **of_queue)
    for job_id in [queue.publish({}, **of_call), *queue.publish_many([1, 2], **of_call)]:
        job = Job.objects.get(id=job_id)
        assert (job.max_attempts, job.lease_us) == (attempts, seconds * 1_000_000)


@pytest.mark.django_db
def test_settings_are_read_late(settings: Settings) -> None:
    """A change of TASKS, as ``override_settings`` makes it, holds for the next publish and enqueue."""
    for attempts in (3, 4):
        configure(settings, max_attempts=attempts)
        plain.enqueue()
        Queue("q").publish({})
    assert sorted(Job.objects.values_list("max_attempts", flat=True)) == [3, 3, 4, 4]


def test_defaults() -> None:
    """The defaults are those that the documentation names."""
    options = parse({})
    assert (options.visibility_timeout, options.max_attempts, options.backoff, options.backoff_max) == (60, 10, 2, 3600)
    assert (options.result_ttl, options.dead_letter_ttl, options.max_payload_bytes) == (86400, None, 1_000_000)
    assert (options.database, options.threads, options.heartbeat) == (None, 4, True)
    assert options.queues == {"default"}


# -- values ---------------------------------------------------------------------------------------------------------

DURATIONS = ["visibility_timeout", "backoff", "backoff_max", "result_ttl", "dead_letter_ttl"]


@pytest.mark.parametrize("name", DURATIONS)
def test_durations(name: str) -> None:
    """A duration is a number of seconds or a ``timedelta``."""
    for given in (90, 90.0, timedelta(minutes=1, seconds=30)):
        assert getattr(parse({"OPTIONS": {name: given}}), name) == 90
        assert (
            getattr(parse({"QUEUES": [], "OPTIONS": {"queue_options": {"q": {name: given}}}}).policy("q"), name) == 90
        )
    for wrong in (-1, "90", math.nan, math.inf, True, timedelta(seconds=-1)):
        with pytest.raises(ValueError, match=rf"{name} is .*, but must be .*seconds"):
            parse({"OPTIONS": {name: wrong}})


def test_durations_of_a_task() -> None:
    """A task's durations are as those of the settings."""
    assert options_of(timed.func) == {"visibility_timeout": 300, "backoff": (1, 10, 60.5)}


@pytest.mark.parametrize(
    ("name", "wrong", "allowed"),
    [
        ("visibility_timeout", 0, "a number of seconds above 0, or a timedelta"),
        ("visibility_timeout", None, "a number of seconds above 0, or a timedelta"),
        ("visibility_timeout", -1, "a number of seconds above 0, or a timedelta"),
        ("result_ttl", -1, "a number of seconds (0 or more) or a timedelta"),
        ("max_attempts", -1, "a whole number, 0 for unlimited"),
        ("max_attempts", 2.5, "a whole number, 0 for unlimited"),
        ("max_attempts", True, "a whole number, 0 for unlimited"),
        ("max_attempts", 2**31, "a whole number, 0 for unlimited"),
        ("backoff", [], "seconds, a sequence of seconds, or f(exception, task_result) -> seconds or None"),
        ("backoff", "exponential", "seconds, a sequence of seconds, or f(exception, task_result) -> seconds or None"),
        ("heartbeat", 1, "True or False"),
        ("max_payload_bytes", 0, "a whole number, 1 or more"),
        ("threads", "4", "a whole number, 1 to 10000"),
        ("processes", 10**30, "a whole number, 1 to 10000"),
        ("database", "", "a text or None"),
        ("task_modules", "shop.jobs", "a list of texts"),
        ("mask", [1], "a list of texts"),
        ("doorbells", 1, "a path (a text or a pathlib.Path) or None"),
        ("doorbells", "", "a path (a text or a pathlib.Path) or None"),
        ("queue_options", ["emails"], "{queue name: {option: value}}"),
        ("queue_options", {"emails": 300}, "{queue name: {option: value}}"),
    ],
)
def test_wrong_value(name: str, wrong: object, allowed: str) -> None:
    """A wrong value is refused by a text that says where it is, what was found and what is allowed."""
    with pytest.raises(ValueError, match="must be") as caught:
        parse({"OPTIONS": {name: wrong}}, "jobs")
    [line] = str(caught.value).splitlines()
    assert line.startswith("TASKS['jobs']['OPTIONS']: ")
    assert f"{name} is {wrong!r}, but must be {allowed}" in line


def test_a_folder_is_a_text_or_a_path() -> None:
    """Settings have paths as ``BASE_DIR / "run"``."""
    found = [parse({"OPTIONS": {"doorbells": given}}).doorbells for given in (Path("/run/bells"), "/run/bells", None)]
    assert found == ["/run/bells", "/run/bells", None]


def test_everything_wrong_at_once() -> None:
    """All that is wrong is said at once, a line each; a queue's options are named by their queue."""
    options = {"threads": 0, "retries": 3, "queue_options": {"q": {"backoff": -1, "threads": 2}}}
    with pytest.raises(ValueError, match="must be") as caught:
        parse({"QUEUES": ["q"], "OPTIONS": options})
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [
        "TASKS['default']['OPTIONS']",
        "TASKS['default']['OPTIONS'] has no option 'retries'",
        "TASKS['default']['OPTIONS']['queue_options']['q']",
        "TASKS['default']['OPTIONS']['queue_options']['q'] has no option 'threads'",
    ]


def test_wrong_settings_in_use(settings: Settings) -> None:
    """Wrong settings do not keep a project from importing its tasks; using the queue says what is wrong."""
    configure(settings, max_attempts="3")
    task(queue_name="default")(plain.func)  # as an import does
    with pytest.raises(ImproperlyConfigured, match="max_attempts is '3', but must be a whole number"):
        plain.enqueue()
    with pytest.raises(ValueError, match="max_attempts is '3', but must be a whole number"):
        Queue("q")


@pytest.mark.parametrize("wrong", [{"visibility_timeout": 0}, {"visibility_timeout": "60"}, {"max_attempts": -1}])
def test_wrong_value_in_a_call(wrong: Values) -> None:
    """A wrong value in a call is refused in the same words, naming the queue."""
    with pytest.raises(ValueError, match=r"Queue\('q'\): \w+ is .*, but must be a "):
        Queue("q", **wrong)


@pytest.mark.django_db
def test_wrong_attempts_of_a_publish() -> None:
    """A wrong ``max_attempts`` of one publish stores nothing."""
    with pytest.raises(ValueError, match="max_attempts is -1, but must be a whole number"):
        Queue("q").publish({}, max_attempts=-1)
    assert not Job.objects.exists()


def test_wrong_value_of_a_task() -> None:
    """A wrong value of ``@task`` is refused when the task is defined, by a text that names the function."""
    with pytest.raises(ValueError, match="@task on plain: max_attempts is -1, but must be a whole number"):
        task(max_attempts=-1)(plain.func)
    with pytest.raises(ValueError, match="no_retry_for is 'ValueError', but must be an exception class or a sequence"):
        any_task(no_retry_for="ValueError")(plain.func)
    with pytest.raises(ValueError, match="transactional is 1, but must be True or False, or the alias"):
        any_task(transactional=1)(plain.func)
    assert options_of(plain.func) == {}


# -- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["unique", "retries"])
def test_unknown_name_of_a_task(name: str) -> None:
    """What does not exist (yet) is refused when the task is defined, by either decorator: never silently ignored."""
    with pytest.raises(TypeError, match=rf"@task on plain got an unknown option '{name}'"):
        any_task(**{name: 1})(plain.func)
    with pytest.raises(TypeError, match=name):
        any_framework_task(**{name: 1})(plain.func)


def test_nearest_name_of_a_task() -> None:
    """An unknown option of ``@task`` names the nearest one, or all."""
    with pytest.raises(TypeError, match=r"'max_atempts': did you mean 'max_attempts'\?"):
        any_task(max_atempts=3)(plain.func)
    with pytest.raises(TypeError, match=r"'priorty': did you mean 'priority'\?"):
        any_task(priorty=3)(plain.func)
    with pytest.raises(TypeError, match=f"'colour': known are {', '.join(sorted(KNOWN))}"):
        any_task(colour="red")(plain.func)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("queue", "say queue_name."),
        ("retries", "say max_attempts, which counts the first attempt too."),
        ("max_retries", "say max_attempts, which counts the first attempt too."),
        ("retry_for", "every exception is retried, but those of no_retry_for."),
        ("autoretry_for", "every exception is retried, but those of no_retry_for."),
        ("default_retry_delay", "say backoff."),
        ("retry_backoff", "say backoff."),
        ("soft_time_limit", "say timeout."),
        ("time_limit", "say hard_timeout."),
        ("rate_limit", "say rate."),
        ("overflow", "that is said of a queue, in OPTIONS['queue_options']."),
        ("copies", "that is said of a queue, in OPTIONS['queue_options']."),
        ("bind", "say takes_context=True."),
        *(
            (name, "say task.using(run_after=...), with a datetime or a timedelta.")
            for name in ("eta", "countdown", "delay", "run_after")
        ),
    ],
)
def test_words_of_other_frameworks(name: str, answer: str) -> None:
    """What another framework calls it is answered with the word for it here, by either decorator."""
    text = re.escape(f"@task on plain got an unknown option '{name}': {answer}")
    with pytest.raises(TypeError, match=text):
        any_task(**{name: 1})(plain.func)
    if name != "run_after":  # which Django's own takes
        with pytest.raises(TypeError, match=text):
            make_task(func=plain.func, **{name: 1})


def test_the_nearest_name_of_an_option() -> None:
    """It is told for a mistyped one, ``queue_options`` among them."""
    with pytest.raises(ValueError, match="has no option 'queue_option': did you mean 'queue_options'"):
        parse({"OPTIONS": {"queue_option": {"emails": {"max_attempts": 2}}}})
    with pytest.raises(ValueError, match="has no option 'queues': say QUEUES, beside OPTIONS"):
        parse({"OPTIONS": {"queues": []}})


@pytest.mark.parametrize(
    ("name", "answer"),
    [("unique_key", "known are"), ("max_retries", "say max_attempts"), ("time_limit", "say hard")],
)
def test_unknown_name_in_the_settings(name: str, answer: str) -> None:
    """What does not exist is an error in OPTIONS and in ``queue_options``; a word of other frameworks is answered."""
    for options in ({name: 1}, {"queue_options": {"q": {name: 1}}}):
        with pytest.raises(ValueError, match=f"has no option '{name}': {answer}"):
            parse({"OPTIONS": options})


@pytest.mark.django_db
def test_unknown_name_of_a_publish() -> None:
    """What does not exist (yet) is refused by every way to publish, and nothing is stored."""
    queue = Queue("q")
    with pytest.raises(TypeError, match="order_key"):
        queue.publish({}, order_key="a")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="order_key"):
        queue.publish_many([{}], order_key=str)  # type: ignore[call-arg]
    assert len(queue) == 0


@pytest.mark.parametrize("name", ["Group", "Schedule", "StepError"])
def test_unknown_name_of_the_package(name: str) -> None:
    """What does not exist (yet) cannot be imported."""
    with pytest.raises(ImportError, match=f"cannot import name '{name}' from 'django_vtqueue'"):
        exec(f"from django_vtqueue import {name}")
    assert name not in dir(django_vtqueue)


# -- the database ---------------------------------------------------------------------------------------------------


class JobsElsewhere:
    """A router that keeps our tables in a database of their own."""

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "jobs" if model is Job else None


def test_database(settings: Settings) -> None:
    """``database`` says which alias is used; without it the router does; ``using`` of a Queue beats both."""
    assert configure(settings).database == Queue("q").database == "default"
    assert configure(settings, database="jobs").database == Queue("q").database == "jobs"
    settings.DATABASE_ROUTERS = ["tests.tasks.test_settings.JobsElsewhere"]
    assert router.db_for_write(Job) == "jobs"
    assert configure(settings).database == Queue("q").database == "jobs"
    assert configure(settings, database="default").database == Queue("q").database == "default"
    assert Queue("q", using="other").database == "other"


def test_queue_finds_its_backend(settings: Settings) -> None:
    """A Queue has the options of the backend that names it, else of one that allows any, else of the first of ours."""
    dummy = {"BACKEND": f"{FRAMEWORK}.backends.dummy.DummyBackend", "QUEUES": []}
    default = {"BACKEND": BACKEND_PATH, "OPTIONS": {"threads": 1, "queue_options": {"sensors": {}}}}
    emails = {"BACKEND": BACKEND_PATH, "QUEUES": ["emails"], "OPTIONS": {"database": "mail", "threads": 2}}
    anything = {"BACKEND": BACKEND_PATH, "QUEUES": [], "OPTIONS": {"database": "jobs", "threads": 3}}

    settings.TASKS = {"dummy": dummy, "default": default, "emails": emails, "anything": anything}
    assert list(configured()) == ["default", "emails", "anything"]
    found = {name: Queue(name).options.threads for name in ("default", "sensors", "emails", "reports")}
    assert found == {"default": 1, "sensors": 1, "emails": 2, "reports": 3}
    assert Queue("emails").database == "mail"
    assert Queue("emails", using="jobs").options.threads == 3

    settings.TASKS = {"dummy": dummy, "default": default, "emails": emails}
    assert Queue("reports").options.threads == 1
    settings.TASKS = {"dummy": dummy}
    assert Queue("reports").options == Options()


# -- handlers of raw jobs -------------------------------------------------------------------------------------------

handled: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_handled() -> None:
    handled.clear()


def on_sensor(job: ClaimedJob) -> str:
    handled.append((job.payload, job.attempt, job.claim_number))
    return "seen"


def on_broken_sensor(job: ClaimedJob) -> None:
    raise OSError("no such sensor")


def work(backend: VTQueueBackend) -> list[Outcome]:
    """Do what a worker of this backend does."""
    return list(run_due([Line(backend, scopes_of(backend, None))]))


@pytest.mark.django_db
def test_handler(settings: Settings) -> None:
    """A worker hands the raw jobs of a queue to the handler that ``queue_options`` name, and tasks to themselves."""
    backend = configure(settings, queue_options={"sensors": {"handler": "tests.tasks.test_settings.on_sensor"}})
    sensor, other = Queue("sensors").publish({"id": 7}), Queue("others").publish({"id": 8})
    plain.using(queue_name="sensors").enqueue()

    outcomes = work(backend)
    assert sorted(outcome.job.task_path for outcome in outcomes) == ["", "tests.tasks.test_settings.plain"]
    assert handled == [({"id": 7}, 1, 1)]
    job = Job.objects.get(id=sensor)
    assert (job.state, job.result) == ("SUCCESSFUL", "seen")
    assert Job.objects.get(id=other).state == "READY"


@pytest.mark.django_db
def test_handler_of_the_command(settings: Settings) -> None:
    """``vtworker --drain`` works the raw jobs of such queues too."""
    configure(settings, queue_options={"sensors": {"handler": "tests.tasks.test_settings.on_sensor"}})
    Queue("sensors").publish([1])
    call_command("vtworker", drain=True)
    assert handled == [([1], 1, 1)]


@pytest.mark.django_db
def test_handler_that_raises(settings: Settings) -> None:
    """A handler that raises fails the attempt, by the queue's policy; after the last one the job is a dead letter."""
    backend = configure(
        settings,
        queue_options={
            "sensors": {"handler": "tests.tasks.test_settings.on_broken_sensor", "max_attempts": 2, "backoff": 0}
        },
    )
    Queue("sensors").publish({})
    outcomes = work(backend)
    assert [outcome.settlement.state for outcome in outcomes] == ["READY", "FAILED"]
    letter = DeadLetter.objects.get()
    assert (letter.exception_class, letter.message, letter.attempts) == ("builtins.OSError", "no such sensor", 2)


@pytest.mark.django_db
def test_handler_that_is_not_there(settings: Settings) -> None:
    """A handler that cannot be imported fails the attempt and names what is missing; the job stays."""
    backend = configure(settings, queue_options={"sensors": {"handler": "tests.tasks.test_settings.on_nothing"}})
    job_id = Queue("sensors").publish({})
    [outcome] = work(backend)
    assert isinstance(outcome.exception, ImportError)
    assert "on_nothing" in Job.objects.get(id=job_id).traceback


# -- what the settings do -------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(("ttl", "kept"), [(60, True), (None, True), (0, False)])
def test_result_ttl(settings: Settings, ttl: float | None, kept: bool) -> None:
    """``result_ttl``: seconds for which a finished job is kept, 0 for not at all, None for ever."""
    configure(settings, result_ttl=ttl)
    succeeds.enqueue()
    [result] = run_pending()
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, "done")
    assert Job.objects.exists() is kept
    for job in Job.objects.all():
        assert (job.kept_until is None) is (ttl is None)


def test_every_option_is_known() -> None:
    """Each option that has a default can be set, and the other way round."""
    assert POLICY.keys() <= BACKEND.keys()
    assert {*BACKEND, *OF_QUEUE, "queue_options", "queues"} == set(parse({}).__dataclass_fields__)


@pytest.mark.django_db
@pytest.mark.parametrize("options", [{"on_duplicate": "error"}, {"unique_until": "start"}])
def test_options_of_a_key_without_a_key(options: dict[str, Any]) -> None:
    """A key that was forgotten is said where the task is defined, and by the publish; nothing is stored."""
    with pytest.raises(ValueError, match="without unique_key"):
        task(**options)(lambda: None)
    queue = Queue("default")
    with pytest.raises(ValueError, match="without unique_key"):
        queue.publish({}, **options)
    assert len(queue) == 0


@pytest.mark.parametrize("wrong", ["emails", 5, "", [], 0])
def test_what_stands_in_the_place_of_the_function(wrong: Any) -> None:
    """An option without its name is an error that says how it is given; it is not taken for none."""
    with pytest.raises(TypeError, match=r"@task stands above a function, not .*\. Name each option: queue_name="):
        task(wrong)


@pytest.mark.django_db
def test_an_entry_that_cannot_be_imported_is_left_out(settings: Settings) -> None:
    """It costs the jobs of the others nothing: a task fails with its own exception, and its secrets are hidden."""
    settings.TASKS = {
        "default": {"BACKEND": BACKEND_PATH, "QUEUES": [], "OPTIONS": {"mask": ["pin"]}},
        "other": {"BACKEND": "nowhere.Backend"},
    }
    result = plain.enqueue()
    Queue("raw").publish({"pin": 1234})
    [ended] = run_pending()
    assert (ended.id, ended.status) == (result.id, TaskResultStatus.READY)
    assert [error.exception_class_path for error in ended.errors] == ["builtins.RuntimeError"]
    assert list(configured()) == ["default"]


def test_check_says_which_entry_cannot_be_imported(settings: Settings) -> None:
    """The framework asks each backend for its checks."""
    settings.TASKS = {"default": {"BACKEND": BACKEND_PATH}, "other": {"BACKEND": "nowhere.Backend"}}
    with pytest.raises(ImproperlyConfigured, match=r"nowhere\.Backend"):
        call_command("check")
