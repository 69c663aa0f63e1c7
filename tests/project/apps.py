from django.apps import AppConfig


class ProjectConfig(AppConfig):
    name = "tests.project"
    default_auto_field = "django.db.models.BigAutoField"
