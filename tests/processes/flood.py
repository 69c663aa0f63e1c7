"""A process that publishes as fast as it can: ``python -m tests.processes.flood MOST REFUSALS``.

It ends when it has stored so many jobs, or was refused so many times, and says how many that were.
"""

import sys
import time

import django

if __name__ == "__main__":
    django.setup()
    from django_vtqueue import QueueFull
    from tests.project.tasks import nap

    most, refusals = map(int, sys.argv[1:])
    stored = refused = 0
    while stored < most and refused < refusals:
        try:
            nap.enqueue(0.002)
            stored += 1
        except QueueFull:
            refused += 1
            time.sleep(0.001)
    print(f"stored {stored}, refused {refused}")
