"""The test project as a browser sees it: with its static files, and the strictest content security policy."""

from tests.processes.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS, MIDDLEWARE, ROOT_URLCONF  # noqa: F401

INSTALLED_APPS += ["django.contrib.staticfiles", "tests.browser"]
MIDDLEWARE = ["tests.browser.middleware.strict", *MIDDLEWARE]
STATIC_URL = "/static/"
