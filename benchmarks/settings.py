"""The settings of the README's quickstart, on a database in the folder of a run."""

import django
import environ

env = environ.Env()

FOLDER = env.path("VTQUEUE_BENCH_FOLDER")

# The admin only where its pages are measured: it is no part of a bare worker's memory and start.
ADMIN = env.bool("VTQUEUE_BENCH_ADMIN", default=False)

# Another load, for another version of the package.
APP = env.str("VTQUEUE_BENCH_APP", default="benchmarks.app")

SECRET_KEY = "not secret: benchmarks only"
ALLOWED_HOSTS = ["testserver"]
USE_TZ = True

INSTALLED_APPS = [
    *(["django_tasks"] if django.VERSION < (6, 0) else []),
    "django_vtqueue",
    APP,
]
if ADMIN:
    INSTALLED_APPS += [f"django.contrib.{app}" for app in ("admin", "auth", "contenttypes", "messages", "sessions")]
    ROOT_URLCONF = "benchmarks.urls"
    STATIC_URL = "/static/"
    MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ]
    CONTEXT = ["template.context_processors.request", "contrib.auth.context_processors.auth"]
    CONTEXT += ["contrib.messages.context_processors.messages"]
    TEMPLATES = [
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {"context_processors": [f"django.{name}" for name in CONTEXT]},
        },
    ]

# Of the benchmark of PostgreSQL, which starts a server.
SERVER = env.json("VTQUEUE_BENCH_DATABASE", default=None)
DATABASES = {
    "default": SERVER
    or {
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
