"""Which dead letters are meant: all that have the same queue, task, exception, or died in some time."""

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any
from uuid import UUID

from .encoding import decode

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from .models import DeadLetter

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
    acknowledged: bool | None = None
    died_from: int | None = None
    died_to: int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for what no database can be asked for."""
        for name, value in self.given().items():
            if name in TEXTS:
                value.encode()  # a UnicodeEncodeError is a ValueError
            elif abs(value) >= LARGEST:
                raise ValueError(f"{name} is {value}, which is no instant in microseconds.")

    @classmethod
    def from_json(cls, text: str) -> "Criteria":
        """Return stored criteria; raise ValueError if it is none, so that nothing is left out that was asked for."""
        values = decode(text)
        known = {field.name for field in fields(cls)}
        if not isinstance(values, dict) or not known.issuperset(values):
            raise ValueError(f"Criteria are an object with some of {', '.join(sorted(known))}, not {text[:200]!r}.")
        for name, value in values.items():
            kind = str if name in TEXTS else bool if name == "acknowledged" else int
            if type(value) is not kind:
                raise ValueError(f"{name} is {value!r}, but must be of type {kind.__name__}.")
        return cls(**values)

    def given(self) -> dict[str, Any]:
        """Return those that say something."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def to_json(self) -> str:
        """Return their stored form."""
        return json.dumps(self.given())

    def letters(self, database: str, after: Position | None = None) -> "QuerySet[DeadLetter]":
        """Return the dead letters that are meant, in the order in which they died; ``after``: those behind a place."""
        from django.db.models import Q

        from .models import DeadLetter  # this module is imported before the apps are ready

        found = self.among(DeadLetter.objects.using(database)).order_by("died_at", "pk")
        if after:
            died_at, last = after
            found = found.filter(Q(died_at__gt=died_at) | Q(pk__gt=last), died_at__gte=died_at)
        return found

    def among(self, letters: "QuerySet[DeadLetter]") -> "QuerySet[DeadLetter]":
        """Return those of ``letters`` that are meant."""
        found = letters.filter(**{name: value for name, value in self.given().items() if name in TEXTS})
        if self.acknowledged is not None:
            found = found.filter(acknowledged_at__isnull=not self.acknowledged)
        if self.died_from is not None:
            found = found.filter(died_at__gte=self.died_from)
        if self.died_to is not None:
            found = found.filter(died_at__lte=self.died_to)
        return found

    @property
    def most_counted(self) -> int:
        """How many are counted: no index knows what is acknowledged."""
        return MOST_COUNTED if self.acknowledged is None else MOST_READ

    def count(self, database: str) -> int:
        """Return how many are meant; ``most_counted`` stands for that many or more."""
        return self.letters(database)[: self.most_counted].count()
