"""Jobs and dead letters that a caller names: by an id, or by the end of one that the log shows."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar
from uuid import UUID

from ..core.ids import SHORTEST, digits_in, id_end, parse_id

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from ..models import AbstractJob


class HasId(Protocol):
    """A job, a dead letter, the result of a task, or what ``Queue.claim`` has returned."""

    @property
    def id(self) -> Any: ...


E = TypeVar("E", bound="AbstractJob")
Named: TypeAlias = HasId | UUID | str | Iterable[HasId | UUID | str]
SHOWN = 5  # ids of an error


class UnclearId(ValueError):
    """What was given is no id, or the end of several."""


def ids_of(given: Named, database: str, *models: "type[AbstractJob]") -> list[UUID]:
    """Return the ids of one or several jobs or dead letters, each once: of what has an id, of ids, or of last digits.

    Whole ids are not looked up; digits in which no row of the ``models`` ends are left out. Raise UnclearId.
    """
    several = given if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    found = (_id_of(getattr(one, "id", one), database, models) for one in several)
    return list(dict.fromkeys(job_id for job_id in found if job_id))


def checked_id(given: Any) -> UUID:
    """Return the id of one job, given whole, or of what has it; raise ValueError for anything else."""
    if (found := parse_id(getattr(given, "id", given))) is None:
        raise ValueError(f"{given!r:.100} is no id of a job: give all of it, as result.id has it.")
    return found


def _id_of(given: object, database: str, models: "Iterable[type[AbstractJob]]") -> UUID | None:
    if job_id := parse_id(given):
        return job_id
    digits = digits_of(given)
    entry = only([row for model in models for row in some(model._default_manager.using(database), digits)], given)
    return entry.pk if entry else None


def digits_of(given: object) -> str:
    """Return what was given as the last digits of an id; raise UnclearId if it cannot be that."""
    digits = digits_in(given) if isinstance(given, str) else ""
    if not digits:
        raise UnclearId(f"{given!r:.100} is no id: give all of it, or its last {SHORTEST} hexadecimal digits or more.")
    return digits


def some(entries: "QuerySet[E]", digits: str) -> "list[E]":
    """Return the rows whose ids end in these digits, the oldest first; a few at the most: more than one is an error."""
    return list(entries.filter(pk__endswith=id_end(digits)).order_by("pk")[: SHOWN + 1])


def only(found: "Sequence[E]", given: object) -> "E | None":
    """Return the row that was found, None if there is none; raise UnclearId for several."""
    if len(found) > 1:
        ids = ", ".join(str(entry.pk) for entry in found[:SHOWN]) + (", …" if found[SHOWN:] else "")
        raise UnclearId(f"{given} is the end of several ids; give more digits: {ids}")
    return found[0] if found else None
