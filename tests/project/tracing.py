"""An app whose receiver of ``task_started`` hangs for some jobs, as a tracing exporter without a timeout would."""

import time
from typing import Any

from django.apps import AppConfig


class Tracing(AppConfig):
    name = "tests.project.tracing"

    def ready(self) -> None:
        from django_vtqueue.tasks.compat import task_started

        task_started.connect(hang, weak=False)


def hang(sender: Any, task_result: Any, **kwargs: Any) -> None:
    if task_result.args[:1] == ["HANG"]:
        time.sleep(60)
