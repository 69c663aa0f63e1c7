"""A process that handles raw jobs by ``Queue.run``: ``python -m tests.processes.consumer FOLDER [HANDLER]``.

It says ``ready``, and runs each job until there is a file ``go`` after a file named by the job was made; or by another
handler, given by its path.
"""

import sys
from pathlib import Path

import django

if __name__ == "__main__":
    django.setup()
    from django.utils.module_loading import import_string

    from django_vtqueue import ClaimedJob, Queue
    from tests.project.tasks import wait_for_file

    folder = Path(sys.argv[1])

    def handler(job: ClaimedJob) -> None:
        (folder / f"{job.payload}-{job.claim_number}").touch()
        wait_for_file(folder / "go")

    print("ready")
    Queue("raw").run(import_string(sys.argv[2]) if sys.argv[2:] else handler)
