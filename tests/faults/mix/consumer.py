"""A process that serves queues without ``vtworker``: ``python -m tests.faults.mix.consumer``.

Two threads are in ``Queue.run``, one with a long lease and one with a short one; a third one claims for itself. With
a name, ``... consumer NAME``, it only is in ``Queue.run`` of that queue.
"""

import sys
import threading
import time

import django

from ..words import instant

ASK = 0.1  # seconds


def claim_for_ever() -> None:
    """Claim payloads, keep their leases up by ``extend``, and end what is still held."""
    from django.db import DatabaseError, close_old_connections

    from django_vtqueue import LeaseLost, Queue

    from ..inside import worker_of
    from .journal import journaled
    from .kinds import CLAIMED, SHORT_LEASE

    queue = Queue(CLAIMED, visibility_timeout=SHORT_LEASE)
    while True:
        try:
            job = queue.claim()
            if job is None:
                time.sleep(ASK)
                continue
            with journaled("raw", job.id.hex, worker_of(job), job.attempt) as run:
                run.alive(instant(job.visible_at))
                for _ in range(round(job.payload["seconds"] / (SHORT_LEASE / 6))):
                    time.sleep(SHORT_LEASE / 6)
                    job.extend()
                    run.alive(instant(job.visible_at))
                job.ack()
        except LeaseLost:
            continue
        except DatabaseError:
            close_old_connections()


def main(names: list[str]) -> None:
    from django_vtqueue import Queue

    from .kinds import CONSUMED, LONG_LEASE, QUICK, SHORT_LEASE
    from .tasks import handle

    def serve(name: str, lease: float) -> None:
        Queue(name, visibility_timeout=lease).run(handle)

    served = [(name, LONG_LEASE) for name in names] or [(CONSUMED, LONG_LEASE), (QUICK, SHORT_LEASE)]
    for queue in served:
        threading.Thread(target=serve, args=queue, daemon=True).start()
    print("ready", flush=True)
    threading.Event().wait() if names else claim_for_ever()


if __name__ == "__main__":
    django.setup()
    main(sys.argv[1:])
