"""An app whose code declares what a test says: VTQUEUE_TEST_RECURRING is a list of the arguments of @recurring."""

from django_vtqueue import recurring, task
from tests.settings import env


@task
def tick(*args: object) -> None: ...


for arguments in env.json("VTQUEUE_TEST_RECURRING", default=[]):
    recurring(*filter(None, [arguments.pop("cron", None)]), **arguments)(tick)
