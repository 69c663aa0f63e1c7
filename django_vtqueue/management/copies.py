"""A database that was copied from elsewhere, with jobs in it that nobody means to run here."""

from django.conf import settings
from django.core.management.base import CommandError

from ..backend import VTQueueBackend
from ..engines import engine_for
from ..home import left_behind
from ..models import Job
from .backends import option_of

REFUSAL = """The jobs of this database were last worked off on {home} (worker started {moment}).
{count} unfinished came with it. They might write to real people, so with DEBUG this worker refuses to run them.
To delete them:    manage.py vtqueue purge{option} --all
To run them here:  manage.py vtworker{option} --adopt"""


def refuse_copy(backend: VTQueueBackend) -> None:
    """Raise CommandError with DEBUG, if the queue was last worked elsewhere and has unfinished jobs."""
    if not settings.DEBUG or not (home := left_behind(engine_for(backend.database))):
        return
    if count := Job.objects.using(backend.database).filter(finished_at__isnull=True).count():
        moment = f"{home.worked_at:%Y-%m-%d %H:%M %Z}".strip()
        raise CommandError(REFUSAL.format(home=home, moment=moment, count=count, option=option_of(backend)))
