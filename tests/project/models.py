from django.db import models


class Effect(models.Model):
    """What a task did, so that a test can count it."""

    name = models.CharField(max_length=100)
    value = models.IntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name}={self.value}"
