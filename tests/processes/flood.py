"""A process that publishes as fast as it can: ``python -m tests.processes.flood QUEUE SECONDS``.

It says how many were stored, and how many were refused.
"""

import sys
import time

import django

if __name__ == "__main__":
    django.setup()
    from django_vtqueue import QueueFull
    from tests.project.tasks import nap

    task, stored, refused = nap.using(queue_name=sys.argv[1]), 0, 0
    print("began")
    end = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end:
        try:
            task.enqueue(0.002)
            stored += 1
        except QueueFull:
            refused += 1
            time.sleep(0.001)
    print(f"stored {stored}, refused {refused}")
