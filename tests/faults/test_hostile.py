"""Input and tasks that mean harm, or only do it: a clear error, a result or a dead letter; and the next job runs."""

from typing import Any

import pytest

from django_vtqueue import PayloadTooLarge, Queue
from tests.project import broken
from tests.project.tasks import add, raise_it

from ..conftest import ALIAS
from ..processes.database import Database
from ..processes.running import PATIENCE, Start
from ..waiting import wait_until
from . import tasks

both = pytest.mark.parametrize("how", [["--threads", "1"], ["--processes", "2", "--threads", "1"]], ids=["1", "2"])
APP = {"VTQUEUE_TEST_APPS": "tests.faults"}
NO_RESULT = {"nan", "huge", "int keys", "bytes", "object"}


def call(database: Database, name: str, *args: Any, max_attempts: int = 1) -> str:
    """Enqueue a task of this folder by its path."""
    return database.publish(f"tests.faults.tasks.{name}", *args, max_attempts=max_attempts)


def wait_for_end(database: Database, *job_ids: str) -> None:
    for job_id in job_ids:
        wait_until(lambda job_id=job_id: database.letter(job_id) or database.succeeded(job_id), 2 * PATIENCE)


RAISED = {
    "SystemExit": "builtins.SystemExit",
    "KeyboardInterrupt": "builtins.KeyboardInterrupt",
    "GeneratorExit": "builtins.GeneratorExit",
    "BaseException": "builtins.BaseException",
    "CancelledError": "asyncio.exceptions.CancelledError",
    "MemoryError": "builtins.MemoryError",
    "RecursionError": "builtins.RecursionError",
    "Unprintable": "tests.project.tasks.Unprintable",
}


def test_any_exception_is_recorded(database: Database, start_worker: Start) -> None:
    """No exception of a task or of a handler of raw jobs ends the worker or its thread: each is a failed attempt.

    Its class, its words and its traceback are in the history, and the jobs after it run. Also one that cannot be
    printed, of 100 MB, of an endless chain of causes, of a class without a proper name, or that fails when it is
    looked at.
    """
    handlers = {name: {"handler": f"tests.project.broken.{name}"} for name in ("handle_broken", "ahandle_broken")}
    database.options |= {"queue_options": handlers}
    worker = start_worker("--threads", "1", **APP)
    raised = {database.enqueue(raise_it, kind): name for kind, name in RAISED.items()}
    ids = [call(database, "raise_error", kind) for kind in tasks.ERRORS]
    looked_at = []
    for kind in broken.BROKEN:
        looked_at += [database.enqueue(task, kind) for task in (broken.raise_broken, broken.araise_broken)]
        looked_at += [Queue(name, using=ALIAS, max_attempts=1).publish(kind).hex for name in handlers]
    twice = [call(database, "raise_twice", kind, max_attempts=2) for kind in ("unprintable", "noted", "odd class")]
    after = database.enqueue(add, 1, 2)
    wait_for_end(database, *raised, *ids, *looked_at, *twice, after)
    for job_id in [*raised, *ids, *looked_at, *twice]:
        letter = database.letter(job_id)
        assert letter
        assert letter["exception_class"] == raised.get(job_id, letter["exception_class"]) != ""
        assert database.outcomes(job_id) == ["failed"] * (1 + (job_id in twice))
        assert 0 < len(letter["history"]) < 200_000
    assert all(database.history(job_id)[0]["traceback"] for job_id in raised)
    assert all(database.history(job_id)[0]["message"] for job_id in looked_at)
    assert "met an error and goes on" not in worker.log
    assert worker.terminate() == 0


def test_any_result_is_kept_or_refused(database: Database, start_worker: Start) -> None:
    """100 MB are kept where the database takes as much; what is not JSON, or could not be read again, is a failure
    that says why."""
    start_worker("--threads", "1", **APP)
    ids = {kind: call(database, "return_it", kind) for kind in tasks.RESULTS}
    after = database.enqueue(add, 1, 2)
    wait_for_end(database, *ids.values(), after)
    refused = {kind for kind, job_id in ids.items() if database.letter(job_id)}
    too_large = {"100 MB"} if database.backend.largest_result else set()
    assert refused - {"deep"} == NO_RESULT | too_large  # how deep JSON may be differs between versions of Python
    assert database.result(ids["surrogate"]) == "\ud800"
    assert too_large or len(database.result(ids["100 MB"])) == tasks.LARGE


@both
def test_misdeeds(database: Database, start_worker: Start, how: list[str]) -> None:
    """What tasks do to their process keeps no other job from running, nor the worker from ending when it is told."""
    worker = start_worker(*how, **APP)
    for kind in tasks.MISDEEDS:
        bad = call(database, "misbehave", kind)
        others = [database.enqueue(add, number, 1) for number in range(3)]
        wait_for_end(database, bad, *others)
        assert database.succeeded(*others), kind
    assert worker.terminate() == 0


@pytest.mark.parametrize("name", ["leave_process", "close_files"])
def test_a_child_that_leaves(database: Database, start_worker: Start, name: str) -> None:
    """A task that ends its child process, whatever exit code it leaves, has failed; the child is replaced."""
    worker = start_worker("--processes", "2", "--threads", "1", **APP)
    bad = call(database, name)
    wait_for_end(database, bad)
    assert database.outcomes(bad) == ["worker died"]
    others = [database.enqueue(add, number, 1) for number in range(4)]
    wait_for_end(database, *others)
    assert worker.terminate() == 0


def test_arguments_that_can_be_stored(database: Database, start_worker: Start) -> None:
    """10 MB where that is allowed, lone surrogates, numbers beyond 64 bits, keys like options."""
    with pytest.raises(PayloadTooLarge, match="max_payload_bytes allows 1,000,000"):
        database.enqueue(add, "x" * 10**7, 1)
    database.options["max_payload_bytes"] = 20_000_000
    keys = {"--drain": 1, "__class__": 2, "self": 3, "": 4, "\ud800": 5, "\0": 6}
    large = database.enqueue(add, "x" * 10**7, "y")
    others = {database.enqueue(add, [value], []): [value] for value in (2**64, -(10**4000), "\ud800\0", keys, 1e308)}
    anything = database.publish("tests.faults.tasks.take_anything", *range(1000))
    start_worker("--threads", "1", **APP)
    wait_for_end(database, large, *others, anything)
    assert len(database.result(large)) == 10**7 + 1
    assert {job_id: database.result(job_id) for job_id in others} == others
    assert database.result(anything) == [1000, []]


def test_paths_that_are_no_tasks(database: Database, start_worker: Start) -> None:
    """What is no task is not called, what is in no app is not imported, and it fails like any attempt."""
    ours = "tests.faults.tasks"
    paths = ["os.system", "this.s", f"{ours}.chain", f"{ours}.raise_error.func", "tests.nowhere.x"]
    paths += [".", "a..b", "x" * 5000, "--drain"]
    ids = [database.publish(path, "echo") for path in paths]
    after = database.enqueue(add, 1, 2)
    worker = start_worker("--threads", "1", **APP)
    wait_for_end(database, after)
    wait_until(lambda: all(database.history(job_id) for job_id in ids))
    for job_id in ids:
        assert database.history(job_id)[0]["exception_class"].endswith("UnknownTask")
    assert "The Zen of Python" not in worker.log
