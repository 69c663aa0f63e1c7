"""The rows of a reserved queue: each is held by one instance at a time, renewed, given back, and never done.

When a lease has ended is decided without wall clocks, as in the leader election of Kubernetes' client-go: an instance
that waits takes a row when it has seen the row unchanged for a whole lease, by its own boot clock, or when the process
of the holder is proven dead. A holder counts from before its renewal. So neither a clock that steps nor a process that
was stopped makes two holders.

A claim number that has gone back tells of a database that was restored. The holder that the restored one does not know
may believe in its lease to its end, so an instance that has seen the greater number takes the row no sooner.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from django.db import connections, transaction
from django.db.models import Q

from ..core import clock, states
from ..core.clock import SECOND
from ..core.encoding import dumps
from ..core.ids import new_ids
from ..core.job import Handle, HeldJob, NewJobs
from ..core.settlement import released_unfinished
from ..core.text import shown
from ..engines import Engine, engine_for, options_for
from ..queue.doorbell import RUNG, Doorbell, folder_of, path_of, remove, ring_after_commit
from ..queue.ended_leases import end_leases
from ..queue.proof_of_death import is_bell, proves_death
from ..queue.settling import settle

FOREVER = 1 << 60  # an instant later than any lease, by whatever clock it was stamped


class Seen(NamedTuple):
    """A row as it was seen first, and when, by the boot clock in seconds: each renewal moves its end.

    ``lease``: its length in seconds. ``barred``: until when it is not taken, for its claim number has gone back.
    """

    claims: int
    visible_at: int
    lease: float
    since: float
    barred: float = 0.0

    def then(self, now: "Seen", began: float) -> "Seen":
        """Return what is known after a look that began at a moment; if another thread's was later, that one counts."""
        if self[:2] == now[:2] or self.since > began:
            return self
        return now._replace(barred=max(self.barred, now.since + self.lease if now.claims < self.claims else 0.0))


# By database and queue, for all instances of this process: one that is made anew for each try learns of a lease's end.
seen: dict[tuple[str, str], dict[str, Seen]] = {}
servers: dict[tuple[str, str], str] = {}  # the same, see Engine.server


def existing(alias: str) -> str:
    """Return a database alias; raise ValueError if there is no such database."""
    if alias not in connections:
        raise ValueError(f"There is no database {shown(alias)}; DATABASES has {', '.join(connections)}.")
    return alias


def bells_of_holders(queue_name: str, database: str) -> Path:
    """Return the folder of the holders' doorbells of a queue, apart from those of workers: each publish rings them."""
    return folder_of(options_for(queue_name, database).doorbells) / "leases"


