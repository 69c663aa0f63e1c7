"""Dead letters: they are requeued, as they are or changed, and marked as reviewed."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db.models import F
from django.utils.translation import gettext as _

from ..core.encoding import decode
from ..core.text import shown, storable
from ..engines import database_for, engine_for
from ..fields import StoredText, text_of
from .arguments import checked_by, checked_priority, checked_text, served_queue_name
from .batches import change_in_batches
from .doorbell import wake_workers
from .named_jobs import Named

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from ..models import DeadLetter

LONGEST_NOTE = 10_000  # characters

# -- which dead letters ------------------------------------------------------------------------------------------------

MOST_COUNTED, MOST_READ = 100_000, 10_000  # letters: by an index, and where each has to be read
Position = tuple[int, UUID]  # a letter's place in the order in which they died
LARGEST = 2**63  # of an instant
TEXTS = ("queue_name", "task_path", "exception_class", "fingerprint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """What dead letters have in common; None: anything. ``died_from`` and ``died_to`` are instants, both included."""

    queue_name: str | None = None
    task_path: str | None = None
    exception_class: str | None = None
    fingerprint: str | None = None
    reviewed: bool | None = None
    died_from: int | None = None
    died_to: int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for values of another kind, and for those that no database can compare."""
        for name, value in self.given().items():
            kind: type[Any] = str if name in TEXTS else bool if name == "reviewed" else int
            if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                raise ValueError(f"{name} is {shown(value)}, but must be of type {kind.__name__}.")
            if name in TEXTS:
                if storable(value) != value:
                    raise ValueError(
                        f"{name} is {shown(value)}: no text with NUL or half of a surrogate pair is stored."
                    )
            elif abs(value) >= LARGEST:
                raise ValueError(f"{name} is {shown(value)}, which is no instant in microseconds.")

    @classmethod
    def from_json(cls, text: str) -> "Criteria":
        """Return stored criteria; raise ValueError if it is none, so that nothing is left out that was asked for."""
        values = decode(text)
        known = {field.name for field in fields(cls)}
        if not isinstance(values, dict) or not known.issuperset(values):
            raise ValueError(f"Criteria are an object with some of {', '.join(sorted(known))}, not {text[:200]!r}.")
        if unset := [name for name, value in values.items() if value is None]:
            raise ValueError(f"{unset[0]} is null; leave it out if it may be anything.")
        return cls(**values)

    def given(self) -> dict[str, Any]:
        """Return the criteria that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def to_json(self) -> str:
        """Return their stored form."""
        return json.dumps(self.given())

    def letters(self, database: str, after: Position | None = None) -> "QuerySet[DeadLetter]":
        """Return the dead letters with these criteria, in the order in which they died; ``after``: behind a place."""
        from django.db.models import Q

        from ..models import DeadLetter  # this module is imported before the apps are ready

        found = self.among(DeadLetter.objects.using(database)).order_by("died_at", "pk")
        if after:
            died_at, last = after
            found = found.filter(Q(died_at__gt=died_at) | Q(pk__gt=last), died_at__gte=died_at)
        return found

    def among(self, letters: "QuerySet[DeadLetter]") -> "QuerySet[DeadLetter]":
        """Return those of ``letters`` that have these criteria."""
        found = letters.filter(**{name: value for name, value in self.given().items() if name in TEXTS})
        if self.reviewed is not None:
            found = found.filter(reviewed_at__isnull=not self.reviewed)
        if self.died_from is not None:
            found = found.filter(died_at__gte=self.died_from)
        if self.died_to is not None:
            found = found.filter(died_at__lte=self.died_to)
        return found

    @property
    def most_counted(self) -> int:
        """Up to how many are counted: no index has what is reviewed."""
        return MOST_COUNTED if self.reviewed is None else MOST_READ

    def count(self, database: str) -> int:
        """Return how many dead letters there are; ``most_counted`` stands for that many or more."""
        return self.letters(database)[: self.most_counted].count()


class NotRequeued(Exception):
    """A letter that was to be changed and requeued is as it was; its text says why."""


def requeue(
    letters: Named,
    *,
    by: str = "",
    queue_name: str | None = None,
    priority: int | None = None,
    using: str | None = None,
) -> list[UUID]:
    """Put dead letters back into their queues: the same id, a fresh budget of attempts, the history kept.

    ``letters``: a letter, its id, the last 8 digits of that or more, or several of them; ``using``: a database alias
    (default: the one of your settings); ``by``: who does it, for the history; ``queue_name``, ``priority``: instead of
    their own. Many are requeued a few at a time, each few in a transaction of their own if there is none around all.
    Returns the ids of those that were requeued; one that is no dead letter (any more), or whose unique key is taken, is
    left out. Raises ValueError for what is no id, or the end of several; for what is no name of a queue that the
    settings have, or no priority.
    """
    from ..models import DeadLetter  # this module is imported before the apps are ready

    database = database_for(using)
    queue_name = None if queue_name is None else served_queue_name(queue_name, database)
    priority, by = None if priority is None else checked_priority(priority), checked_by(by)
    engine = engine_for(database)

    def requeue_some(ids: Sequence[UUID]) -> Iterable[UUID]:
        given = [job_id.hex for job_id in ids]
        return map(UUID, engine.requeue(given, engine.now(), by, queue_name=queue_name, priority=priority))

    return change_in_batches(letters, DeadLetter, database, requeue_some)


def requeue_changed(letter: "DeadLetter", *, payload: str, queue_name: str, priority: int, by: str = "") -> None:
    """Put a letter, as it was read, back into a queue with other values; they are not checked here.

    ``payload``: its stored form; where it is as it was read, the text in the table is not touched. Raise NotRequeued,
    and change nothing, if it is no dead letter any more, has died again since it was read, or a waiting job has its
    unique key.
    """
    database = str(letter._state.db)
    engine = engine_for(database)
    with engine_for(database).atomic():
        # The write comes first: on SQLite a transaction that has read is refused the lock instead of waiting for it.
        same = type(letter).objects.using(database).filter(pk=letter.pk, died_at=letter.died_at)
        kept = payload == text_of(letter.payload)
        if not same.update(payload=F("payload") if kept else StoredText(payload)):
            raise NotRequeued(_("It is no dead letter any more, or has died again meanwhile."))
        if not engine.requeue([letter.pk.hex], engine.now(), by, queue_name=queue_name, priority=priority):
            raise NotRequeued(_("A waiting job has its unique key."))
        wake_workers(database)


def mark_reviewed(letters: Named, *, by: str = "", note: str = "", using: str | None = None) -> list[UUID]:
    """Note that someone has looked at dead letters; they stay what they are.

    ``by``: who it was; ``note``: a remark, for people; ``letters``, ``using``: see requeue. Returns the ids of those
    that are dead letters. Raises ValueError for what is no id, or the end of several; TypeError for what is no text.
    """
    from ..models import DeadLetter

    database = database_for(using)
    seen = {
        "reviewed_at": engine_for(database).now(),
        "reviewed_by": checked_by(by),
        "note": checked_text(note, LONGEST_NOTE, "note"),
    }

    def mark_some(ids: Sequence[UUID]) -> Iterable[UUID]:
        found = DeadLetter.objects.using(database).filter(pk__in=ids)
        found.update(**seen)
        return found.values_list("pk", flat=True)

    return change_in_batches(letters, DeadLetter, database, mark_some)
