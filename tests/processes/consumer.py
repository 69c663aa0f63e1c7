"""A process in ``Queue.run``: writes each payload to a file; with the payload ``hold`` it waits for a file ``go``.

With ``fork`` and a way to leave the handler it forks, and writes what became of the forked process to a file."""

import sys
from pathlib import Path

import django


def main(folder: Path) -> None:
    django.setup()
    from django_vtqueue import ClaimedJob, Queue
    from tests.project.forks import fork_and_leave
    from tests.project.tasks import wait_for_file

    def handle(job: ClaimedJob) -> None:
        with (folder / "handled").open("a") as file:
            file.write(f"{job.payload}\n")
        if job.payload == "hold":
            wait_for_file(folder / "go")
        verb, _, how = str(job.payload).partition(" ")
        if verb == "fork":
            (folder / how).write_text(str(fork_and_leave(how)))

    Queue("consumed").run(handle)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