class ReservedRows:
    """The rows of one reserved queue, as one instance sees them.

    ``keys``: the unique keys of the rows that are held; others (of a queue that had this name) mean nothing.
    """

    def __init__(self, queue_name: str, database: str, keys: Collection[str]) -> None:
        self.queue_name, self.database, self.keys = queue_name, existing(database), keys
        self.bells = bells_of_holders(queue_name, database)

    @property
    def engine(self) -> Engine:
        """The engine of the calling thread's connection."""
        return engine_for(self.database)

    def create(self, ttl: float) -> None:
        """Have a row for each key; those that are there are left as they are."""
        there = {key for key, _ in self._rows()}
        if missing := [key for key in self.keys if key not in there]:
            jobs = list(zip(new_ids(len(missing)), map(dumps, missing), strict=True))
            new = NewJobs(self.queue_name, "", 0, 0, clock.microseconds(ttl), self.engine.now(), 0, jobs)
            new.unique_keys = list(missing)
            self.engine.insert_with_keys(new)

    def refuse_in_transaction(self, what: str) -> None:
        """Raise RuntimeError that begins with ``what``, inside a transaction of the caller's that is no TestCase's."""
        connection = connections[self.database]
        if not connection.get_autocommit() and not connection.in_atomic_block:
            raise RuntimeError(f"{what} while autocommit is off: a rollback would take it back.")
        if connection.in_atomic_block:
            try:
                with transaction.atomic(using=self.database, durable=True):
                    pass
            except RuntimeError as error:
                raise RuntimeError(
                    f"{what} inside transaction.atomic(): no other instance would see it before the commit. Do it "
                    "first, and begin the transaction in it."
                ) from error

    def look_at_database(self) -> None:
        """Open another database that is in the place of the one before: there a row was unchanged for no time yet.

        A file leaves each row alone for one lease more. A server that has only ended the session is the same one.
        """
        connection, key = connections[self.database], (self.database, self.queue_name)
        if exchanged := self.engine.outdated(connection):
            self.engine.disconnect()
        if connection.connection is not None and key in servers:
            return
        known, server = servers.get(key), self.engine.server()
        is_other = known not in (None, server) if server else exchanged
        if is_other:
            now, before = clock.since_boot(), dict(seen.get(key, {}))
            seen[key] = {
                job_id: each._replace(since=now, barred=each.barred if server else max(each.barred, now + each.lease))
                for job_id, each in before.items()
            }
        servers[key] = server

    def any_free(self, worker_id: str) -> bool:
        """Return whether a row is free, or its lease has ended: a look, without the write lock."""
        waiting, held = self._free_and_held()
        return bool(waiting or self._ended(held, worker_id))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the right to write until the block ends; no other instance takes a row meanwhile."""
        with self.engine.transaction():
            self.engine.lock_queue(self.queue_name)
            yield

    def prepare(self, held: int) -> None:
        """Do what comes before a row is taken, while others hold so many; called inside ``transaction``."""

    def admits(self) -> bool:
        """Return whether a row may be taken now; called inside ``transaction``, after ``prepare``."""
        return True

    def take(self, worker_id: str, ttl: float) -> tuple[HeldJob, float] | None:
        """Take a row that is free, or whose lease has ended; return it, and the moment (boot clock) of its lease."""
        engine = self.engine
        with self.transaction():
            began, now = clock.since_boot(), engine.now()
            held, ended = self._end_leases(worker_id, now)
            self.prepare(held)
            first = self._free_and_held()[0][:1] if self.admits() else []
            engine.lease(first, worker_id, now, clock.microseconds(ttl))
            jobs = engine.read(first)
        self._remove_bells(ended, worker_id)
        return (next(iter(jobs.values())), began) if jobs else None

    def free_ended(self, worker_id: str) -> None:
        """Free the rows whose lease has ended, as ``take`` does; the write lock is asked for only if there are any."""
        if self._ended(self._free_and_held()[1], worker_id):
            with self.transaction():
                _, ended = self._end_leases(worker_id, self.engine.now())
            self._remove_bells(ended, worker_id)

    def _end_leases(self, worker_id: str, now: int) -> tuple[int, Collection[HeldJob]]:
        """Free the rows whose lease has ended; return how many others are held, and the jobs that were freed."""
        held = self._free_and_held()[1]
        ended = self._ended(held, worker_id)
        end_leases(self.engine, list(ended), worker_id, now)
        return len(held) - len(ended), ended.values()

    def _remove_bells(self, ended: Collection[HeldJob], worker_id: str) -> None:
        for job in ended:
            if job.worker_id != worker_id and is_bell(self._bell_of(job), self.database, self.bells):
                remove(self._bell_of(job))

    def give_back(self, job: HeldJob) -> None:
        """Free a row that is still held, with an entry in its history, and wake the instances that wait.

        Inside a transaction of the caller's that is so when it commits.
        """
        with self.engine.transaction():
            settle(self.engine, [released_unfinished(job, self.engine.now(), None)])
        ring_after_commit(connections[self.database], str(self.bells), here=True)

    def bell(self, worker_id: str, kind: str = "") -> Doorbell:
        """Return a new doorbell of an instance of this process, in the place of one that it has let go.

        For ``kind`` see Doorbell.
        """
        with suppress(OSError):
            self.bells.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in {kind, RUNG}:
            remove(str(path_of(self.database, self.bells, worker_id, each)))
        return Doorbell(self.database, self.bells, worker_id, kind)

    def _bell_of(self, job: HeldJob) -> str:
        return str(path_of(self.database, self.bells, job.worker_id))

    def has(self, job: HeldJob) -> bool:
        """Return whether a row is still held by this claim, and counts: by hand its key may have been taken away."""
        from ..models import Job  # this module is imported before the apps are ready
        from ..models.jobs import HAS_KEY

        claim = {"pk": job.id, "claims": job.claims, "worker_id": job.worker_id, "state": states.RUNNING}
        return Job.objects.using(self.database).filter(HAS_KEY, queue_name=self.queue_name, **claim).exists()

    def _rows(self) -> list[tuple[str, Handle]]:
        """Return key and handle of the rows that can be held."""
        from ..models import Job  # this module is imported before the apps are ready
        from ..models.jobs import HAS_KEY

        open_or_held = Q(due_at__lte=FOREVER) | Q(lease_until__isnull=False)
        jobs = Job.objects.using(self.database).filter(HAS_KEY, open_or_held, queue_name=self.queue_name)
        rows = jobs.annotate(handle=self.engine.handle()).values_list("unique_key", "handle")
        mine = [(key, handle) for key, handle in rows if key and key in self.keys]
        return sorted(mine, key=lambda row: (len(row[0]), row[0]))

    def _free_and_held(self) -> tuple[list[Handle], dict[Handle, HeldJob]]:
        """Return the rows that can be taken, in the order of their keys; and the others: they are held, or barred."""
        began = clock.since_boot()
        jobs = self.engine.read(handles := [handle for _, handle in self._rows()])
        known, now = self._note(jobs.values(), began), clock.since_boot()
        held = {handle: job for handle, job in jobs.items() if job.worker_id or known[job.id].barred > now}
        return [handle for handle in handles if handle in jobs and handle not in held], held

    def _note(self, jobs: Collection[HeldJob], began: float) -> dict[str, Seen]:
        """Note how the rows are, as a look has found them that began at a moment; return what is known of them."""
        now, before = clock.since_boot(), seen.get((self.database, self.queue_name), {})
        found = {job.id: Seen(job.claims, job.visible_at, job.lease_us / SECOND, now) for job in jobs}
        known = {key: before[key].then(each, began) if key in before else each for key, each in found.items()}
        seen[self.database, self.queue_name] = known
        return known

    def _ended(self, held: dict[Handle, HeldJob], worker_id: str) -> dict[Handle, HeldJob]:
        """Return those of the held rows whose holder is gone, or is this instance, which has let its lease end."""
        now, known = clock.since_boot(), seen.get((self.database, self.queue_name), {})
        return {
            handle: job
            for handle, job in held.items()
            if job.worker_id
            and (last := known.get(job.id))
            and last.barred <= now
            and (
                job.worker_id == worker_id
                or now - last.since >= last.lease
                or proves_death(self._bell_of(job), self.database, self.bells)
            )
        }
