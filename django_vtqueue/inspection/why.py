"""The reason why a job is not running, or what became of it: one sentence, from rows that are there anyway."""

from django.utils.translation import gettext as _

from ..core import copies, history, states, steps
from ..core.clock import LAST_INSTANT, from_instant, microseconds, to_instant
from ..core.humanize import duration, time_of
from ..core.ids import shown_worker
from ..core.job import Scope
from ..core.text import printable, shorten
from ..engines import engine_for, options_for
from ..models import DeadLetter, Job, WorkerProcess
from ..patterns.reserved import bells_of_holders
from ..queue.doorbell import path_of
from ..queue.limits import NO_LIMITS, Limits
from ..queue.pauses import paused, sentence
from ..queue.proof_of_death import proves_death
from ..queue.workers import QUIET, SILENCE, STOP, live_workers, serves, start_command
from .state import is_overdue, is_parked, state_word, waiting_sentence, waits_of

LONGEST = 200  # characters of an error's message
NAMED = 5  # workers in a sentence


def why(entry: Job | DeadLetter, now: int, limits: Limits = NO_LIMITS) -> str:
    """Return the sentence for a job or dead letter as it was read; ``now``: an instant; ``limits``: of its queue."""
    if isinstance(entry, DeadLetter):
        return _("dead for %(age)s: %(failure)s; requeue it to have it run again") % {
            "age": duration(max(now - to_instant(entry.died_at), 0)),
            "failure": failure(entry.exception_class, entry.message),
        }
    visible_at = to_instant(entry.visible_at)
    if entry.reserved:
        return holder(entry, now)
    if waits := waiting_sentence(entry, now, limits):
        return waits + more_of(entry, limits) + expiry(entry, now)
    if entry.start_by and is_overdue(entry, now):
        age = duration(now - to_instant(entry.start_by))
        return _("expired %(age)s ago, so a worker will make it a dead letter") % {"age": age}
    match state_word(entry, now):
        case "done":
            ended = now - to_instant(entry.finished_at or entry.visible_at)
            return _("done %(age)s ago by %(worker)s") % {
                "age": duration(max(ended, 0)),
                "worker": shown_worker(entry.worker_id),
            }
        case "scheduled" | "retrying" if snoozed(entry):
            return _("put off by its own code (Snooze) until %(time)s") % {"time": time_of(entry.visible_at)}
        case "scheduled" | "waiting":
            return _("scheduled for %(time)s") % {"time": time_of(entry.visible_at)} + expiry(entry, now)
        case "retrying":
            return retrying(entry)
        case "running":
            return cancel_request(entry, now) + (copies_of(entry, now) or held(entry, visible_at - now, now))
        case "expired" if several := copies_of(entry, now, least=1):
            return cancel_request(entry, now) + several + "; " + takers(entry, now)
        case "expired":
            since = {"worker": shown_worker(entry.worker_id), "age": duration(now - visible_at)}
            expired = _("the lease of %(worker)s ended %(age)s ago") % since
            return cancel_request(entry, now) + expired + "; " + takers(entry, now)
        case "due":
            due = _("due for %(age)s") % {"age": duration(now - visible_at)}
            return due + expiry(entry, now) + "; " + (at_limit(entry, limits, now) or takers(entry, now))
    return _("its row was damaged: there is no state '%(state)s'") % {"state": entry.state}


def expiry(job: Job, now: int) -> str:
    """Return until when a job that waits must have started, if that is limited."""
    if job.start_by is None:
        return ""
    values = {"left": duration(to_instant(job.start_by) - now), "time": time_of(job.start_by)}
    return "; " + _("expires in %(left)s, at %(time)s, if it has not started by then") % values


def more_of(job: Job, limits: Limits) -> str:
    """Return what else there is to be known of what a job waits for."""
    if is_parked(job):
        return ": " + parked_by(job, limits)
    waits = waits_of(job)
    if waits and waits.kind == steps.EVENT:
        return "; " + (_("send_event wakes it") if waits.until == LAST_INSTANT else _("send_event wakes it before"))
    return ""


