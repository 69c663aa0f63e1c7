"""The settings of the shop, on the database file that a run makes."""

import django
import environ

env = environ.Env()

FOLDER = env.path("SCREENSHOTS_FOLDER")

SECRET_KEY = "not secret: pictures only"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "docs.screenshots.urls"
STATIC_URL = "/static/"
TIME_ZONE = "Europe/Berlin"
USE_TZ = True

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    *(["django_tasks"] if django.VERSION < (6, 0) else []),
    "django_vtqueue",
    "shop",
]

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
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
        "QUEUES": ["emails", "exports", "images", "payments", "reports"],
        "OPTIONS": {"doorbells": FOLDER("bells")},
    },
}
