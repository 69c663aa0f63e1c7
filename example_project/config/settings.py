"""Settings of the example site; each default can be replaced by an environment variable or a line in `.env`."""

from datetime import timedelta
from pathlib import Path

import django
import environ

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env(
    DEBUG=(bool, True),
    SECRET_KEY=(str, "insecure: for this example only"),
    ALLOWED_HOSTS=(list, ["localhost", "127.0.0.1", "[::1]"]),
    DATABASE_PATH=(str, str(BASE_DIR / "db.sqlite3")),
)
env.read_env(BASE_DIR / ".env")

DEBUG = env("DEBUG")
SECRET_KEY = env("SECRET_KEY")
ALLOWED_HOSTS = env("ALLOWED_HOSTS")

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_vtqueue",
    "library",
    "shop",
    "sleepers",
]
if django.VERSION < (6, 0):
    INSTALLED_APPS += ["django_tasks"]  # the Tasks framework, which Django has built in from 6.0 on

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "config.urls"

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

# What a SQLite file needs that web processes and workers share:
# IMMEDIATE takes the write lock when a transaction begins, so that none fails half-way because another one wrote first;
# WAL lets readers read while one process writes; NORMAL syncs at checkpoints, which WAL makes safe against corruption.
# Opening the file and setting it up so takes as long as a short job: the connection is kept.
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": env("DATABASE_PATH"),
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    },
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

TASKS = {
    "default": {
        "BACKEND": "django_vtqueue.backend.VTQueueBackend",
        "QUEUES": ["default", "index", "digests", "previews", "orders"],
        "OPTIONS": {
            "visibility_timeout": 60,
            # Reading one file takes milliseconds: a job hidden for ten seconds has lost its worker.
            "queue_options": {
                "index": {"visibility_timeout": 10},
                # Most previews take a tenth of a second, a few take many: these are begun elsewhere as well.
                "previews": {"visibility_timeout": 0.5, "overflow": env.bool("OVERFLOW", default=True), "copies": 3},
                # An order is worth many attempts, the first ones at once.
                "orders": {"visibility_timeout": 10, "max_attempts": 20, "backoff": 0.5},
            },
        },
    },
}

# The shop waits for days. Its demo lets a day pass in a moment, and has its bank and its mail server take theirs.
SHOP_DAY = timedelta(seconds=env.float("SHOP_DAY", default=86_400))
SHOP_LATENCY = env.float("SHOP_LATENCY", default=0)  # seconds

TIME_ZONE = "UTC"
STATIC_URL = "static/"
MEDIA_ROOT = Path(env("DATABASE_PATH")).parent / "media"
