"""``python -m benchmarks.plain fill N``: enqueue many jobs at once; ``enqueue N``: one by one, and print the median."""

import sys
import time
from statistics import median

import django


def main() -> None:
    django.setup()
    from django_vtqueue import enqueue_many

    from .tasks import noop

    what, count = sys.argv[1], int(sys.argv[2])
    if what == "fill":
        for begun in range(0, count, 10_000):
            enqueue_many(noop, [((), {})] * min(10_000, count - begun))
        return
    times = []
    for number in range(count + 100):
        began = time.perf_counter()
        noop.enqueue()
        if number >= 100:
            times.append(time.perf_counter() - began)
    print(median(times))


if __name__ == "__main__":
    main()
