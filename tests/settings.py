"""The test project: a database in memory, or, for tests of several processes, the file named by VTQUEUE_TEST_DB."""

import django
import environ

env = environ.Env()

SECRET_KEY = "not secret: tests only"
DEBUG = False
ALLOWED_HOSTS = ["*"]
USE_TZ = True
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # the usual ones are slow on purpose
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    *(["django_tasks"] if django.VERSION < (6, 0) else []),
    "django_vtqueue",
    "tests.project",
]

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": env.str("VTQUEUE_TEST_DB", default=":memory:"),
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
        "OPTIONS": env.json("VTQUEUE_TEST_OPTIONS", default={}),
    },
}
