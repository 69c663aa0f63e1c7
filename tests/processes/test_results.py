"""Processes that wait for the result of a task, and the workers that wake them."""

import asyncio
from pathlib import Path

import pytest

from django_vtqueue import async_wait_for_result, wait_for_result
from tests.project import tasks

from ..waiting import wait_until
from . import inside
from .database import Database
from .held import lines
from .running import Running, Start

# Woken by a bell, or in an hour.
WAIT = """
import asyncio, sys
import django
django.setup()
from django.db import transaction
from django_vtqueue import async_wait_for_result, wait_for_result
from tests.processes import inside
from tests.project import tasks
inside.never_look_for_results()
"""
BLOCKING = f"""{WAIT}
result = tasks.hold.enqueue(sys.argv[1])
print("waits", flush=True)
print("ended", wait_for_result(result, 60).return_value, flush=True)
"""
ASYNC = f"""{WAIT}
async def both():
    results = [await tasks.hold.aenqueue(sys.argv[1]), await tasks.hold.aenqueue(sys.argv[1], "other")]
    print("waits", flush=True)
    ended = await asyncio.gather(*[async_wait_for_result(result, 60) for result in results])
    print("ended", *[result.return_value for result in ended], flush=True)
asyncio.run(both())
"""


@pytest.mark.parametrize("kind", [("--threads", "2"), ("--processes", "2")], ids=["threads", "processes"])
@pytest.mark.parametrize(("program", "said"), [(BLOCKING, "ended go\n"), (ASYNC, "ended go othergo\n")])
def test_a_wait_is_woken_at_the_end_of_its_task(
    start: Start, start_worker: Start, tmp_path: Path, program: str, said: str, kind: tuple[str, ...]
) -> None:
    """A process that waits for a result learns of it by a bell that the worker rings, whoever else is there."""
    start_worker(*kind)
    waiter = start("-c", program, str(tmp_path))
    for name in ("started", "otherstarted") if program == ASYNC else ("started",):
        wait_until((tmp_path / name).exists)
    for name in ("go", "othergo"):
        (tmp_path / name).write_text("go")
    assert waiter.wait() == 0, waiter.log
    assert waiter.log.endswith(said)


def printed(start: Start, code: str) -> str:
    """Return what a process prints that runs this code after the imports."""
    process: Running = start("-c", f"{WAIT}\n{code}")
    assert process.wait() == 0, process.log
    return process.log


def test_what_has_ended_is_not_waited_for(start: Start, start_worker: Start) -> None:
    """A failed attempt that is followed by another one is no end; a dead letter is, and so is a success."""
    start_worker()
    code = """
print(wait_for_result(tasks.fail_first.enqueue(1), 60).status)
result = tasks.raise_it.enqueue("MemoryError")
dead = wait_for_result(result, 60)
print(dead.status, wait_for_result(result).errors[-1].exception_class_path)
with transaction.atomic():
    print(wait_for_result(result).status)
"""
    assert printed(start, code).split() == ["SUCCESSFUL", "FAILED", "builtins.MemoryError", "FAILED"]


def test_a_wait_that_ends_without_a_result(start: Start) -> None:
    """The time is up, the row is not kept, a transaction would have to end first: each is an error of its own."""
    code = """
result = tasks.add.enqueue(1, 2)
for wait in (lambda: wait_for_result(result, 0.1), lambda: asyncio.run(async_wait_for_result(result, timeout=0.1))):
    try:
        wait()
    except TimeoutError as error:
        print(error)
with transaction.atomic():
    try:
        wait_for_result(result, 5)
    except RuntimeError as error:
        print(error)
for wrong in ((result, "1"), (result.id,), (result, -1)):
    try:
        wait_for_result(*wrong)
    except (TypeError, ValueError) as error:
        print(type(error).__name__, error)
from django_vtqueue.models import Job
Job.objects.all().delete()
try:
    wait_for_result(result, 5)
except inside.TaskResultDoesNotExist:
    print("gone")
"""
    *lines, gone = printed(start, code).splitlines()
    assert [line.partition(" ")[2].partition(" ")[2] for line in lines[:2]] == [
        "has not ended within 0.1 s. It goes on."
    ] * 2
    assert "inside a transaction of database 'default'" in lines[2]
    assert [line.split()[0] for line in lines[3:]] == ["ValueError", "TypeError", "ValueError"]
    assert gone == "gone"


def test_the_bell_of_a_killed_process_is_taken_away(
    database: Database, start: Start, start_worker: Start, tmp_path: Path
) -> None:
    """What a process that was killed while it waited has left is removed when its task ends."""
    start_worker("--threads", "1")
    waiter = start("-c", BLOCKING, str(tmp_path))
    wait_until(lambda: len(database.bells()) == 2 and (tmp_path / "started").exists())
    waiter.kill()
    (tmp_path / "go").write_text("go")
    wait_until(lambda: len(database.bells()) == 1)


def test_a_retry_pauses_its_queue(database: Database, start_worker: Start) -> None:
    """A task that meets a service with too much to do holds up all of its queue, with the reason, for a while."""
    worker = start_worker("--threads", "1")
    began = inside.now()
    database.enqueue(tasks.too_many_requests, 60)
    wait_until(lambda: database.rows("SELECT 1 FROM vtqueue_queuestate"))
    other = database.enqueue(tasks.add, 1, 2)
    [pause] = database.rows("SELECT * FROM vtqueue_queuestate")
    assert (pause["queue_name"], pause["reason"], pause["paused_by"]) == ("default", "429 Too Many Requests", "")
    assert 59 * inside.SECOND < pause["paused_until"] - began < 90 * inside.SECOND
    assert worker.terminate() == 0
    assert database.job(other)["state"] == "READY"
    assert database.job(other)["claims"] == 0


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_large_results_that_come_together_are_stored_one_after_the_other(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """Each takes a second; a turn that stores them all is ended by the server, for it is silent for too long then."""
    ids = database.enqueue_many(tasks.return_text, [(7_000_000, str(tmp_path))] * 5)
    worker = start_worker("--threads", "5", constants=inside.tuned(server_silence_ms=3000))
    wait_until(lambda: len(lines(tmp_path / "started")) == 5)
    (tmp_path / "go").write_text("go")
    database.wait_for(*ids)
    assert [database.job(job_id)["claims"] for job_id in ids] == [1] * 5
    assert "could not be stored" not in worker.log


def test_each_names_itself() -> None:
    """An error of the one for async code names that one."""
    with pytest.raises(TypeError, match=r"^wait_for_result takes a result"):
        wait_for_result("x")  # type: ignore[type-var]
    with pytest.raises(TypeError, match=r"^async_wait_for_result takes a result"):
        asyncio.run(async_wait_for_result("x"))  # type: ignore[type-var]
