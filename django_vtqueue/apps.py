from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class VTQueueConfig(AppConfig):
    name = "django_vtqueue"
    label = "vtqueue"
    verbose_name = _("Background jobs")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # They register the checks, and import the framework, which registers its own.
        from django.db.backends.signals import connection_created

        from . import database_checks  # noqa: F401
        from .engines.sqlite.opened import guard_connection

        connection_created.connect(guard_connection)
