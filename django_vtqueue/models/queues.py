"""What governs queues beside their jobs: pauses, rates, schedules."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..fields import InstantField, JSONTextField, MomentManager
from ..fields.constraints import OF_PAUSES, OF_RATES, OF_SCHEDULES


class QueueState(models.Model):
    """A pause: nothing of its queue is claimed until it ends, by itself or because the queue is resumed."""

    queue_name = models.CharField(_("queue"), max_length=255, primary_key=True)
    paused_at = InstantField(_("paused"))
    paused_until = InstantField(_("paused until"), null=True, blank=True)
    paused_by = models.CharField(_("paused by"), max_length=150, blank=True, default="")
    reason = models.CharField(_("reason"), max_length=255, blank=True, default="")

    objects = MomentManager()

    class Meta:
        verbose_name = _("pause")
        verbose_name_plural = _("pauses")
        default_permissions = ()
        constraints = OF_PAUSES

    def __str__(self) -> str:
        return self.queue_name


class Rate(models.Model):
    """The limit of a rate in use: when the next start is due under it (GCRA's theoretical arrival time)."""

    key = models.CharField(max_length=300, primary_key=True)  # "key:" or "queue:", and what has 255 at the most
    next_at = InstantField()
    interval_us = models.BigIntegerField()  # between two starts, when it was used last

    objects = MomentManager()

    class Meta:
        default_permissions = ()
        constraints = OF_RATES

    def __str__(self) -> str:
        return self.key


class Schedule(models.Model):
    """When a recurring job is published: declared in code and written down by a worker, or made in the admin.

    A worker publishes for a declared one only if its own code declares the same; see recurrence/declaring.py.
    """

    name = models.CharField(_("name"), max_length=255, primary_key=True)
    task_path = models.TextField(_("task"))
    expression = models.CharField(_("expression"), max_length=255)  # five fields of cron, or "every 300" (seconds)
    time_zone = models.CharField(_("time zone"), max_length=64, blank=True, default="")
    payload = JSONTextField(_("arguments"), default=dict)
    missed = models.CharField(_("missed"), max_length=4, default="one")
    overlap = models.BooleanField(_("overlap"), default=True)
    jitter_us = models.BigIntegerField(_("jitter (µs)"), default=0)
    queue_name = models.CharField(_("queue"), max_length=255, blank=True, default="")  # empty: that of its task
    priority = models.SmallIntegerField(_("priority"), null=True, blank=True)
    declared = models.BooleanField(_("declared in code"), default=False)
    next_at = InstantField(_("next"), null=True, blank=True)
    last_at = InstantField(_("last"), null=True, blank=True)  # the last tick that was run
    paused_at = InstantField(_("paused"), null=True, blank=True)
    paused_by = models.CharField(_("paused by"), max_length=150, blank=True, default="")
    recent = JSONTextField(_("last jobs"), default=list)  # the latest first; see recurrence/runs.py

    objects = MomentManager()

    class Meta:
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        permissions = [("run_schedule", "Can run a schedule now, and pause it")]
        indexes = [models.Index(fields=["next_at"], name="vtqueue_schedule_next")]
        constraints = OF_SCHEDULES

    def __str__(self) -> str:
        return self.name
