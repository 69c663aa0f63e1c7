"""Durable tasks: what is done in steps is kept with the job, so that the next attempt goes on behind it.

The task runs from its beginning each time. Its n-th call of the context is answered with the n-th record of its steps,
if that fits; what comes behind the last one is done now.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ..core import clock, steps
from ..core.encoding import dumps, legible
from ..core.job import SHORT, HeldJob
from ..core.steps import EVENT, GATHER, ITERATE, SLEEP, STEP, Record, Suspend, Waiting
from ..engines import Engine, engine_for
from ..exceptions import DurableMismatch, LeaseLost, StepError, StepsTooLarge
from ..queue.until_done import until_done
from ..runtime.event_loops import in_event_loop, in_thread
from .calls import ChildStore

STEP_SECONDS = 5.0  # of a transactional step: other connections cannot write meanwhile
ASYNC = {STEP: "astep", SLEEP: "asleep", EVENT: "async_wait_for", GATHER: "agather", ITERATE: "aiterate"}
LARGE = 4096  # bytes of steps that are not written again with each item of a loop behind them
NO_LEDGER = "This context has no job, so it has no steps."


def open_blocks(connection: BaseDatabaseWrapper) -> int:
    """Return how many blocks of transactions are open on a connection; autocommit that is off is one."""
    return len(connection.savepoint_ids) + (not connection.autocommit) if connection.connection is not None else 0


def blocks_by_connection() -> dict[int, int]:
    """Return how many are open on each connection of this thread, by the connection's ``id()``."""
    return {id(each): open_blocks(each) for each in connections.all(initialized_only=True)}


