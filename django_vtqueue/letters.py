"""Dead letters: back into their queue, or away."""

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import transaction

from .bells import ring_after_commit
from .engines import backend_options, database_of, engine_for
from .ids import parse_id

if TYPE_CHECKING:
    from .models import DeadLetter

    Letter = DeadLetter | UUID | str


def requeue(letters: "Letter | Iterable[Letter]", using: str | None = None) -> list[UUID]:
    """Send dead letters round again: the same id, a fresh budget of attempts, the history kept.

    ``letters``: a letter or its id, or several; ``using``: a database alias (default: the one of your settings).
    Returns the ids of those that were moved; one that is no dead letter (any more), or whose unique key is taken, is
    left out.
    """
    options = backend_options(using)
    database = using or database_of(options)
    ids, engine = _ids(letters), engine_for(database)
    moved = engine.requeue([job_id.hex for job_id in ids], engine.now())
    ring_after_commit(database, options.doorbells)
    return [job_id for job_id in ids if job_id.hex in moved]


def discard(letters: "Letter | Iterable[Letter]", using: str | None = None) -> list[UUID]:
    """Delete dead letters for good; see requeue. Returns the ids of those that are gone."""
    from .models import DeadLetter  # this module is imported before the apps are ready

    ids = _ids(letters)
    found = DeadLetter.objects.using(using or database_of(backend_options())).filter(pk__in=ids)
    with transaction.atomic(using=found.db):
        found.delete()
        left = set(found.values_list("pk", flat=True))
    return [job_id for job_id in ids if job_id not in left]


def _ids(letters: "Letter | Iterable[Letter]") -> list[UUID]:
    several = letters if isinstance(letters, Iterable) and not isinstance(letters, str) else [letters]
    given = (parse_id(getattr(letter, "pk", letter)) for letter in several)
    return [job_id for job_id in given if job_id]
