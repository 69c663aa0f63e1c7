"""A process that publishes the same keys as its rivals: ``python -m tests.faults.rival ROUNDS KEYS FOLDER RIVALS``.

All begin each round together. For each it prints a digest of the keys, and of the ids that it was given for them.
"""

import os
import random
import sys
import time
from hashlib import sha256
from pathlib import Path

import django

if __name__ == "__main__":
    django.setup()
    from django.db import transaction

    from django_vtqueue import Queue

    rounds, count, folder, rivals = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    queue, chance = Queue("rivals"), random.Random()
    for number in range(rounds):
        (folder / f"{number}-{os.getpid()}").touch()
        while len(list(folder.glob(f"{number}-*"))) < rivals:
            time.sleep(0.001)
        keys = [f"{number}:{each}" for each in range(count)]
        chance.shuffle(keys)
        found = {}
        match number % 4:
            case 0:
                found = {key: queue.publish(key, unique_key=key) for key in keys}
            case 1:
                found = dict(zip(keys, queue.publish_many(keys, unique_key=str), strict=True))
            case 2:
                for start in range(0, count, 10):
                    # In one order: a server ends one of two transactions that wait for each other.
                    some = sorted(keys[start : start + 10])
                    with transaction.atomic():
                        found.update({key: queue.publish(key, unique_key=key) for key in some})
            case _:
                found = {key: queue.publish(key, unique_key=key, on_duplicate="replace") for key in keys}
        print(sha256(repr(sorted((key, found[key].hex) for key in keys)).encode()).hexdigest())
