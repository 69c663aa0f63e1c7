"""A full queue is no fault of the view or the visitor: 503, and the time after which it is worth another try.

``MIDDLEWARE = [..., "django_vtqueue.middleware.QueueFullMiddleware"]`` says so for all views, a decorator for one.
"""

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from asgiref.sync import iscoroutinefunction  # it knows Django's async views, too
from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin
from django.utils.log import log_response
from django.utils.translation import ngettext

from .exceptions import QueueFull

__all__ = [
    "QueueFullMiddleware",
    "unavailable_when_full",
]

View = TypeVar("View", bound=Callable[..., Any])


class QueueFullMiddleware(MiddlewareMixin):
    """Answers with 503 and ``Retry-After`` (whole seconds) where a view, sync or async, has raised QueueFull."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        return unavailable(request, exception) if isinstance(exception, QueueFull) else None


def unavailable_when_full(view: View) -> View:
    """Make one view, sync or async, answer with 503 and ``Retry-After`` where it raises QueueFull."""

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        try:
            return view(request, *args, **kwargs)
        except QueueFull as full:
            return unavailable(request, full)

    @wraps(view)
    async def answer_async(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        try:
            return await view(request, *args, **kwargs)
        except QueueFull as full:
            return unavailable(request, full)

    return cast(View, answer_async if iscoroutinefunction(view) else answer)


def unavailable(request: HttpRequest, full: QueueFull) -> HttpResponse:
    """Return the answer to a request that found a queue full."""
    seconds = max(math.ceil(full.retry_after), 1)
    text = ngettext("Too busy. Try again in %d second.", "Too busy. Try again in %d seconds.", seconds) % seconds
    response = HttpResponse(
        text, status=503, headers={"Retry-After": str(seconds)}, content_type="text/plain; charset=utf-8"
    )
    # A warning, once: Django would log each 503 as an error, and mail it to ADMINS.
    log_response(
        "%s: %s: %s", response.reason_phrase, request.path, full, response=response, request=request, level="warning"
    )
    return response
