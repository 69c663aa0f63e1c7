"""Limits: how many jobs of a queue or of a key run at once, and in which order.

They are judged by the claim, in its transaction, and counted from the rows that are held: no counter can be wrong. What
a limit is says the code that claims, so a changed one holds at once.

A queue that is full is left out, as a paused one is. A job whose key is full is parked: it is due no more, so it costs
other claims nothing. It is given back when a job of its key ends, in the transaction of that settlement, and judged
again by the next claim. A look once a second gives back what is parked without a reason.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..conf import Options, Policy
from ..core.job import Due, Handle, Scope, Settlement
from ..engines import Engine
from ..engines.limits import Parked

GIVEN_BACK_AT_ONCE = 500  # jobs of a key
KEYS_AT_ONCE = 200  # that one look goes through
AMONG = 100  # jobs of a key, of which those that are due are counted


class KeyLimit(NamedTuple):
    """How many jobs of a key run at once (None: any number), and whether in the order in which they were stored."""

    most: int | None = None
    ordered: bool = False


STRICTEST = KeyLimit(1, ordered=True)  # of a task that is not loaded: what it allows is not known until its first run


@dataclass(slots=True)
class Verdict:
    """What a claim may lease of some due rows, and which it may not: these are to be parked.

    ``first``: parked jobs that are the first of their key, whose turn it is.
    """

    allowed: list[Due] = field(default_factory=list)
    parked: list[Handle] = field(default_factory=list)
    first: set[Handle] = field(default_factory=set)


@dataclass(frozen=True, eq=False)
class Limits:
    """The limits of a backend. ``task_options``: those of a task, by its path; None for one that is not loaded."""

    options: Options = field(default_factory=Options)
    task_options: Callable[[str], Mapping[str, Any] | None] = lambda path: None

    @property
    def queues(self) -> Mapping[str, Policy]:
        """The queues that have a limit of their own."""
        return self.options.limited

    def of_key(self, queue_name: str, task_path: str) -> KeyLimit:
        """Return the limit for the concurrency key of a job."""
        if not task_path:
            return KeyLimit(self.options.policy(queue_name).concurrency)
        if (known := self.task_options(task_path)) is None:
            return STRICTEST
        return KeyLimit(1, ordered=True) if "order_key" in known else KeyLimit(known.get("concurrency"))

    # Queues

    def scoped(self, engine: Engine, scopes: Sequence[Scope]) -> Sequence[Scope]:
        """Return scopes in which each limited queue has one of its own, with the room that it has now."""
        names = [name for name in self.queues if any(scope.queues is None or name in scope.queues for scope in scopes)]
        if not names:
            return scopes
        held = engine.held_of_queues(names)
        rooms = {name: room_of(self.queues[name].concurrency, held[name]) for name in names}
        parts: list[Scope] = []
        for scope in scopes:
            own = [name for name in names if scope.queues is None or name in scope.queues]
            parts.append(engine.without(scope, own))
            parts += [scope._replace(queues=(name,), room=rooms[name]) for name in own]
        return parts

    def earliest(self, engine: Engine, scopes: Sequence[Scope]) -> int | None:
        """Return Engine.earliest, without what waits in queues that are full."""
        return engine.earliest(self.scoped(engine, scopes))

    # Keys

    def judge(self, engine: Engine, due: Sequence[Due], limit: int) -> Verdict:
        """Return which of these rows the first ``limit`` places of a claim may be given to; it writes nothing.

        Rows behind these places are not judged: they are claimed ahead, or left alone.
        """
        limits = {row.handle: self.of_key(row.keys[0], row.task_path) for row in due if row.keys and row.keys[1]}
        keys = {row.keys[1] or "": limits[row.handle] for row in due if row.handle in limits and row.keys}
        running = Counter(engine.held_of_keys(keys)) if keys else Counter[str]()
        ordered = [key for key in keys if keys[key].ordered]
        first = engine.first_of_keys(ordered) if ordered else {}
        verdict = Verdict()
        for row in due:
            key = row.keys[1] if row.keys and len(verdict.allowed) < limit else None
            if key is None:
                verdict.allowed.append(row)
                continue
            most, in_order = limits[row.handle]
            turn = not in_order or first.get(key) == row.handle
            if turn and (most is None or running[key] < most):
                running[key] += 1
                verdict.allowed.append(row)
            else:
                verdict.parked.append(row.handle)
                if not turn:
                    verdict.first.add(first[key])
        return verdict

    # The look once a second

    def look(self, engine: Engine, after: str) -> tuple[int, str]:
        """Give back parked jobs of keys behind ``after`` with room; return how many, and behind which to go on.

        Nothing is written where nothing is to be done.
        """
        found = engine.parked(after, KEYS_AT_ONCE)
        back = 0
        if any(self.room(engine, parked) for parked in found):
            with engine.transaction():
                for parked in found:
                    room, limit = self.room(engine, parked), self.of_key(parked.queue_name, parked.task_path)
                    if room and limit.ordered:
                        back += engine.put_back(list(engine.first_of_keys([parked.key]).values()))
                    elif room:
                        back += engine.give_back({parked.key: room})
        return back, found[-1].key if len(found) == KEYS_AT_ONCE else ""

    def room(self, engine: Engine, parked: Parked) -> int:
        """Return how many parked jobs of a key are to be given back; what is due already is expected to run."""
        limit, now = self.of_key(parked.queue_name, parked.task_path), engine.now()
        if limit.most is None:
            return GIVEN_BACK_AT_ONCE
        room = min(limit.most - engine.held_of_keys([parked.key])[parked.key], GIVEN_BACK_AT_ONCE)
        return room if room < 1 else max(room - engine.due_of_key(parked.key, now, AMONG), 1)


NO_LIMITS = Limits()


def room_of(most: int | None, held: int) -> int | None:
    """Return how many more may run; None: any number."""
    return None if most is None else max(most - held, 0)


def give_back(engine: Engine, settlements: Sequence[Settlement]) -> None:
    """Give back as many parked jobs of each key as jobs of it have ended, or are held no more.

    One at least: the end of a job that only waited may be what the next one of an ordered key has waited for.
    """
    keyed = [s.job for s in settlements if s.job.concurrency_key is not None]
    if keyed:
        ended = Counter(job.concurrency_key or "" for job in keyed if job.worker_id)
        engine.give_back({key: max(ended[key], 1) for job in keyed if (key := job.concurrency_key)})
