from django.db import models


class Sleeper(models.Model):
    """A process that should run, and the one that does, as far as it is known: its id, and when it was started.

    A process id alone is no proof, for the system gives it to another process later; `born` is the moment of the start
    in ticks of the system since its boot.
    """

    name = models.CharField(max_length=50, unique=True)
    should_run = models.BooleanField(default=True)
    pid = models.IntegerField(null=True, blank=True)
    born = models.BigIntegerField(null=True, blank=True)

    def __str__(self) -> str:
        return self.name
