"""What the tests of dead letters in the admin share."""

import re
from typing import Any

from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from django_vtqueue.core import clock
from django_vtqueue.models import DeadLetter

from .test_admin import HOUR, letter


def shown(client: Client, view: str, *arguments: Any, **query: str) -> str:
    response = client.get(reverse(f"admin:vtqueue_deadletter_{view}", args=arguments), query)
    assert response.status_code == 200
    return response.content.decode()


def send(client: Client, view: str, *arguments: Any, **data: Any) -> HttpResponse:
    url = reverse(f"admin:vtqueue_deadletter_{view}", args=arguments)
    return client.post(url, data, follow=True)  # type: ignore[return-value]


def group(fingerprint: str, size: int, **values: Any) -> list[DeadLetter]:
    now = clock.now()
    return [letter(fingerprint=fingerprint, died_at=now - number * HOUR, **values) for number in range(size)]


def criteria_in(html: str) -> str:
    [value] = re.findall(r'name="criteria" value="([^"]*)"', html)
    return value.replace("&quot;", '"')
