from pathlib import Path

from django.db import models
from django.urls import reverse
from django.utils import timezone


class Document(models.Model):
    """The text of one file; triggers (see the migration) keep the full-text index in step with it."""

    path = models.TextField(unique=True)
    lines = models.PositiveIntegerField()
    indexed_at = models.DateTimeField(db_index=True)
    text = models.TextField()

    def __str__(self) -> str:
        return short_path(self.path)

    def get_absolute_url(self) -> str:
        return reverse("document", args=[self.pk])

    @classmethod
    def store(cls, path: str, text: str) -> None:
        """Insert the document or replace what is known of its path: one statement, however often it is repeated."""
        document = cls(path=path, lines=len(text.splitlines()), indexed_at=timezone.now(), text=text)
        cls.objects.bulk_create(
            [document],
            update_conflicts=True,
            unique_fields=["path"],
            update_fields=["lines", "indexed_at", "text"],
        )


class Digest(models.Model):
    """What the library held at one moment."""

    NEWEST = 10

    job_id = models.UUIDField(primary_key=True)
    written_at = models.DateTimeField(auto_now=True)
    documents = models.PositiveIntegerField()
    lines = models.PositiveIntegerField()
    newest = models.JSONField(help_text="Paths of the documents indexed last.")

    class Meta:
        ordering = ["-written_at"]

    def __str__(self) -> str:
        return f"{self.documents:,} documents, {self.lines:,} lines"

    @classmethod
    def write(cls, job_id: str) -> None:
        """Store a digest of the documents there are now, in place of one that the same job may have left."""
        totals = Document.objects.aggregate(documents=models.Count("pk"), lines=models.Sum("lines", default=0))
        newest = Document.objects.order_by("-indexed_at").values_list("path", flat=True)[: cls.NEWEST]
        cls.objects.update_or_create(job_id=job_id, defaults={**totals, "newest": list(newest)})

    @property
    def newest_names(self) -> list[str]:
        return [short_path(path) for path in self.newest]


def short_path(path: str) -> str:
    """The end of a path: enough to recognise the file."""
    return "/".join(Path(path).parts[-3:])
