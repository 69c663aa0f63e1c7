"""Workers, and where they ran last."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..fields import InstantField, MomentManager
from ..fields.constraints import OF_ORIGIN, OF_WORKERS


class WorkerProcess(models.Model):
    """A worker: for people, and to learn of its death before its leases end. Correctness needs none of it.

    The row of a killed one stays for an hour, with what became of its jobs; ``queue.workers.undead`` leaves it out.
    """

    worker_id = models.CharField(_("worker"), max_length=255, primary_key=True)
    host = models.CharField(_("host"), max_length=255)
    pid = models.PositiveIntegerField(_("pid"))
    queues = models.TextField(_("queues"), blank=True)  # names, separated by commas; empty: all
    slots = models.PositiveIntegerField(_("slots"))
    started_at = InstantField(_("started"))
    heartbeat_at = InstantField(_("last heartbeat"))
    doorbell = models.TextField(_("doorbell"), blank=True, help_text=_("Path of the socket that wakes it."))
    memory = models.BigIntegerField(_("memory"), null=True, blank=True)  # bytes
    asked_to = models.CharField(_("asked to"), max_length=10, blank=True, default="")  # see workers.QUIET, workers.STOP
    died_at = InstantField(_("died"), null=True, blank=True)  # when another worker found it dead
    went_on = models.PositiveIntegerField(_("jobs that went on"), db_default=0)
    buried = models.PositiveIntegerField(_("jobs that died with it"), db_default=0)
    left = models.TextField(_("jobs that it left"), blank=True, db_default="")  # some ids, by spaces
    schedules = models.TextField(_("schedules"), blank=True, db_default="")  # that its code declares, one in a line

    objects = MomentManager()

    class Meta:
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        permissions = [("stop_worker", "Can stop a worker")]
        constraints = OF_WORKERS

    def __str__(self) -> str:
        return self.worker_id


class Origin(models.Model):
    """Where the jobs of this database were run last, in one row: a copy of the file brings it along."""

    id = models.PositiveSmallIntegerField(primary_key=True)
    machine = models.CharField(max_length=255)  # its name, and a hash of its machine-id
    path = models.TextField()  # of the database file
    file = models.CharField(max_length=255)  # file system and inode: a copy has others
    worked_at = InstantField()  # when a worker started here last

    objects = MomentManager()

    class Meta:
        default_permissions = ()
        constraints = OF_ORIGIN

    def __str__(self) -> str:
        return f"{self.machine.partition(':')[0]}, {self.path}"
