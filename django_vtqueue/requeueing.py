"""Requeues of many dead letters: a chain of short jobs, each of which requeues the next few and publishes the next.

Each is a transactional task: what a step does and its acknowledgement are one transaction. While a run waits it holds
nothing. It goes through the letters in the order in which they died, up to the moment at which it was started, so that
what dies again is not picked up again.
"""

from collections import Counter
from dataclasses import replace
from uuid import UUID

from django.db.models import F, QuerySet, Value

from .backend import VTQueueBackend
from .core import clock, states
from .core.encoding import dumps
from .core.ids import new_id
from .core.job import NewJobs
from .core.text import shown
from .engines import Engine, database_for, engine_for, options_for
from .models import DeadLetter, Job, Requeue
from .queue.arguments import MAX_PRIORITY, checked_by, checked_priority, served_queue_name
from .queue.dead_letters import Criteria as Criteria  # for its callers
from .queue.discarding import discard_jobs
from .queue.publishing import store
from .tasks.compat import TaskContext, task_backends
from .tasks.results import own_task

BATCH = 100  # letters of a step: the write lock is held for some milliseconds
FASTEST = 1_000_000  # letters a minute that one may ask for
BEAT = 6  # seconds between two steps of a slow run
ATTEMPTS = 10
SOONEST, LATEST = 1.0, 30.0  # seconds between two looks at a canary
LONGEST = 255  # characters of a remark
NAMED_FROM = 10_000  # letters that are read to find the name of a run
FOLLOWED = 2000  # jobs of a run whose ids it keeps: a step writes them again
ID_LENGTH = 32
PATH = "django_vtqueue.requeueing.step"

CANARY, RUNNING, DONE, STOPPED, FAILED = "canary", "running", "done", "stopped", "failed"  # states of a run
GONE = "GONE"  # beside the states of a job


def pace(rate: int | None) -> tuple[int, float]:
    """Return how many letters a step requeues, and the seconds until the next one, for a rate a minute."""
    if rate is None:
        return BATCH, 0
    size = min(max(rate * BEAT // 60, 1), BATCH)
    return size, size * 60 / rate


def start(
    criteria: Criteria,
    *,
    rate: int | None = None,
    canary: bool = False,
    queue_name: str | None = None,
    priority: int | None = None,
    by: str = "",
    using: str | None = None,
) -> Requeue:
    """Begin to requeue all dead letters that meet criteria, in the background; return the run.

    ``rate``: so many a minute (None: at once); ``canary``: one first, the others only if it succeeds; ``queue_name``,
    ``priority``: for all of them, instead of their own; ``by``: who does it; ``using``: a database alias (default: the
    one of your settings). Raise ValueError for a value that is not allowed, TypeError if ``criteria`` is none.
    """
    if not isinstance(criteria, Criteria):
        raise TypeError(f'criteria is {shown(criteria)}, but must be a Criteria: Criteria(queue_name="emails").')
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int) or not 1 <= rate <= FASTEST):
        raise ValueError(f"rate is {rate!r}, but must be a whole number a minute, 1 to {FASTEST:,}, or None.")
    database = database_for(using)
    now = engine_for(database).now()
    criteria = replace(criteria, died_to=now if criteria.died_to is None else min(criteria.died_to, now))
    first = criteria.letters(database).first()
    run = Requeue(
        criteria=criteria.to_json(),
        **name_of(criteria, database),
        queue_name=first.queue_name if first else "",
        rate=rate,
        to_queue=None if queue_name is None else served_queue_name(queue_name, database),
        to_priority=None if priority is None else checked_priority(priority),
        matched=criteria.count(database),
        state=CANARY if canary else RUNNING,
        created_at=clock.from_instant(now),
        created_by=checked_by(by),
    )
    if first is None:
        _end(run, DONE, now)
    with engine_for(database).atomic():
        if first:
            _go_on(run, database, now)
        run.save(using=database)
    return run


def name_of(criteria: Criteria, database: str) -> dict[str, str | None]:
    """Return the task and the exception of letters by which people know a run of them; None where they differ."""
    pairs = criteria.letters(database).values_list("task_path", "exception_class")[:NAMED_FROM]
    tasks, exceptions = ({*column} for column in zip(*set(pairs), strict=True)) if pairs else (set(), set())
    return {
        "task_path": tasks.pop() if len(tasks) == 1 else criteria.task_path,
        "exception_class": exceptions.pop() if len(exceptions) == 1 else criteria.exception_class,
    }


def fate_of(run: Requeue) -> Counter[str]:
    """Return how many of the jobs that a run requeued last, ``FOLLOWED`` at the most, are in which state.

    GONE: in no table any more: their time after a success was over, or they were discarded.
    """
    ids = [run.followed[place : place + ID_LENGTH] for place in range(0, len(run.followed), ID_LENGTH)]
    jobs = Job.objects.using(run._state.db).filter(pk__in=ids).values_list("state")
    letters = DeadLetter.objects.using(run._state.db).filter(pk__in=ids).values_list(Value(states.FAILED))
    # One statement: two would miss a job that is requeued in between.
    found = Counter(state for (state,) in jobs.union(letters, all=True))
    found[GONE] = len(ids) - found.total()
    return found


def stop(run_id: UUID, using: str | None = None, *, by: str = "") -> bool:
    """End a run after what it has done so far; return False if it has ended already."""
    database = database_for(using)
    ended = {"state": STOPPED, "ended_at": engine_for(database).now(), "remark": by}
    with engine_for(database).atomic():
        return bool(Requeue.objects.using(database).filter(pk=run_id, ended_at=None).update(**ended))


