"""One page: orders with their steps, a button for a new one, and one that says that a parcel was sent."""

import time

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from django_vtqueue import send_event
from django_vtqueue.models import Job

from .tasks import order


@require_GET
def orders(request: HttpRequest) -> HttpResponse:
    jobs = Job.objects.filter(task_path=order.module_path).order_by("-pk")[:20]
    return render(request, "orders/orders.html", {"jobs": jobs})


@require_POST
def place(request: HttpRequest) -> HttpResponse:
    order.enqueue(int(time.time()))
    return redirect("orders")


@require_POST
def ship(request: HttpRequest, number: int) -> HttpResponse:
    send_event(unique_key=f"order:{number}", name="shipped", value=f"P-{number}")
    return redirect("orders")
