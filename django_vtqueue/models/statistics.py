"""What workers did, counted by the minute and by the hour."""

from django.db import models

from ..fields import InstantField, MomentManager
from ..fields.constraints import OF_COUNTS


class Tallied(models.Model):
    """What one worker did for one task of one queue in a minute, or an hour, as it wrote it last.

    It writes every ten seconds: if it is killed, what came since is not counted.
    """

    starts_at = InstantField()  # the time begins here
    queue_name = models.CharField(max_length=255)
    task_path = models.TextField(blank=True, db_default="")
    worker_id = models.CharField(max_length=255)
    succeeded = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)  # attempts after which there is another
    dead = models.PositiveIntegerField(default=0)
    run_times = models.TextField(default="{}")  # how many attempts took how long
    wait_times = models.TextField(default="{}")  # how many attempts began how late
    depth = models.PositiveIntegerField(null=True, blank=True)  # jobs that were due in the queue, at the most

    objects = MomentManager()

    class Meta:
        abstract = True
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(
                fields=["starts_at", "queue_name", "task_path", "worker_id"], name="%(app_label)s_%(class)s_unique"
            ),
            *OF_COUNTS,
        ]

    def __str__(self) -> str:
        return f"{self.queue_name} {self.starts_at}"


class Throughput(Tallied):
    """The counts of a minute."""


class HourlyThroughput(Tallied):
    """The counts of an hour, which are kept for longer."""
