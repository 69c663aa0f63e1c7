"""People who log in to the admin."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client


@pytest.fixture
def staff(client: Client) -> Callable[..., Client]:
    """Return a function that logs in a user who has these permissions of the app, and no others."""

    def log_in(*permissions: str) -> Client:
        user = User.objects.create_user("staff", is_staff=True)
        found = Permission.objects.filter(content_type__app_label="vtqueue", codename__in=permissions)
        assert len(found) == len(permissions)
        user.user_permissions.set(found)
        client.force_login(user)
        return client

    return log_in
