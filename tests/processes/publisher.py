"""A process that publishes so many jobs, as a web server would: ``python -m tests.processes.publisher COUNT FOLDER``.

It prints the id of each job, or notes in the log of a disk that it relies on it; an error ends it with a traceback.
"""

import os
import sys

import django

if __name__ == "__main__":
    django.setup()
    from django_vtqueue import enqueue_many
    from tests.faults.writes import promise
    from tests.project.tasks import sign

    count, folder = int(sys.argv[1]), sys.argv[2]
    disk = os.environ.get("VTQUEUE_DISK_LOG")
    log = os.open(disk, os.O_WRONLY | os.O_APPEND) if disk else None
    for _ in range(count // 4):
        for result in [sign.enqueue(folder), *enqueue_many(sign, [((folder,), {})] * 3)]:
            print(result.id)
            if log is not None:
                promise(log, result.id.replace("-", ""))