def step_of(run: Requeue) -> Job | None:
    """Return the job that goes on with a run; None if it was deleted, purged, or has died."""
    return Job.objects.using(run._state.db).filter(pk__in=[run.step], finished_at=None).first()


def resume(run_id: UUID, using: str | None = None) -> bool:
    """Go on with a run whose next step was deleted, purged, or has died; return False if it needs none."""
    database = database_for(using)
    with engine_for(database).atomic():
        runs = Requeue.objects.using(database).filter(pk=run_id, ended_at=None)
        runs.update(step=F("step"))  # the write lock, before anything is read
        run = runs.first()
        if run is None or step_of(run):
            return False
        DeadLetter.objects.using(database).filter(pk__in=[run.step], task_path=PATH).delete()
        _go_on(run, database, engine_for(database).now())
        run.save(using=database)
    return True


@own_task(timeout=None, hard_timeout=None, transactional=True)
def step(context: TaskContext, run_id: str, before: str = "") -> None:
    """Go one step further with a run. ``before``: the job of the step before."""
    backend = task_backends[context.task_result.backend]
    assert isinstance(backend, VTQueueBackend)
    engine = engine_for(backend.database)
    if run := Requeue.objects.using(engine.alias).select_for_update().filter(pk=run_id, ended_at=None).first():
        advance(run, engine)
        run.save(using=engine.alias)
    if before:
        steps = Job.objects.using(engine.alias).filter(pk=before, task_path=PATH)
        discard_jobs(list(steps.values_list("pk", flat=True)), using=engine.alias)  # many steps leave one job behind


def advance(run: Requeue, engine: Engine) -> None:
    """Do what is next in a run, and publish its next step."""
    now = engine.now()
    if run.state == CANARY and run.canary:
        _look_at_canary(run, engine, now)
        return
    size, seconds = (1, 0.0) if run.state == CANARY else pace(run.rate)
    letters = list(_ahead(run).values_list("pk", "died_at")[:size])
    moved = engine.requeue(
        [letter.hex for letter, _ in letters], now, run.created_by, queue_name=run.to_queue, priority=run.to_priority
    )
    run.requeued += len(moved)
    went = "".join(letter.hex for letter, _ in letters if letter.hex in moved)
    run.followed = (run.followed + went)[-FOLLOWED * ID_LENGTH :]
    run.skipped += len(letters) - len(moved)
    if letters:
        run.last_id, run.last_died_at = letters[-1]
    if len(letters) < size:
        _end(run, DONE, now)
    elif run.state == CANARY and moved:
        run.canary = letters[0][0]
        _go_on(run, engine.alias, now, SOONEST)
    else:
        _go_on(run, engine.alias, now, seconds)


def _look_at_canary(run: Requeue, engine: Engine, now: int) -> None:
    """Go on if the first letter has succeeded, end the run if it has not, else look again later."""
    assert run.canary
    found = engine.find(run.canary.hex)
    if found and found.state in (*states.QUEUED, states.RUNNING):
        waited = (now - clock.to_instant(run.created_at)) / clock.SECOND
        _go_on(run, engine.alias, now, min(max(waited / 2, SOONEST), LATEST))
    elif found and found.state == states.FAILED:
        letter = DeadLetter.objects.using(engine.alias).get(pk=run.canary)
        _end(run, FAILED, now, f"{letter.exception_class}: {letter.message}")
    elif found or _kept_briefly(run.to_queue or run.queue_name, engine):
        run.state = RUNNING
        _go_on(run, engine.alias, now)
    else:
        _end(run, FAILED, now)


def _kept_briefly(queue_name: str, engine: Engine) -> bool:
    """Return whether a job that has succeeded may be gone before it is looked at again."""
    result_ttl = options_for(queue_name, engine.alias).policy(queue_name).result_ttl
    return result_ttl is not None and result_ttl <= 2 * LATEST


def _ahead(run: Requeue) -> QuerySet[DeadLetter]:
    after = (clock.to_instant(run.last_died_at), run.last_id) if run.last_died_at and run.last_id else None
    return Criteria.from_json(run.criteria).letters(str(run._state.db), after)


def queue_of_steps(run: Requeue, database: str) -> str:
    """Return the queue of the letters of a run, so that what pauses them pauses it.

    If no worker serves that queue, because it has raw jobs only, it is another queue of the same backend.
    """
    queues = options_for(run.queue_name, database).queues
    return run.queue_name if not queues or run.queue_name in queues else min(queues)


def _go_on(run: Requeue, database: str, now: int, seconds: float = 0) -> None:
    """Publish the next step of a run, above all else in its queue."""
    queue_name = queue_of_steps(run, database)
    options = options_for(queue_name, database)
    job_id = new_id()
    call = {"args": [str(run.pk)], "kwargs": {"before": str(run.step or "")}}
    new = NewJobs(
        queue_name=queue_name,
        task_path=PATH,
        priority=MAX_PRIORITY,
        max_attempts=ATTEMPTS,
        lease_us=clock.microseconds(options.policy(queue_name).visibility_timeout),
        enqueued_at=now,
        due_at=now + clock.microseconds(seconds),
        jobs=[(job_id, dumps(call))],
    )
    store(new, database, options, check_depth=False)
    run.step = UUID(job_id)


def _end(run: Requeue, state: str, now: int, remark: str = "") -> None:
    run.state, run.ended_at, run.remark = state, clock.from_instant(now), remark[:LONGEST]
