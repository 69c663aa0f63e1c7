"""The page of orders, for customers and for the warehouse alike."""

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from django_vtqueue import send_event
from django_vtqueue.models import DeadLetter, Job

from .forms import OrderForm
from .models import Order
from .tasks import fulfil

SHOWN = 30  # orders


@require_GET
def orders(request: HttpRequest) -> HttpResponse:
    return page(request, OrderForm())


@require_POST
def place(request: HttpRequest) -> HttpResponse:
    """Store an order, and the job that fulfils it: both, or neither."""
    form = OrderForm(request.POST)
    if not form.is_valid():
        return page(request, form, status=422)
    with transaction.atomic():
        order = form.save()
        order.job_id = fulfil.enqueue(order.pk).id
        order.save(update_fields=["job_id"])
    messages.success(request, f"Order {order.pk} is placed.")
    return redirect("orders")


@require_POST
def ship(request: HttpRequest, pk: int) -> HttpResponse:
    """Write down that an order was shipped, and tell its job: both, or neither."""
    order = get_object_or_404(Order, pk=pk)
    with transaction.atomic():
        waiting = Order.objects.filter(pk=pk, shipped_at=None, refunded_at=None).exclude(charged_at=None)
        shipped = waiting.update(shipped_at=timezone.now()) and send_event(order.job_id, "shipped", True)
        if not shipped:
            transaction.set_rollback(True)
    if shipped:
        messages.success(request, f"Order {pk} is shipped.")
    else:
        messages.error(request, f"Order {pk} cannot be shipped now.")
    return redirect("orders")


def page(request: HttpRequest, form: OrderForm, status: int = 200) -> HttpResponse:
    shown = list(Order.objects.all()[:SHOWN])
    ids = [order.job_id for order in shown]
    jobs, letters = Job.objects.in_bulk(ids), DeadLetter.objects.in_bulk(ids)
    rows = [(order, jobs.get(order.job_id), letters.get(order.job_id)) for order in shown]
    return render(request, "shop/orders.html", {"rows": rows, "form": form, "now": timezone.now()}, status=status)
