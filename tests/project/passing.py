"""Tasks that note when they run: in tests that let time pass it is later for them than clocks say."""

from datetime import timedelta
from typing import Any

from django_vtqueue import JobContext, Retry, Snooze, TaskContext, call, send_event, task
from django_vtqueue.models import Job

from .tasks import add

LOG: list[str] = []
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


def note(what: str, value: Any = "") -> None:
    LOG.append(f"{what} {value}".strip())


@task
def noted(what: str) -> None:
    note(what)


@task(expires=HOUR)
def expiring(what: str) -> None:
    note(what)


@task(takes_context=True)
def enqueues_later(context: JobContext, days: int) -> None:
    """After so many days it enqueues a job for a day later."""
    context.sleep("days", days * DAY)
    note("slept")
    noted.using(run_after=DAY).enqueue("a day later")
    expiring.enqueue("within an hour")


@task(takes_context=True)
async def aenqueues_later(context: JobContext, days: int) -> None:
    await context.asleep("days", days * DAY)
    note("slept")
    await noted.using(run_after=DAY).aenqueue("a day later")


@task(takes_context=True)
def gathers_later(context: JobContext, days: int) -> None:
    context.sleep("days", days * DAY)
    context.step("note", note, "slept")
    context.gather("all", [call(noted.using(run_after=DAY), "child")])
    note("gathered")


@task(takes_context=True)
def sleeps(context: JobContext, name: str, hours: float) -> None:
    context.sleep("hours", hours * HOUR)
    note(name)


@task(takes_context=True)
def sleeps_twice(context: JobContext, name: str, hours: float) -> None:
    context.sleep("first", hours * HOUR)
    sleeps.enqueue(name, hours)


@task(takes_context=True, max_attempts=2)
def comes_again(context: TaskContext, how: str) -> None:
    """A day after its first attempt."""
    note(how)
    if LOG.count(how) == 1:
        raise Retry("later", delay=DAY) if how == "retry" else Snooze(DAY)


@task(takes_context=True)
def sleeps_and_comes_again(context: JobContext, how: str) -> None:
    context.sleep("days", 2 * DAY)
    comes_again.enqueue(how)


@task(takes_context=True)
def waits(context: JobContext) -> Any:
    context.sleep("days", DAY)
    value = context.wait_for("paid", timeout=2 * DAY)
    note("got", value)
    return value


@task(takes_context=True)
def sends(context: JobContext, job_id: str, days: float) -> None:
    context.sleep("days", days * DAY)
    note("sent", send_event(job_id, "paid", 7))


@task(rate="1/d")
def daily(what: str) -> None:
    note(what)


@task(order_key="one", max_attempts=2, backoff=lambda error, result: 7200)
def fails_first(what: str) -> None:
    note(what)
    if LOG.count(what) == 1:
        raise ConnectionError("refused")


@task(order_key="one", expires=HOUR)
def behind(what: str) -> None:
    note(what)


@task
def again(hours: int) -> None:
    """Each run enqueues the next one."""
    note("again")
    again.using(run_after=hours * HOUR).enqueue(hours)


@task(max_attempts=1)
def pauses_its_queue() -> None:
    raise Retry("too many requests", delay=HOUR, whole_queue=True)


@task(timeout=0.1, hard_timeout=1000, max_attempts=1)
def too_long() -> None:
    while True:
        add.func(1, 2)


@task(takes_context=True)
def says_until_when(context: JobContext) -> float:
    """Return for how many seconds it is held, by its row."""
    row = Job.objects.using(context.task_result.task.get_backend().database).get(pk=context.task_result.id)
    return float((row.lease_until - row.started_at).total_seconds())  # type: ignore[operator]
