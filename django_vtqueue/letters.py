"""Dead letters: back into their queue, as they are or changed, or away."""

from typing import TYPE_CHECKING
from uuid import UUID

from django.db.models import F
from django.utils.translation import gettext as _

from .bells import ring_after_commit
from .engines import backend_options, database_of, engine_for
from .entries import Named, ids_of
from .fields import StoredText, text_of
from .ids import slices
from .publishing import checked_priority, checked_queue_name

if TYPE_CHECKING:
    from .models import DeadLetter


class NotMoved(Exception):
    """A letter that was to be changed and requeued is as it was; its text says why."""


def requeue(
    letters: Named,
    using: str | None = None,
    *,
    by: str = "",
    queue_name: str | None = None,
    priority: int | None = None,
) -> list[UUID]:
    """Send dead letters round again: the same id, a fresh budget of attempts, the history kept.

    ``letters``: a letter, its id, the last 8 digits of that or more, or several of them; ``using``: a database alias
    (default: the one of your settings); ``by``: who does it, for the history; ``queue_name``, ``priority``: instead of
    their own. Many are moved a few at a time, each few in a transaction of their own if there is none around all.
    Returns the ids of those that were moved; one that is no dead letter (any more), or whose unique key is taken, is
    left out. Raises ValueError for what is no id, or the end of several; for what is no name of a queue, or no
    priority.
    """
    from .models import DeadLetter  # this module is imported before the apps are ready

    queue_name = None if queue_name is None else checked_queue_name(queue_name)
    priority = None if priority is None else checked_priority(priority)
    options = backend_options(using)
    database = using or database_of(options)
    ids, engine = ids_of(letters, DeadLetter, database), engine_for(database)
    moved: set[str] = set()
    for some in slices(ids):
        given = [job_id.hex for job_id in some]
        moved |= engine.requeue(given, engine.now(), by, queue_name=queue_name, priority=priority)
    ring_after_commit(database, options.doorbells)
    return [job_id for job_id in ids if job_id.hex in moved]


def requeue_changed(letter: "DeadLetter", *, payload: str, queue_name: str, priority: int, by: str = "") -> None:
    """Send a letter, as it was read, round again with other values; they are not checked here.

    ``payload``: its stored form; where it is as it was read, the text in the table is not touched. Raise NotMoved, and
    change nothing, if it is no dead letter any more, has died again since it was read, or a waiting job has its unique
    key.
    """
    database = str(letter._state.db)
    engine = engine_for(database)
    with engine_for(database).atomic():
        # The write comes first: on SQLite a transaction that has read is refused the lock instead of waiting for it.
        same = type(letter).objects.using(database).filter(pk=letter.pk, died_at=letter.died_at)
        kept = payload == text_of(letter.payload)
        if not same.update(payload=F("payload") if kept else StoredText(payload)):
            raise NotMoved(_("It is no dead letter any more, or has died again meanwhile."))
        if not engine.requeue([letter.pk.hex], engine.now(), by, queue_name=queue_name, priority=priority):
            raise NotMoved(_("A waiting job has its unique key."))
        ring_after_commit(database, backend_options(database).doorbells)


def acknowledge(letters: Named, using: str | None = None, *, by: str, note: str) -> list[UUID]:
    """Note that somebody has seen dead letters, and what they say to it; see requeue. Returns the ids of those seen."""
    from .models import DeadLetter

    database = using or database_of(backend_options())
    ids = ids_of(letters, DeadLetter, database)
    there: set[UUID] = set()
    for some in slices(ids):
        found = DeadLetter.objects.using(database).filter(pk__in=some)
        with engine_for(database).atomic():
            found.update(acknowledged_at=engine_for(database).now(), acknowledged_by=by, note=note)
            there.update(found.values_list("pk", flat=True))
    return [job_id for job_id in ids if job_id in there]


def discard(letters: Named, using: str | None = None) -> list[UUID]:
    """Delete dead letters for good; see requeue. Returns the ids of those that are gone."""
    from .models import DeadLetter

    database = using or database_of(backend_options())
    ids = ids_of(letters, DeadLetter, database)
    left: set[UUID] = set()
    for some in slices(ids):
        found = DeadLetter.objects.using(database).filter(pk__in=some)
        with engine_for(database).atomic():
            found._raw_delete(database)  # not delete(): where a project listens to that, it reads first
            left.update(found.values_list("pk", flat=True))
    return [job_id for job_id in ids if job_id not in left]
