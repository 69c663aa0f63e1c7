"""What visitors are told while a queue is full."""

import logging
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from django_vtqueue import QueueFull
from django_vtqueue.middleware import unavailable_when_full

MIDDLEWARE = ["django_vtqueue.middleware.QueueFullMiddleware"]


def full(request: HttpRequest) -> HttpResponse:
    raise QueueFull("emails", 1000, 60.0, 12.3)


async def full_async(request: HttpRequest) -> HttpResponse:
    raise QueueFull("emails", 1000, 60.0, 0.2)


def broken(request: HttpRequest) -> HttpResponse:
    raise KeyError("other")


def fine(request: HttpRequest, number: int) -> HttpResponse:
    return HttpResponse(f"number {number}")


@method_decorator(unavailable_when_full, name="dispatch")
class Full(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return full(request)


class FullAsync(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return await full_async(request)


urlpatterns = [
    path("full/", full),
    path("full-async/", full_async),
    path("broken/", broken),
    path("decorated/full/", unavailable_when_full(full)),
    path("decorated/full-async/", unavailable_when_full(full_async)),
    path("decorated/class/", Full.as_view()),
    path("decorated/view/", unavailable_when_full(FullAsync.as_view())),
    path("decorated/broken/", unavailable_when_full(broken)),
    path("decorated/fine/<int:number>/", unavailable_when_full(fine)),
]


def get(address: str, *, asgi: bool) -> Any:
    """Return the answer of a sync or of an async site."""
    if asgi:
        return async_to_sync(AsyncClient().get)(address)
    return Client().get(address)


@pytest.mark.parametrize("asgi", [False, True], ids=["wsgi", "asgi"])
@pytest.mark.parametrize("middleware", [MIDDLEWARE, []], ids=["middleware", "decorator"])
@pytest.mark.parametrize(("name", "seconds"), [("full", 13), ("full-async", 1), ("class", 13), ("view", 1)])
@override_settings(ROOT_URLCONF=__name__)
def test_a_full_queue_is_503(
    caplog: pytest.LogCaptureFixture, asgi: bool, middleware: list[str], name: str, seconds: int
) -> None:
    """With the seconds until another try, rounded up, and one warning in the log, which is mailed to no one."""
    with override_settings(MIDDLEWARE=middleware), caplog.at_level(logging.WARNING, "django.request"):
        address = f"/{name}/" if middleware and name not in ("class", "view") else f"/decorated/{name}/"
        response = get(address, asgi=asgi)
    assert response.status_code == 503
    assert response.headers["Retry-After"] == str(seconds)
    assert response.content.decode() == f"Too busy. Try again in {seconds} second{'s' if seconds > 1 else ''}."
    [record] = [record for record in caplog.records if record.name == "django.request"]
    assert record.levelname == "WARNING"
    assert "Queue 'emails' is full: 1,000 jobs wait." in record.getMessage()


@pytest.mark.parametrize("asgi", [False, True], ids=["wsgi", "asgi"])
@pytest.mark.parametrize("address", ["/broken/", "/decorated/broken/"])
@override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=MIDDLEWARE)
def test_other_errors_go_through(asgi: bool, address: str) -> None:
    """They are errors of the view, as without it."""
    with pytest.raises(KeyError):
        get(address, asgi=asgi)


@override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=MIDDLEWARE)
def test_what_works_is_left_alone() -> None:
    """A decorated view gets its arguments and gives its answer."""
    assert Client().get("/decorated/fine/7/").content == b"number 7"
    assert unavailable_when_full(fine).__name__ == "fine"
