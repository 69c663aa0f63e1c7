"""The primitive: a queue of JSON payloads in your own database.

In short:

    queue = Queue("sensors")
    queue.publish({"id": 7, "celsius": 21.5}, delay=60)

    while job := queue.claim():  # hidden from all other claims for the visibility timeout
        handle(job.payload)
        job.ack()  # done; without it the job reappears by itself
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from threading import Event
from typing import Any, Literal
from uuid import UUID

from asgiref.sync import sync_to_async

from ..conf import POLICY, SHORTEST_SHARED, UNIQUE, checked
from ..core import clock, history
from ..core.allowed import duration
from ..core.encoding import encode
from ..core.failures import describe
from ..core.gaps import APART, GapWatch
from ..core.ids import new_ids, process_worker_id
from ..core.job import HeldJob, NewJobs, Scope
from ..core.settlement import failed
from ..core.text import shown
from ..core.unique import DONE, KEEP, REPLACE, Keys, keys_of
from ..engines import Engine, database_for, engine_for, options_for
from ..exceptions import LeaseLost
from .arguments import checked_payloads, checked_priority, checked_queue_name
from .back_pressure import await_room
from .claimed_job import ClaimedJob, checked_claim
from .claims import Claims, Found, collect
from .consumer import consume
from .limits import Limits
from .moments import due_from, start_by_of
from .pauses import pause, resume
from .publishing import publish
from .settling import settle
from .unparking import Unparking

Until = Literal["done", "start"]
OnDuplicate = Literal["keep", "replace", "error"]
MANY = 2**31 - 1  # jobs of a claim: the largest number that each database takes
PUBLISHING = {**POLICY, **UNIQUE, "timeout": duration}  # what checks the arguments of a publish

_gap_watches: dict[str, GapWatch] = {}  # by database: what all queues of this process have noticed


class Queue:
    """A named queue of JSON payloads in a database table, shared by all processes that use the database.

    ``using``: a database alias (default: the one that the settings give to this queue). ``visibility_timeout`` in
    seconds and ``max_attempts`` (0: unlimited) default to the settings' values. Raise ValueError for values that are
    not allowed.
    """

    def __init__(
        self,
        name: str,
        using: str | None = None,
        visibility_timeout: float | timedelta | None = None,
        max_attempts: int | None = None,
    ) -> None:
        self.name = checked_queue_name(name)
        given = {"visibility_timeout": visibility_timeout, "max_attempts": max_attempts}
        own = checked({key: value for key, value in given.items() if value is not None}, POLICY, f"Queue({name!r})")
        self.options = options_for(name, using)
        self.database = database_for(using, name)
        self._policy = self.options.policy(name)
        self._max_attempts = own.get("max_attempts", self._policy.max_attempts)
        self._lease = clock.microseconds(own.get("visibility_timeout", self._policy.visibility_timeout))
        if self.options.shared_disk and self._lease < clock.microseconds(SHORTEST_SHARED):
            raise ValueError(
                f"Queue({name!r}): visibility_timeout is {self._lease / clock.SECOND:g} s, but with shared_disk "
                f"{SHORTEST_SHARED:g} s are the least."
            )
        self._overflow = self.options.overflowing if self._policy.overflow else {}
        self._limits = Limits(self.options)
        self._unparking = Unparking(self._limits)

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, using={self.database!r})"

    def __bool__(self) -> bool:
        return True  # an empty queue is a queue

    def __len__(self) -> int:
        """Return how many jobs are unfinished: due, scheduled, or held."""
        return self._engine.count(self.name)

    @property
    def _engine(self) -> Engine:
        return engine_for(self.database)

    def publish(
        self,
        payload: Any,
        publish_at: datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int = 0,
        *,
        max_attempts: int | None = None,
        timeout: float | timedelta | None = None,
        unique_key: str | None = None,
        unique_until: Until = DONE,
        on_duplicate: OnDuplicate = KEEP,
        expires: datetime | timedelta | float | None = None,
        concurrency_key: str | None = None,
        immediate: bool = False,
    ) -> UUID:
        """Put a job into the queue; inside ``transaction.atomic`` it appears when that commits.

        ``payload``: any JSON value. ``publish_at`` (a datetime) or ``delay`` (seconds): not to be claimed before.
        ``priority``: -100 to 100, higher first. ``timeout``: seconds for which it waits for room in a queue with
        ``max_depth`` (default: the settings say it).

        ``unique_key``: a text that no other job of the queue has, until this one is ``"done"`` or, with
        ``unique_until="start"``, claimed. ``on_duplicate``: what happens if a job has it: ``"keep"`` returns the id of
        that one; ``"replace"`` gives it, if it waits, the new payload and all else; ``"error"`` raises DuplicateJob.
        ``expires`` (a datetime, or seconds or a timedelta from now): what was not claimed by then is never handed out;
        it becomes a dead letter. ``concurrency_key``: of the jobs with this text no more than the queue's
        ``concurrency`` are held at once, however many others are. ``immediate``: where the queue has a database of its
        own, store it now, whatever becomes of a transaction of another database.

        Returns the job's id. Raises TypeError if the payload is not JSON, ValueError for an argument that is not
        allowed, PayloadTooLarge, QueueFull, DuplicateJob.
        """
        return self.publish_many(
            [payload],
            publish_at=publish_at,
            delay=delay,
            priority=priority,
            max_attempts=max_attempts,
            timeout=timeout,
            unique_key=None if unique_key is None else [unique_key],
            unique_until=unique_until,
            on_duplicate=on_duplicate,
            expires=expires,
            concurrency_key=None if concurrency_key is None else [concurrency_key],
            immediate=immediate,
        )[0]

    def publish_many(
        self,
        payloads: Iterable[Any],
        publish_at: datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int = 0,
        *,
        max_attempts: int | None = None,
        timeout: float | timedelta | None = None,
        unique_key: Keys | None = None,
        unique_until: Until = DONE,
        on_duplicate: OnDuplicate = KEEP,
        expires: datetime | timedelta | float | None = None,
        concurrency_key: Keys | None = None,
        immediate: bool = False,
    ) -> list[UUID]:
        """Put many jobs into the queue in one transaction, all or none; see publish.

        ``unique_key``, ``concurrency_key``: a callable that is given each payload, or a list with a key for each; None
        stands for no key. Of two payloads with one unique key the first is stored; with ``on_duplicate="replace"`` the
        last is.
        """
        attempts, wait, payloads = self._max_attempts, None, checked_payloads(payloads)
        if immediate is not False or (max_attempts, timeout, unique_until, on_duplicate) != (None, None, DONE, KEEP):
            given: dict[str, Any] = {"unique_until": unique_until, "on_duplicate": on_duplicate}
            given |= {"immediate": immediate} | ({} if max_attempts is None else {"max_attempts": max_attempts})
            given |= {} if timeout is None else {"timeout": timeout}
            own = checked(given, PUBLISHING, f"{self!r}.publish")
            if unique_key is None and (unique_until, on_duplicate) != (DONE, KEEP):
                raise ValueError(
                    f"{self!r}.publish has unique_until or on_duplicate without unique_key: give that too."
                )
            attempts, wait = own.get("max_attempts", attempts), own.get("timeout")
        encoded = [encode(payload, "payload") for payload in payloads]
        jobs = list(zip(new_ids(len(encoded)), encoded, strict=True))
        now = self._engine.now()
        due_at = due_from(now, publish_at, delay)
        new = NewJobs(
            queue_name=self.name,
            task_path="",
            priority=checked_priority(priority),
            max_attempts=attempts,
            lease_us=self._lease,
            enqueued_at=now,
            due_at=due_at,
            jobs=jobs,
            start_by=start_by_of(now, due_at, expires),
            unique_keys=keys_of(payloads, unique_key),
            unique_until=unique_until,
            replace=on_duplicate == REPLACE,
            concurrency_keys=keys_of(payloads, concurrency_key, "concurrency_key"),
        )
        ids = [job_id for job_id, _ in jobs]

        def stored(duplicates: Mapping[int, str]) -> None:
            for index, known in duplicates.items():
                ids[index] = known

        if jobs:
            immediate = immediate or self.options.policy(self.name).immediate
            given_to = (new, self.database, self.options, stored, wait)
            publish(*given_to, on_duplicate=on_duplicate, immediate=immediate)
        return [UUID(int=int(job_id, 16)) for job_id in ids]

    async def apublish(self, payload: Any, **options: Any) -> UUID:
        """See publish."""
        return (await self.apublish_many([payload], **options))[0]

    async def apublish_many(self, payloads: Iterable[Any], **options: Any) -> list[UUID]:
        """See publish_many; room is waited for without a thread."""
        given = checked_payloads(payloads)  # for each try, as the keys
        for name in ("unique_key", "concurrency_key"):
            keys = options.get(name)
            if keys is not None and not callable(keys) and not isinstance(keys, str):
                options[name] = list(keys)
        return await await_room(lambda: sync_to_async(self.publish_many)(given, **options))

    def claim(self) -> ClaimedJob | None:
        """Take the next due job, hidden from other claims for the visibility timeout; None if nothing is due."""
        jobs = self.claim_many(1)
        return jobs[0] if jobs else None

    def claim_many(self, limit: int) -> list[ClaimedJob]:
        """Take up to ``limit`` due jobs in one transaction, by priority and then by time; see claim.

        Raises ValueError if ``limit`` is not a whole number above 0.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise ValueError(f"claim_many takes a whole number of jobs, 1 or more, not {limit!r}.")
        gaps = _gap_watches.setdefault(self.database, GapWatch(resting=True))
        jobs = self._claim(min(limit, MANY), gaps, process_worker_id())
        for job in jobs if self._overflow else ():
            if self._policy.renews(job._held.copies):  # no more copies may run, and nothing renews this one
                with suppress(LeaseLost):
                    job.extend(self._policy.max_runtime)
        return jobs

    def _claim(self, limit: int, gaps: GapWatch, holder: str) -> list[ClaimedJob]:
        return self._engine.beside_cursors(lambda: self._claim_due(limit, gaps, holder))

    def _claim_due(self, limit: int, gaps: GapWatch, holder: str) -> list[ClaimedJob]:
        engine, scopes = self._engine, [Scope((self.name,), raw=True)]
        claims = Claims(engine, self._limits, self._overflow, self._lease)
        private = engine.private()  # in a transaction of the caller's, not in the one below, no holder can write

        def find(now: int, *, locked: bool) -> Found:
            grace_period = gaps.grace_period(process_worker_id())
            if not locked or private:
                grace_period = grace_period._replace(free=0)
            return claims.find(scopes, limit, now, grace_period=grace_period, locked=locked)

        def look(waited: float) -> Found | None:
            """Return what may be taken; None if it is nothing."""
            now = engine.now()
            gaps.notice_gap(now)
            if waited:
                gaps.note_lock(waited)
            found = find(now, locked=False)
            return found if found.due or found.copies_due or found.ended or found.woken else None

        # Look, lock, look again. The first look takes no lock, and is all if nothing is there. It ignores for how long
        # the lock was free; the second look, inside the lock, does not, so it may find fewer ended leases. Then the
        # loop waits APART, so that living holders can renew, and looks again. It also looks again if all that was
        # taken became dead letters.
        while True:
            with engine.transaction_if(look) as found:
                if not found:
                    break
                gaps.note_lock(0.0)
                now = engine.now()  # the lease begins when the lock is taken, however long that took
                seen = found.ended or found.copies_due  # what is due is still due when the lock is taken
                if seen or found.woken:
                    found = find(now, locked=True)
                taken = claims.take(found, holder, now)
            jobs = self._readable(collect(engine, taken))
            if jobs or not (taken.rows or taken.endings or seen or not taken.everything):
                return jobs  # else all that was taken became dead letters: claim what is due behind them
            if seen and not (found.ended or found.copies_due):  # the lock is free: their holders get the time to renew
                clock.wait(APART)
        return self._claim_due(limit, gaps, holder) if self._unparking.look_if_due(engine) else []

    def ack(self, job: ClaimedJob, result: Any = None) -> None:
        """See ClaimedJob.ack."""
        checked_claim(job, "ack").ack(result)

    def nack(self, job: ClaimedJob, delay: float | timedelta = 0, error: BaseException | str | None = None) -> None:
        """See ClaimedJob.nack."""
        checked_claim(job, "nack").nack(delay, error)

    def release(self, job: ClaimedJob, until: float | timedelta | datetime | None = None) -> None:
        """See ClaimedJob.release."""
        checked_claim(job, "release").release(until)

    def extend(self, job: ClaimedJob, seconds: float | timedelta | None = None) -> None:
        """See ClaimedJob.extend."""
        checked_claim(job, "extend").extend(seconds)

    def purge(self) -> int:
        """Delete every job of the queue that is not held, scheduled ones too; return how many."""
        return self._engine.purge(self.name, self._engine.now())

    def pause(self, reason: str = "", until: datetime | timedelta | float | None = None, *, by: str = "") -> None:
        """Have no job of this name claimed, payload or task, until it is resumed; what is held goes on to its end.

        ``until``: a moment, or a duration (seconds or a timedelta) from now, at which the pause ends by itself.
        ``reason``, and ``by`` whom: for people. Pausing a paused queue replaces all of that. Raises ValueError for
        values that are not allowed, such as a moment in the past.
        """
        pause(self.name, reason=reason, until=until, by=by, using=self.database)

    def resume(self) -> bool:
        """End the pause and wake the workers; return whether the queue was paused."""
        return resume(self.name, using=self.database)

    def run(self, handler: Callable[[ClaimedJob], Any], *, stop: Event | None = None) -> None:
        """Claim jobs for ever and call ``handler`` with each; its lease is kept up while it is being handled.

        When the handler returns, the job is acknowledged; when it raises, the attempt has failed and the queue's
        ``backoff`` says when it is tried again. Ends when ``stop`` is set (it is looked at between jobs), or by
        KeyboardInterrupt or a SystemExit that the handler of a signal has raised: these give the job back. SystemExit
        that ``handler`` raises itself is a failure. Raises TypeError if ``handler`` cannot be called, or ``stop`` is no
        event; ImproperlyConfigured where a worker would not start, for what the checks say of where a SQLite file is.
        """
        if not callable(handler):  # else each job would use an attempt up for it
            raise TypeError(f"run takes a function that is called with each job, not {handler!r}.")
        stop = Event() if stop is None else stop
        if not callable(getattr(stop, "is_set", None)):
            raise TypeError(f"stop is {shown(stop)}, but must be an event: threading.Event().")
        consume(partial(self._claim, 1), handler, stop, self.name, self.database, self.options)

    def _readable(self, jobs: list[HeldJob]) -> list[ClaimedJob]:
        """Return claimed jobs; one whose payload is damaged becomes a dead letter, and is not handed out."""
        claimed = []
        for held in jobs:
            try:
                claimed.append(ClaimedJob(held, self.database, self.options))
            except ValueError as error:
                now, engine = self._engine.now(), self._engine
                with engine.transaction():
                    settle(engine, [failed(held, history.FAILED, describe(error), now, None)])
        return claimed
