"""What becomes of an order, from the charge to the question, weeks later, how the customer likes it."""

from django.conf import settings
from django.utils import timezone

from django_vtqueue import JobContext, call, task

from . import services
from .models import Order

DAY = settings.SHOP_DAY
SHIPPED_WITHIN, ASKED_AFTER = 30 * DAY, 14 * DAY
WAREHOUSE = "warehouse@shop.example"


@task(queue_name="orders", takes_context=True)
def fulfil(context: JobContext, order_id: int) -> str:
    """Charge, wait for the shipment, and ask for feedback 14 days later; refund what is not shipped in 30 days.

    Whatever is killed in between, the order goes on behind the last step that was made. While it waits it is a row: no
    thread, no slot of a worker.
    """
    order = Order.objects.get(pk=order_id)
    context.step("charge", charge, order_id, transactional=True)
    tell(context, order, "order", "Thank you for your order.", "Please ship this order.")
    shipped = context.wait_for("shipped", timeout=SHIPPED_WITHIN)
    if shipped is None and context.step("refund", refund, order_id, transactional=True):
        tell(context, order, "refund", "We could not ship your order: you have your money back.", "Do not ship this.")
        return "refunded"
    context.sleep("until it was tried", ASKED_AFTER)
    context.step("ask", ask, order_id)
    return "done"


def tell(context: JobContext, order: Order, what: str, customer: str, warehouse: str) -> None:
    """Send two mails, side by side; one that fails for good is a dead letter, and does not hold the order up."""
    calls = [call(mail, order.pk, order.email, customer), call(mail, order.pk, WAREHOUSE, warehouse)]
    context.gather(f"tell of the {what}", calls)


@task(queue_name="orders")
def mail(order_id: int, to: str, text: str) -> None:
    """Send a mail, at least once: again, if the worker dies before it knows that it was sent."""
    services.send(Order.objects.get(pk=order_id), to, text)


def charge(order_id: int) -> None:
    """Charge the customer, exactly once: a transactional step writes this and its own record together, or neither."""
    order = Order.objects.get(pk=order_id)
    services.pay(order, order.cents)
    order.charged_at = timezone.now()
    order.save(update_fields=["charged_at"])


def refund(order_id: int) -> bool:
    """Give the money back, exactly once; return whether it was: not if the order was shipped in the last moment.

    The row of the order decides, for the same row is asked in the transaction that ships it.
    """
    unshipped = Order.objects.filter(pk=order_id, shipped_at=None)
    if not unshipped.update(refunded_at=timezone.now()):
        return False
    order = Order.objects.get(pk=order_id)
    services.pay(order, -order.cents)
    return True


def ask(order_id: int) -> None:
    """Ask for feedback, at least once."""
    order = Order.objects.get(pk=order_id)
    services.send(order, order.email, "How do you like it?")
    order.asked_at = timezone.now()
    order.save(update_fields=["asked_at"])
