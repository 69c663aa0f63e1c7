"""Runs that requeue many dead letters: which ones, how far they are, and whether they were stopped."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..core.ids import new_uuid
from ..fields import InstantField, MomentManager
from ..fields.constraints import OF_REQUEUES


class Requeue(models.Model):
    """Many dead letters on their way back into their queues, a few at a time; a job of its own carries it out."""

    id = models.UUIDField(_("id"), primary_key=True, default=new_uuid)
    criteria = models.TextField(_("criteria"))  # which dead letters, as JSON
    task_path = models.TextField(_("task"), null=True, blank=True)  # NULL: several tasks; '': raw payloads
    exception_class = models.CharField(_("exception"), max_length=255, null=True, blank=True)  # NULL: several of them
    queue_name = models.CharField(_("queue"), max_length=255, help_text=_("In which its own jobs wait."))
    rate = models.PositiveIntegerField(_("a minute"), null=True, blank=True)  # NULL: at once
    canary = models.UUIDField(_("canary"), null=True, blank=True)  # the one that went first
    to_queue = models.CharField(_("into the queue"), max_length=255, null=True, blank=True)
    to_priority = models.SmallIntegerField(_("with the priority"), null=True, blank=True)
    matched = models.PositiveIntegerField(_("matched"), default=0)
    requeued = models.PositiveIntegerField(_("requeued"), default=0)
    skipped = models.PositiveIntegerField(_("skipped"), default=0)
    followed = models.TextField(_("followed"), db_default="")  # the ids of the jobs that went last
    state = models.CharField(_("state"), max_length=10)
    remark = models.CharField(_("remark"), max_length=255, blank=True, default="")
    created_at = InstantField(_("created"))
    created_by = models.CharField(_("created by"), max_length=150, blank=True, default="")
    last_died_at = InstantField(_("up to"), null=True, blank=True)  # how far it has come
    last_id = models.UUIDField(null=True, blank=True)
    step = models.UUIDField(_("step"), null=True, blank=True)  # the job that goes on with it
    ended_at = InstantField(_("ended"), null=True, blank=True)

    objects = MomentManager()

    class Meta:
        verbose_name = _("requeue")
        verbose_name_plural = _("requeues")
        default_permissions = ("view",)
        constraints = OF_REQUEUES

    def __str__(self) -> str:
        task = _("several tasks") if self.task_path is None else self.task_path or _("raw payloads")
        failure = self.exception_class or _("several exceptions")
        return f"{task}: {failure.rpartition('.')[2]}"
