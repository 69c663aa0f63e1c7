"""Uses the package as installed from its wheel; .ci/wheel runs a copy of this outside the checkout."""

import sys
from importlib.metadata import files, version

import django
from django.conf import settings
from django.core.management import call_command

import django_vtqueue

assert django_vtqueue.__file__.startswith(sys.prefix), django_vtqueue.__file__
assert django_vtqueue.__version__ == version("django-vtqueue")

packaged = [str(file) for file in files("django-vtqueue") or []]
assert "django_vtqueue/py.typed" in packaged, packaged
assert any(name.startswith("django_vtqueue/migrations/0001") for name in packaged), packaged
assert not [name for name in packaged if name.startswith(("tests", "example_project"))], packaged

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=[
        "django.contrib.auth",
        "django.contrib.contenttypes",
        *(["django_tasks"] if django.VERSION < (6, 0) else []),
        "django_vtqueue",
    ],
    TASKS={"default": {"BACKEND": "django_vtqueue.backend.VTQueueBackend"}},
    USE_TZ=True,
)
django.setup()
call_command("check")
call_command("migrate", verbosity=0)
call_command("makemigrations", "vtqueue", check=True, verbosity=0)

queue = django_vtqueue.Queue("smoke")
queue.publish({"hello": "world"})
job = queue.claim()
assert job is not None
assert job.payload == {"hello": "world"}
queue.ack(job)
print(f"django-vtqueue {django_vtqueue.__version__} works as installed, on Django {django.get_version()}")
