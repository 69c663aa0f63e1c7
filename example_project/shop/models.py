from django.db import models


class Order(models.Model):
    """What a customer has ordered, and when each thing was done about it; None: not yet."""

    item = models.CharField(max_length=100)
    email = models.EmailField()
    cents = models.PositiveIntegerField(default=2400)
    job_id = models.UUIDField(null=True, editable=False)
    placed_at = models.DateTimeField(auto_now_add=True)
    charged_at = models.DateTimeField(null=True, blank=True)
    shipped_at = models.DateTimeField(null=True, blank=True)
    refunded_at = models.DateTimeField(null=True, blank=True)
    asked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"Order {self.pk}: {self.item}"

    @property
    def euros(self) -> str:
        return f"€{self.cents / 100:.2f}"


class Payment(models.Model):
    """What the bank was asked to do: to charge a customer, or, below 0, to refund.

    No constraint forbids a second charge of an order, so that one would show.
    """

    order = models.ForeignKey(Order, models.CASCADE, related_name="payments")
    cents = models.IntegerField()
    made_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.cents / 100:+.2f} for order {self.order_id}"


class Mail(models.Model):
    """What the mail server was asked to send."""

    order = models.ForeignKey(Order, models.CASCADE, related_name="mails")
    to = models.EmailField()
    text = models.TextField()
    sent_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.to}: {self.text}"
