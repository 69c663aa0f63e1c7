from django.db import models


class Effect(models.Model):
    """What a task did, so that a test can count it."""

    name = models.CharField(max_length=100)
    value = models.IntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


# Rows by keys of each kind.


class Keyed(models.Model):
    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.pk)


class ByInteger(Keyed):
    id = models.BigIntegerField(primary_key=True)

    class Meta:
        ordering = ["-id"]


class ByText(Keyed):
    id = models.CharField(primary_key=True, max_length=50)


class ByUUID(Keyed):
    id = models.UUIDField(primary_key=True)


class ByBytes(Keyed):
    id = models.BinaryField(primary_key=True)


class ByDuration(Keyed):
    id = models.DurationField(primary_key=True)


class ByMoment(Keyed):
    id = models.DateTimeField(primary_key=True)


class ByDate(Keyed):
    id = models.DateField(primary_key=True)


class ByTime(Keyed):
    id = models.TimeField(primary_key=True)


class ByFloat(Keyed):
    id = models.FloatField(primary_key=True)


class ByDecimal(Keyed):
    id = models.DecimalField(primary_key=True, max_digits=12, decimal_places=4)


class ByAddress(Keyed):
    id = models.GenericIPAddressField(primary_key=True)


class ByBoolean(Keyed):
    id = models.BooleanField(primary_key=True)


class ByPair(Keyed):
    pk = models.CompositePrimaryKey("name", "number")
    name = models.CharField(max_length=50)
    number = models.IntegerField()


class ByOwner(Keyed):
    """Its key is that of another row, which has a default order."""

    owner = models.OneToOneField(ByInteger, models.CASCADE, primary_key=True)


class Special(ByText):
    """A row of two tables."""

    number = models.IntegerField(default=0)


class AlsoByInteger(ByInteger):
    class Meta:
        proxy = True


class Mark(models.Model):
    """One of several of an effect."""

    effect = models.ForeignKey(Effect, models.CASCADE, related_name="marks")
    name = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.name