def parked_by(job: Job, limits: Limits) -> str:
    """Return why a limit has parked a job."""
    of_key = Job.objects.using(job._state.db).filter(concurrency_key=job.concurrency_key)
    limit = limits.of_key(job.queue_name, job.task_path)
    if job.ordered and limit.ordered and limits.known(job.task_path):
        engine, key = engine_for(str(job._state.db)), job.concurrency_key or ""
        handle = engine.look_up(first=[key]).first.get(key)
        first = of_key.annotate(handle=engine.handle()).filter(handle=handle).values_list("pk", flat=True).first()
        if first not in (None, job.pk):
            return _("job …%(id)s comes first there") % {"id": str(first)[-8:]}
    held = of_key.filter(lease_until__isnull=False).count()
    if not limits.known(job.task_path):
        return _("jobs with this key that run: %(held)s; this process has not loaded the task, so knows no more") % {
            "held": held
        }
    if limit.most is not None and held >= limit.most:
        return _("%(held)s of %(most)s jobs with this key run") % {"held": held, "most": limit.most}
    return _("there is room now, and a worker gives it back within a second or so")


def at_limit(job: Job, limits: Limits, now: int) -> str:
    """Return which limit of its queue a job that is due waits for; "" for none."""
    if not (policy := limits.queues.get(job.queue_name)):
        return ""
    engine = engine_for(str(job._state.db))
    quota = limits.quotas(engine, [Scope((job.queue_name,), False)], now)[job.queue_name]
    if quota.jobs_left == 0:
        return _("the queue is at its limit: %(most)s of %(most)s jobs run") % {"most": policy.concurrency}
    if quota.starts_left == 0:
        values = {"rate": policy.rate, "time": time_of(from_instant(quota.not_before))}
        return _("the rate %(rate)s of the queue allows the next start at %(time)s") % values
    return ""


def holder(job: Job, now: int) -> str:
    """Return who holds the row of a lease or a time slot; of one that is free, since when, and who may have it."""
    token = _("the last token was %(token)s") % {"token": job.claims}
    if job.state != states.RUNNING:
        return _("free: the next instance that asks has it") + "; " + token
    if (left := wait(job, now)) is not None:
        return _("free") + ": " + loss(job, now, left) + "; " + token
    values = {"token": job.claims, "worker": shown_worker(job.worker_id)}
    values["age"] = duration(max(now - to_instant(job.started_at or job.visible_at), 0))
    values["left"] = duration(max(to_instant(job.visible_at) - now, 0))
    return _("held by %(worker)s for %(age)s with the token %(token)s; renewed, or else free in %(left)s") % values


def loss(job: Job, now: int, left: int) -> str:
    """Return how a reserved row was lost by its holder; ``left``: see wait."""
    values = {"worker": shown_worker(job.worker_id), "left": duration(left)}
    if not left:
        return _("the process of %(worker)s is dead") % values
    values["age"] = duration(max(now - to_instant(job.visible_at), 0))
    ended = _("the lease of %(worker)s ended %(age)s ago") % values
    return ended + "; " + _("an instance that asks now waits %(left)s") % values


def wait(job: Job, now: int) -> int | None:
    """Return the microseconds for which an instance that asks now has to wait for a reserved row; None if it is held.

    It is 0 if the row is free, or the death of its holder is proven, and a whole lease if the holder has not renewed
    it in time: for so long an instance must see it unchanged.
    """
    if job.state != states.RUNNING:
        return 0
    database = str(job._state.db)
    bells = bells_of_holders(job.queue_name, database)
    if proves_death(str(path_of(database, bells, job.worker_id)), database, bells):
        return 0
    return None if to_instant(job.visible_at) > now else job.lease_us


def retrying(job: Job) -> str:
    """Return when a job runs again, and after what."""
    last = history.read(job.history)[-1:]
    values = {
        "time": time_of(job.visible_at),
        "failure": failure(*(str(item.get(key, "")) for item in last for key in ("exception_class", "message"))),
        "attempts": f"{job.attempts}/{job.max_attempts}" if job.max_attempts else job.attempts,
    }
    return _("retrying at %(time)s after %(failure)s (attempts: %(attempts)s)") % values


