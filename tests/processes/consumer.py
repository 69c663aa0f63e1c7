"""A process in ``Queue.run``: writes each payload to a file; with the payload ``hold`` it waits for a file ``go``."""

import sys
from pathlib import Path

import django


def main(folder: Path) -> None:
    django.setup()
    from django_vtqueue import ClaimedJob, Queue
    from tests.project.tasks import wait_for_file

    def handle(job: ClaimedJob) -> None:
        with (folder / "handled").open("a") as file:
            file.write(f"{job.payload}\n")
        if job.payload == "hold":
            wait_for_file(folder / "go")

    Queue("consumed").run(handle)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
