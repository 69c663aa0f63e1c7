"""Durable tasks, and what they must survive."""

import asyncio
import os
import signal
import time
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.db import transaction
from django.db.models import F

from django_vtqueue import JobContext, Snooze, call, task
from django_vtqueue.models import Job

from .models import Effect

DAY = timedelta(days=1)


def note(name: str) -> None:
    """Count one more, as something that cannot be taken back does."""
    with transaction.atomic():  # it begins with a write, so that of two threads one waits
        if not Effect.objects.filter(name=name).update(value=F("value") + 1):
            Effect.objects.create(name=name, value=1)


def charge(order_id: int) -> dict[str, Any]:
    note("charge")
    return {"order": order_id, "paid": (1, 2)}


async def acharge(order_id: int) -> dict[str, Any]:
    return await sync_to_async(charge)(order_id)


@task(takes_context=True, unique_key="order:{order_id}")
def order(context: JobContext, order_id: int) -> list[Any]:
    """The example of the documentation."""
    paid = context.step("charge", charge, order_id)
    shipped = context.wait_for("shipped", timeout=3 * DAY)
    context.sleep("two weeks", 14 * DAY)
    context.step("mail", note, "mail")
    return [paid["paid"], shipped]


@task(takes_context=True)
async def aorder(context: JobContext, order_id: int) -> list[Any]:
    paid = await context.astep("charge", acharge, order_id)
    shipped = await context.async_wait_for("shipped", timeout=3 * DAY)
    await context.asleep("two weeks", 14 * DAY)
    await context.astep("mail", note, "mail")
    return [paid["paid"], shipped]


@task(takes_context=True, backoff=0)
def fails_behind(context: JobContext, transactional: bool = False) -> int:
    """Fail behind a step in the first attempt, and inside of the next step in the second one."""
    context.step("first", note, "first", transactional=transactional)

    def second() -> None:
        note("second")
        if context.attempt == 2:
            raise ConnectionError("inside")

    if context.attempt == 1:
        raise ConnectionError("behind")
    context.step("second", second, transactional=transactional)
    return context.attempt


CODE: dict[str, Any] = {}  # what changed_code does, as tests want it


@task(takes_context=True)
def changed_code(context: JobContext) -> Any:
    """Do what a test has put into CODE, as if the code had been changed meanwhile."""
    return CODE["run"](context)


@task(takes_context=True, max_attempts=100, backoff=0)
def fails_often(context: JobContext) -> Any:
    """Do the same, as often as a test may need."""
    return CODE["run"](context)


@task(takes_context=True)
async def achanged_code(context: JobContext) -> Any:
    return await CODE["run"](context)


@task(transactional=True, takes_context=True)
def wholly_transactional(context: JobContext) -> None:
    context.step("no", note, "no")


@task(takes_context=True, max_attempts=2)
def put_off(context: JobContext, times: int) -> int:
    note("started")
    if Effect.objects.get(name="started").value <= times:
        raise Snooze(60)
    return context.attempt


@task(takes_context=True)
def in_a_block(context: JobContext) -> None:
    with transaction.atomic():
        context.sleep("nap", 1)


@task(takes_context=True, visibility_timeout=2, backoff=0.1)
def loses_its_lease(context: JobContext) -> None:
    """Lose the lease inside a step, in the first claim of the job."""

    def lose() -> int:
        job = Job.objects.get(pk=context.task_result.id)
        if job.claims == 1:
            Job.objects.filter(pk=job.pk).update(claims=7)
        return job.claims

    context.step("lose", lose)


@task(hard_timeout=0.5, max_attempts=1)
def hang() -> None:
    """Run for longer than it may; a worker does not load this module before it has found the task."""
    time.sleep(60)


@task(takes_context=True)
def beside_a_lock(context: JobContext, folder: str, what: str) -> int:
    """Go on to a step, or to children, when a file is there; the lock is held then."""

    def wait() -> None:
        note("begun")
        while not os.path.exists(f"{folder}/go"):
            time.sleep(0.01)

    if what == "step":
        context.step("first", wait)
    else:
        wait()
        if what == "transactional":
            context.step("first", note, "first", transactional=True)
        else:
            context.gather("all", [call(child, "a")])
    return context.attempt


@task(takes_context=True, backoff=0)
def killed_in_steps(context: JobContext) -> int:
    """Have the worker killed inside a step, and behind it, once each."""
    for index in range(2):
        context.step(f"step {index}", killed, index, context.task_result.id, transactional=True)
        if once(f"behind {index} {context.task_result.id}"):
            os.kill(os.getpid(), signal.SIGKILL)
    return context.attempt


def killed(index: int | str, job_id: str) -> None:
    Effect.objects.create(name=f"step {index}", value=0)
    if once(f"inside {index} {job_id}"):
        os.kill(os.getpid(), signal.SIGKILL)


