"""The test project as a process of its own sees it: what a test of processes varies comes from the environment."""

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, INSTALLED_APPS, TASKS, env

DEBUG = env.bool("VTQUEUE_TEST_DEBUG", default=False)
DATABASES["default"].update(env.json("VTQUEUE_TEST_CONNECTION", default={}))
DATABASES["default"]["OPTIONS"]["timeout"] = env.float("VTQUEUE_TEST_TIMEOUT", default=20)
INSTALLED_APPS += env.list("VTQUEUE_TEST_APPS", default=[])
LOGGING = env.json("VTQUEUE_TEST_LOGGING", default={})
TASKS["default"]["QUEUES"] = env.list("VTQUEUE_TEST_QUEUES", default=[])
