"""Wagtail: its tasks are those of the backport's decorator, and run here as any others."""

from pathlib import Path

from .projects import Client

SETTINGS = """
INSTALLED_APPS = [
    "django_tasks", "wagtail.users", "wagtail.documents", "wagtail.images", "wagtail.search", "wagtail.admin",
    "wagtail", "modelcluster", "taggit", "modelsearch", "django.contrib.admin", "django.contrib.sessions",
    "django.contrib.messages", "django.contrib.staticfiles", *INSTALLED_APPS,
]
WAGTAIL_SITE_NAME, WAGTAILADMIN_BASE_URL = "tests", "http://testserver"
ROOT_URLCONF = "urls"
STATIC_URL, LANGUAGE_CODE = "static/", "en"
SILENCED_SYSTEM_CHECKS = ["admin.E403", "admin.E404", "admin.E408", "admin.E409", "admin.E410", "vtqueue.W017"]
# The tables are made at once: its hundreds of migrations take a minute.
MIGRATION_MODULES = dict.fromkeys(
    f"wagtail{name}" for name in ("users", "docs", "images", "search", "admin", "core")
) | dict.fromkeys(("taggit", "modelsearch"))
TASKS["default"]["OPTIONS"] = {"queue_options": {"default": {"max_attempts": 2}}}
"""
URLS = """
from django.urls import include, path
urlpatterns = [path("cms/", include("wagtail.admin.urls"))]
"""
SAVE = """
from wagtail.models import Locale, Page
from django_vtqueue.models import Job
Locale.objects.create(language_code="en")
Page.add_root(title="Root").add_child(instance=Page(title="News"))
print(list(Job.objects.values_list("task_path", "max_attempts")))
"""


def test_its_tasks_run(tmp_path: Path) -> None:
    """What the save of a page enqueues is run; the options of its queue hold for it."""
    project = Client(tmp_path, SETTINGS)
    project.write("urls.py", URLS)
    said = project.manage("migrate", "-v0", "--run-syncdb")
    assert said.startswith("exit 0"), said
    said = project.python(SAVE)
    assert "('wagtail.tasks.update_reference_index_task', 2)" in said, said
    said = project.manage("vtworker", "--drain")
    assert said.startswith("exit 0"), said
    assert "ok    wagtail.tasks.update_reference_index_task" in said
    assert "dead " not in said, said
