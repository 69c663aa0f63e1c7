"""A process that publishes for a while, as a web server would: ``python -m tests.processes.publisher SECONDS FOLDER``.

It prints the id of each job; an error ends it with a traceback.
"""

import sys
import time

import django

if __name__ == "__main__":
    django.setup()
    from django_vtqueue import enqueue_many
    from tests.project.tasks import sign

    seconds, folder = float(sys.argv[1]), sys.argv[2]
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for result in [sign.enqueue(folder), *enqueue_many(sign, [((folder,), {})] * 3)]:
            print(result.id)
        time.sleep(0.005)
