"""Publishes jobs and notes each that it relies on: ``python -m tests.faults.publisher COUNT FOLDER``."""

import os
import sys

import django

if __name__ == "__main__":
    django.setup()
    from django_vtqueue import enqueue_many
    from tests.faults.writes import promise
    from tests.project.tasks import sign

    count, folder = int(sys.argv[1]), sys.argv[2]
    log = os.open(os.environ["VTQUEUE_DISK_LOG"], os.O_WRONLY | os.O_APPEND)
    for _ in range(count // 4):
        for result in [sign.enqueue(folder), *enqueue_many(sign, [((folder,), {})] * 3)]:
            promise(log, result.id.replace("-", ""))
