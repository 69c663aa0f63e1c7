"""The shop's bank and its mail server: local stand-ins, which a real shop replaces. What they are asked to do is a row.

A bank behind a network is part of no transaction. Give it the number of the order as its idempotency key: then it
charges once, however often it is asked.
"""

import time

from django.conf import settings

from .models import Mail, Order, Payment


def pay(order: Order, cents: int) -> None:
    """Charge a customer, or, below 0, refund."""
    Payment.objects.create(order=order, cents=cents)
    time.sleep(settings.SHOP_LATENCY)


def send(order: Order, to: str, text: str) -> None:
    """Send a mail. Who is killed before this returns does not know that it was sent."""
    Mail.objects.create(order=order, to=to, text=text)
    time.sleep(settings.SHOP_LATENCY)