@dataclass(slots=True)
class Ledger:
    """The steps of one attempt: what is stored, and how far the task has come in it."""

    job: HeldJob | None = None
    children: ChildStore | None = None
    database: str = ""
    limit: int = 0
    transactional: bool = False
    position: int = 0  # in ``done``
    suspended: Suspend | None = None
    to_suspend: bool = False  # its job is to give its slot back, where it can go on later
    _stored: steps.Steps | None = None  # None: not read yet
    mismatch: DurableMismatch | None = None  # the code does not fit what is stored
    _turn: list[None] = field(default_factory=lambda: [None])  # empty while a call is under way; its pop is atomic
    _under_way: str = ""  # the kind and name of that call
    _failed: BaseException | None = None  # what a step has raised
    _callers: Mapping[int, int] = field(default_factory=blocks_by_connection)  # blocks of transactions

    @property
    def held(self) -> HeldJob:
        if self.job is None:
            raise StepError(NO_LEDGER)
        return self.job

    @property
    def engine(self) -> Engine:
        if not self.database:
            raise StepError(NO_LEDGER)
        return engine_for(self.database)

    @property
    def done(self) -> list[Record]:
        return self.stored.done

    @property
    def stored(self) -> steps.Steps:
        """What is stored, read when it is first needed; raise LeaseLost if the job is not held any more."""
        if self._stored is None:
            self._stored = self._read()
        return self._stored

    def _read(self) -> steps.Steps:
        row = self.engine.steps(self.held)
        if row is None:
            raise self.lost()
        try:
            return steps.read(*row)
        except (ValueError, RecursionError) as error:
            raise self.note_mismatch(f"The stored steps cannot be read: {error}") from error

    def lost(self) -> LeaseLost:
        """Return the error of a job that is not held any more."""
        held = self.held
        return LeaseLost(f"Job {held.id} is not held under claim {held.claims} any more: its lease ended. Stop here.")

    @property
    def ending(self) -> BaseException | None:
        """What ends the attempt, although the task has caught it: it waits, or its code does not fit what is stored."""
        return self.suspended or self.mismatch

    def now(self) -> int:
        return self.engine.now()

    # -- the next call ------------------------------------------------------------------------------------------------

    @contextmanager
    def alone(self, kind: str, name: str) -> Iterator[None]:
        """Have no other call be under way during the block; raise StepError if one is."""
        try:
            self._turn.pop()
        except IndexError:
            raise StepError(
                f"{kind} {name!r} was asked for inside {self._under_way}, or beside it; one follows the other. "
                "To run several at once, use children: context.gather(…)."
            ) from None
        try:
            self._under_way = f"{kind} {name!r}"
            yield
        finally:
            self._turn.append(None)

    def next(self, kind: str, name: str) -> Record | None:
        """Return the record of this call, if it was made before; raise DurableMismatch if another one is stored."""
        self.check(kind, name)
        if self.position < len(self.done):
            record = self.done[self.position]
            if (record.get("kind"), record.get("name")) != (kind, name):
                raise self.another_is_stored(kind, name, record.get("kind"), record.get("name"))
            self.position += 1
            return record
        waiting = self.stored.waiting
        if waiting and waiting.kind in (SLEEP, EVENT) and (waiting.kind, waiting.name) != (kind, name):
            raise self.another_is_stored(kind, name, waiting.kind, waiting.name)
        return None

    def check(self, kind: str, name: str) -> None:
        """Raise an error if no step can be made here; what was raised before is raised again, if the task went on."""
        if in_event_loop():
            raise SynchronousOnlyOperation(f"{kind} {name!r} in async code is: await context.{ASYNC[kind]}(…)")
        if self.ending:
            raise self.ending
        if self._failed is not None:
            self._failed.add_note(f"The task caught it and went on to {kind} {name!r}: a failed step ends the attempt.")
            raise self._failed
        if not steps.is_name(name):
            raise StepError(f"The name of a step is a text of 1 to {SHORT} characters, not {name!r}.")
        if self.transactional:
            raise StepError(
                f"A task with transactional=True makes no steps and does not wait ({kind} {name!r}): its writes are "
                "one transaction. Leave the option away, and say context.step(…, transactional=True)."
            )
        if self.held.copies:
            raise StepError(f"{kind} {name!r}: a job of a queue with overflow has no steps, its copies would differ.")
        self.refuse_transaction(f"{kind} {name!r} was asked for inside")

    def refuse_transaction(self, what: str) -> None:
        """Raise StepError if a transaction of any connection of this thread has begun in this attempt.

        That of a caller, as of TestCase, is not the task's to roll back.
        """
        for connection in connections.all(initialized_only=True):
            if open_blocks(connection) > self._callers.get(id(connection), 0):
                raise StepError(
                    f"{what} a transaction of database {connection.alias!r} (transaction.atomic, or its autocommit is "
                    "off): a rollback would take back the work, or its record. End it before, or have all of it "
                    "inside the function of a step; in the database of the queue: context.step(…, transactional=True)."
                )

    def note_mismatch(self, what: str) -> DurableMismatch:
        """Return the error of code that does not fit what is stored; no step is made after it."""
        self.mismatch = DurableMismatch(what)
        return self.mismatch

    def another_is_stored(self, kind: str, name: str, stored_kind: object, stored_name: object) -> DurableMismatch:
        """Return the error of a call that is not the stored one."""
        return self.note_mismatch(
            f"Step {self.position + 1} of this task is {stored_kind} {stored_name!r} as it is stored, but its code "
            f"asks for {kind} {name!r} there. Steps that were made must be asked for again by the same kind and name, "
            f"in the same order. Run the code of that time, repeat steps from {self.position + 1}, or enqueue it again."
        )

    def item_is_gone(self, name: str, item: object) -> DurableMismatch:
        """Return the error of a loop whose item under way has steps, but is not the next one.

        ``item``: its place, as the loop knows it.
        """
        return self.note_mismatch(
            f"The loop {name!r} does not yield the item that was under way (stored: {item!r}); a part of it is done. "
            "Its items must be the same until it ends: a queryset must not leave out a row that its own steps have "
            f"changed or deleted. Put the row back, or repeat steps from {self.position + 1} to go on without it."
        )

    # -- what is done now ---------------------------------------------------------------------------------------------

    def add(self, record: Record, event: int | None = None) -> Record:
        """Store one more record; see write."""
        self.done.append(record)
        self.position += 1
        self.write(event)
        return record

    def begin_loop(self, record: Record) -> Record:
        """Store the record of a loop; what was done before it is put apart if it is large, for each item writes."""
        before = len(self.done)
        large = len(dumps(self.done[self.stored.earlier :])) > LARGE
        self.done.append(record)
        self.position += 1
        self.write(earlier=before if large else None)
        return record

    def write(self, event: int | None = None, earlier: int | None = None) -> None:
        """Store what is done; raise LeaseLost if the job is not held any more, StepsTooLarge if that is too much.

        ``event``: the index of the one that is taken out. ``earlier``: how many records are apart from now on; None: as
        many as now. What is raised here leaves the row as it was.
        """
        apart, text = self.stored.earlier, None
        if earlier is not None and earlier != apart:
            apart, text = earlier, dumps(self.done[:earlier]) if earlier else ""
        try:
            with self.transaction(self.engine.atomic):
                noted = self.engine.write_steps(self.held, dumps(self.done[apart:]), self.now(), event, text)
                if noted is None:
                    raise self.lost()
                if noted.size > self.limit:
                    raise StepsTooLarge(
                        f"The steps of this job have {noted.size:,} bytes; max_steps_bytes allows {self.limit:,}. "
                        "Return less from a step or a child (a key, not the row), or raise the limit of the queue."
                    )
        except BaseException as error:
            self._stored, self._failed = None, error
            raise
        self.to_suspend = noted.to_suspend
        events = [each for index, each in enumerate(self.stored.events) if index != event]
        self._stored = steps.Steps(self.done, events, None, apart)

    def suspend(self, kind: str, name: str, until: int, since: int) -> Suspend:
        """Return what ends this attempt, for the job waits; no step is made after it."""
        self.suspended = Suspend(Waiting(kind, name, until, since))
        return self.suspended

    async def in_thread(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Return what a function returns in the thread for synchronous code; no step is made after a cancellation."""
        try:
            return await in_thread(function, *args, **kwargs)
        except asyncio.CancelledError as error:
            self._fail(error)
            raise

    @contextmanager
    def making(self) -> Iterator[None]:
        """Make a step in the block; what that raises ends the attempt."""
        try:
            yield
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        """Have no other step be made in this attempt."""
        if isinstance(error, asyncio.CancelledError):  # a later call, which is not cancelled, must not raise this
            self._failed = RuntimeError("A call of the context was cancelled: whether it was made is not known.")
        else:
            self._failed, self._stored = error, None

    def finish(self, name: str, began: int, value: Any) -> Any:
        """Store the result of a step, and return it as later attempts will see it."""
        self.refuse_transaction(f"Step {name!r} has returned inside")
        try:
            result = legible(value, "result")
        except TypeError as error:
            raise StepError(f"Step {name!r}: {error} It has been made, so it is not tried again.") from None
        self.add(Record(kind=STEP, name=name, began=began, at=self.now(), value=result))
        return result

    @contextmanager
    def transaction(self, transaction: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
        """Run the block in a transaction, however long the lock is held: it costs the task no attempt.

        Inside of another transaction the lock would be waited for in vain.
        """
        with ExitStack() as stack:
            if connections[self.engine.alias].in_atomic_block:
                stack.enter_context(transaction())
            else:
                until_done(self.engine, lambda: stack.enter_context(transaction()))
            yield

    @contextmanager
    def one_transaction(self) -> Iterator[None]:
        """Commit what the block writes, the record among it, as one; the job is held all the time."""

        def hold() -> None:  # as the transaction begins: what is refused by then costs no attempt
            if self.engine.renew([self.held], self.engine.now()):
                raise self.lost()

        callers = self._callers
        with self.transaction(lambda: self.engine.task_transaction(STEP_SECONDS, hold)):
            self._callers = blocks_by_connection()
            try:
                yield
            finally:
                self._callers = callers

    def read_events(self) -> None:
        """Read the events that have come since the beginning of this attempt."""
        self._stored = self.stored._replace(events=self._read().events)

    def event(self, name: str) -> int | None:
        """Return the index of the first event of a name."""
        found = (index for index, event in enumerate(self.stored.events) if event.get("name") == name)
        return next(found, None)

    def back_to(self, base: int) -> None:
        """Forget what was done behind the record of a loop, and store that."""
        del self.done[base:]
        self.position = base
        self.write(earlier=min(self.stored.earlier, base - 1))

    def term(self, lasts: int | None) -> tuple[int, int]:
        """Return since when, and until when, the job waits: what is stored, else ``lasts`` microseconds from now."""
        if waiting := self.stored.waiting:
            return waiting.since, waiting.until
        now = self.now()
        return now, clock.LAST_INSTANT if lasts is None else min(now + lasts, clock.LAST_INSTANT)
