"""The settings of the README's quickstart, on a database in the folder of a run."""

import django
import environ

env = environ.Env()

FOLDER = env.path("VTQUEUE_BENCH_FOLDER")

SECRET_KEY = "not secret: benchmarks only"
USE_TZ = True

INSTALLED_APPS = [
    *(["django_tasks"] if django.VERSION < (6, 0) else []),
    "django_vtqueue",
    "benchmarks.app",
]

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": FOLDER("db.sqlite3"),
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    },
}

TASKS = {
    "default": {
        "BACKEND": "django_vtqueue.backend.VTQueueBackend",
        "QUEUES": [],
        # Bells of its own: those that other programs have left behind are not part of what is measured.
        "OPTIONS": {"doorbells": FOLDER("bells"), **env.json("VTQUEUE_BENCH_OPTIONS", default={})},
    },
}