@task(takes_context=True)
def killed_at_each_item(context: JobContext, of_rows: bool) -> int:
    """Have the worker killed before the step of each item, inside of it and behind it, once each.

    Before the loop a step returns more than is written again with each item.
    """
    ids = context.step("ids", lambda: list(range(1_000_000, 1_002_000)))
    source: Any = Effect.objects.filter(value=7).order_by("-name").reverse() if of_rows else ids[:3]
    for item in context.iterate("items", source):
        name = f"{item} of {context.task_result.id}"
        if once(f"before {name}"):
            os.kill(os.getpid(), signal.SIGKILL)
        context.step("note", killed, f"{item}", context.task_result.id, transactional=True)
        if once(f"behind {name}"):
            os.kill(os.getpid(), signal.SIGKILL)
    return context.attempt


def once(name: str) -> bool:
    """Return whether this is the first call with a name, in whatever process or transaction."""
    folder = os.environ["VTQUEUE_TEST_ONCE"]
    try:
        os.close(os.open(os.path.join(folder, name.replace("/", "-")), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


@task
def child(name: str) -> str:
    note(name)
    return name * 2


@task(max_attempts=1)
def failing_child(name: str) -> None:
    note(name)
    raise ConnectionError("refused")


@task(order_key="customer:{name}")
def ordered_child(name: str) -> None:
    note(name)


@task(order_key="customer:{name}", takes_context=True)
def ordered_parent(context: JobContext, name: str) -> None:
    CODE["run"](context)


@task(unique_key="child")
def unique_child() -> None: ...


@task(takes_context=True)
async def agathers(context: JobContext, names: list[str]) -> list[Any]:
    results = await context.agather("all", [call(child, name) for name in names])
    return [result.return_value for result in results]


@task(takes_context=True)
async def awalks(context: JobContext, count: int) -> list[int]:
    seen = []
    async for item in context.aiterate("items", range(count)):
        await context.astep("note", note, f"item {item}")
        await context.asleep("nap", 60)
        seen.append(item)
    return seen


@task(takes_context=True)
def walks(context: JobContext, folder: str, count: int) -> int:
    """Write down each item, and do nothing more until a file is there that lets it."""
    for item in context.iterate("items", range(count)):
        with open(f"{folder}/items", "a") as file:
            file.write(f"{item}\n")
        while item == 2 and not os.path.exists(f"{folder}/go"):
            time.sleep(0.01)
    return count


def write(name: str, seconds: float = 0) -> None:
    Effect.objects.create(name=name)
    time.sleep(seconds)


@task(takes_context=True)
def writes_often(context: JobContext, count: int, seconds: float) -> None:
    """Have the lock nearly all the time, a step after the other."""
    for number in context.iterate("items", range(count)):
        context.step("write", write, f"item {number}", seconds, transactional=True)


@task(transactional=True)
def flow_child(index: int, number: int) -> int:
    write(f"child {index} {number}")
    return index


@task(takes_context=True)
def flow(context: JobContext, number: int) -> None:
    """Five steps, two sleeps, an event and three children."""
    context.step("first", write, f"first {number}", transactional=True)
    context.step("second", write, f"second {number}", 0.2)
    context.sleep("nap", 0.1)
    context.step("third", write, f"third {number}", transactional=True)
    assert context.wait_for("go") == 1
    results = context.gather("children", [call(flow_child, index, number) for index in range(3)])
    assert [result.return_value for result in results] == [0, 1, 2]
    context.step("fourth", write, f"fourth {number}", 0.2)
    context.sleep("another nap", 0.1)
    context.step("fifth", write, f"fifth {number}", 0.2)


@task(takes_context=True)
async def abeside(context: JobContext) -> None:
    """Ask for two steps at once."""
    await asyncio.gather(*(context.astep(name, asyncio.sleep, 0.01) for name in "ab"))


@task(takes_context=True)
async def in_a_task_group(context: JobContext) -> str:
    """Wait inside of what wraps exceptions in a group."""
    async with asyncio.TaskGroup() as group:
        group.create_task(context.asleep("nap", 60))
    return "slept"


@task(takes_context=True)
def note_family(context: JobContext, path: str, name: str) -> int:
    """Write a line before, in each of three children, and behind a sleep; each of them in a step of its own."""
    context.step("begins", tell, path, f"{name} begins")
    ended = context.gather("children", [call(note_child, path, f"{name} child {number}") for number in range(3)])
    context.sleep("nap", 0.2)
    context.step("ends", tell, path, f"{name} ends")
    return len(ended)


@task(order_key="path:{path}")
def note_child(path: str, text: str) -> None:
    tell(path, text)


def tell(path: str, text: str) -> None:
    """Write a line to a file, in one piece."""
    with open(path, "a") as file:
        file.write(f"{text}\n")


@task(takes_context=True, max_attempts=2, backoff=0.1)
def gathers_elsewhere(context: JobContext, name: str) -> list[Any]:
    context.step("first", lambda: "made")
    return [each.return_value for each in context.gather("all", [call(child.using(queue_name="elsewhere"), name)])]
