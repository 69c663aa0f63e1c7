"""The test project as a process of its own sees it: what a test of processes varies comes from the environment.

Without the admin and its pages: a worker starts a sixth sooner.
"""

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, TASKS, env
from tests.settings import INSTALLED_APPS as EVERY_APP

PAGES = ("django.contrib.admin", "django.contrib.messages", "django.contrib.sessions")

DEBUG = env.bool("VTQUEUE_TEST_DEBUG", default=False)
FILE = {**DATABASES["default"]}
for given in ("VTQUEUE_TEST_SERVER", "VTQUEUE_TEST_CONNECTION"):
    DATABASES["default"].update(env.json(given, default={}))
for database in (FILE, DATABASES["default"]):
    if database["ENGINE"].endswith("sqlite3"):
        database["OPTIONS"]["timeout"] = env.float("VTQUEUE_TEST_TIMEOUT", default=20)
if other := env.json("VTQUEUE_TEST_OTHER", default={}):
    DATABASES["other"] = {**FILE, **other}
INSTALLED_APPS = [*(app for app in EVERY_APP if app not in PAGES), *env.list("VTQUEUE_TEST_APPS", default=[])]
LOGGING = env.json("VTQUEUE_TEST_LOGGING", default={})
TASKS["default"]["QUEUES"] = env.list("VTQUEUE_TEST_QUEUES", default=[])
ROOT_URLCONF = "tests.processes.settings"  # a module without pages
urlpatterns: list[object] = []
MIDDLEWARE: list[str] = []