def snoozed(job: Job) -> bool:
    """Return whether a job that is due later was put off by its code: its last attempt is not in the history."""
    started = None if job.started_at is None else to_instant(job.started_at)
    return started is not None and all(item.get("started") != started for item in history.read(job.history))


def cancel_request(job: Job, now: int) -> str:
    """Return who has cancelled a job that runs, if it was cancelled, and what follows from that."""
    if job.cancelled_at is None:
        return ""
    values = {"by": job.cancelled_by, "age": duration(max(now - to_instant(job.cancelled_at), 0))}
    if job.cancelled_by:
        return _("asked to stop by %(by)s %(age)s ago, so that it is not started again") % values + "; "
    return _("asked to stop %(age)s ago, so that it is not started again") % values + "; "


def held(job: Job, left: int, now: int) -> str:
    """Return who holds a job; ``left``: microseconds until the lease ends."""
    values = {"worker": shown_worker(job.worker_id), "left": duration(left)}
    if job.started_at is None:
        return _("claimed ahead by %(worker)s, which has not begun it; lease ends in %(left)s") % values
    sentence = _("held by %(worker)s, lease ends in %(left)s") % values
    row = WorkerProcess.objects.using(job._state.db).filter(pk=job.worker_id).first()
    if row and (silence := now - to_instant(row.heartbeat_at)) > microseconds(SILENCE):
        sentence += "; " + _("that worker has been silent for %(age)s") % {"age": duration(silence)}
    return sentence


def copies_of(job: Job, now: int, least: int = 2) -> str:
    """Return by which workers a job runs, and for how long, if its queue has ``overflow`` and ``least`` copies run."""
    running = copies.read(job.copies).values()
    if len(running) < least or job.started_at is None:
        return ""
    each = [f"{shown_worker(copy.worker)} ({duration(max(now - copy.since, 0))})" for copy in running]
    return _("run by %(workers)s; the first to finish settles it") % {"workers": ", ".join(each)}


def takers(job: Job, now: int) -> str:
    """Return who could take a job that is due, or that no worker may."""
    database = str(job._state.db)
    if pause := paused(database, now).get(job.queue_name):
        return sentence(pause)
    if not job.task_path and not options_for(job.queue_name, database).policy(job.queue_name).handler:
        return _("a raw payload in a queue without a handler: your own code claims it")
    alive = live_workers(database, now)
    if not alive:
        return _("no worker is alive; start one: %(command)s") % {"command": start_command(database, [job.queue_name])}
    serving = [worker for worker in alive if serves(worker, job.queue_name)]
    if not serving:
        values = {"queue": job.queue_name, "workers": listed(alive, queues=True)}
        return _("no live worker serves '%(queue)s' (%(workers)s)") % values
    serving = [worker for worker in serving if worker.asked_to not in (QUIET, STOP)]
    if not serving:
        return _("every live worker that serves '%(queue)s' was asked to be quiet or to stop") % {
            "queue": job.queue_name
        }
    free = [worker for worker in serving if slots_in_use(worker) < worker.slots]
    if free:
        return _("next for a free slot of %(workers)s") % {"workers": listed(free)}
    return _("all slots are in use of %(workers)s") % {"workers": listed(serving)}


def slots_in_use(worker: WorkerProcess) -> int:
    """Return how many jobs a worker holds."""
    return Job.objects.using(worker._state.db).filter(worker_id=worker.pk, state=states.RUNNING).count()


def listed(workers: list[WorkerProcess], *, queues: bool = False) -> str:
    """Return the names of workers, and of the queues that they serve."""
    names = [shown_worker(worker.pk) for worker in workers]
    if queues:
        names = [
            _("%(worker)s serves %(queues)s") % {"worker": name, "queues": worker.queues.replace(",", ", ")}
            for name, worker in zip(names, workers, strict=True)
        ]
    return ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")


def failure(exception_class: str = "", message: str = "") -> str:
    """Return an error in one line."""
    name = str(exception_class).rpartition(".")[2] or _("an error")
    first = printable(" ".join(shorten(str(message).partition("\n")[0], LONGEST).split()).removesuffix("."))
    return f"{name}: {first}" if first else name
