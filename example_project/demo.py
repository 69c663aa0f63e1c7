"""Kill a worker in mid-run and count what is lost: nothing.

A fresh site, the installed Django package and three broken files to index, two `vtworker` processes of which one is
killed, one upload that overtakes the rest; then a summary, every number of it read from the database.
"""
# ruff: noqa: E402  (models can be imported only after django.setup)

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import django

HERE = Path(__file__).resolve().parent
FOLDER = Path(os.environ.get("DEMO_FOLDER", HERE))
DATABASE = FOLDER / "db.sqlite3"
LOG = FOLDER / "demo.log"

os.environ["DATABASE_PATH"] = str(DATABASE)  # the file that fresh_site() removes, and no other
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
django.setup()

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.db.models import Max, Min, QuerySet
from django.test import Client
from django.urls import reverse
from library.models import Digest, Document
from library.search import find
from library.tasks import digest

from django_vtqueue.models import DeadLetter, Job, WorkerProcess

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None

BROKEN = sorted(str(path) for path in (HERE / "broken").iterdir())
KILL_AFTER = 300  # documents: enough to be in mid-run, with most of the files still waiting
PATIENCE = 90  # seconds to wait for anything before something must be wrong
UPLOAD = SimpleUploadedFile("lighthouse.txt", b"The lighthouse keeper could not wait for three thousand other files.\n")
QUERY = "transaction atomic"

T = TypeVar("T")

index_jobs = Job.objects.filter(queue_name="index")
index_letters = DeadLetter.objects.filter(queue_name="index")


def main() -> int:
    fresh_site()
    call_command("index", Path(django.__file__).parent, HERE / "broken")
    digest.using(run_after=timedelta(seconds=5)).enqueue()
    enqueued = paths(index_jobs)

    run = Run(total=len(enqueued) + 1)
    try:
        victim, _ = run.start_worker(), run.start_worker()
        run.wait_until(lambda: Document.objects.count() >= KILL_AFTER, f"{KILL_AFTER} files are indexed")
        held = run.kill_in_mid_run(victim)
        upload()
        run.start_worker()
        run.wait_until(lambda: not Job.objects.filter(finished_at=None).exists(), "only dead letters are left")
    finally:
        run.stop()

    enqueued |= paths(index_jobs.filter(priority=100))
    lost = enqueued - set(Document.objects.values_list("path", flat=True)) - paths(index_letters)
    summarise(victim.pid, held, lost)
    return report(problems(lost))


def fresh_site() -> None:
    """Begin with an empty database and nobody but an administrator."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{DATABASE}{suffix}").unlink(missing_ok=True)
    shutil.rmtree(settings.MEDIA_ROOT / "uploads", ignore_errors=True)
    LOG.unlink(missing_ok=True)
    call_command("migrate", verbosity=0)
    get_user_model().objects.create_superuser("admin", password="admin")


def upload() -> None:
    """Upload a document through the site's own view, as a user does."""
    response = Client().post(reverse("upload"), {"file": UPLOAD}, headers={"host": "localhost"})
    if response.status_code != 302:
        raise SystemExit(f"The upload was answered with {response.status_code}.")


class Run:
    """The workers of this demo, and how far they are."""

    def __init__(self, total: int, unit: str = "files", done: Callable[[], int] | None = None) -> None:
        self.workers: list[subprocess.Popen[bytes]] = []
        self.progress, self.done = Progress(total, unit), done or settled

    def start_worker(self, *arguments: str) -> subprocess.Popen[bytes]:
        with LOG.open("ab") as log:
            command = [sys.executable, str(HERE / "manage.py"), "vtworker", "--no-reload", *arguments]
            self.workers.append(subprocess.Popen(command, stdout=log, stderr=log))
        return self.workers[-1]

    def kill_in_mid_run(self, worker: subprocess.Popen[bytes]) -> list[object]:
        """Kill a worker while it runs jobs; return their ids."""
        process = self.wait_until(lambda: WorkerProcess.objects.filter(pid=worker.pid).first(), "the worker is known")
        running = Job.objects.filter(state="RUNNING", worker_id=process.worker_id, attempts__gt=0)
        held = self.wait_until(lambda: frozen(worker, running), "the worker runs a job")
        worker.kill()
        worker.wait()
        self.progress.say(f"Killed worker {worker.pid} by SIGKILL in mid-run; jobs it was running: {len(held)}.")
        return held

    def wait_until(self, condition: Callable[[], T], what: str) -> T:
        """Return what `condition` returns as soon as that is true."""
        deadline = time.monotonic() + PATIENCE
        while not (value := condition()):
            if time.monotonic() > deadline or self.somebody_left():
                raise SystemExit(f"Gave up waiting until {what}; the workers' log is {LOG}")
            self.progress.show(self.done())
            time.sleep(0.02)
        self.progress.show(self.done())
        return value

    def somebody_left(self) -> bool:
        """Tell whether a worker ended that was not killed: it cannot have started, or has failed."""
        return any(worker.poll() not in (None, -signal.SIGKILL) for worker in self.workers)

    def stop(self) -> None:
        """End the workers as a service manager does: SIGTERM lets them finish what they hold."""
        self.progress.close()
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            try:
                worker.wait(timeout=30)
            except subprocess.TimeoutExpired:
                worker.kill()


def frozen(worker: subprocess.Popen[bytes], running: QuerySet[Job]) -> list[object]:
    """Stop a process and return the ids of the jobs it runs; if there are none, let it go on.

    Without the stop it might have finished them between the look and the kill.
    """
    os.kill(worker.pid, signal.SIGSTOP)
    os.waitpid(worker.pid, os.WUNTRACED)
    if not (held := list(running.values_list("pk", flat=True))):
        os.kill(worker.pid, signal.SIGCONT)
    return held


class Progress:
    """A bar where tqdm is installed and somebody looks on, else a line a second."""

    def __init__(self, total: int, unit: str) -> None:
        self.total, self.unit = total, unit
        self.bar = tqdm(total=total, unit=f" {unit}") if tqdm and sys.stderr.isatty() else None
        self.shown_at = time.monotonic()

    def show(self, done: int) -> None:
        if self.bar is not None:
            self.bar.update(done - self.bar.n)
        elif time.monotonic() >= self.shown_at + 1:
            self.shown_at = time.monotonic()
            self.say(f"{done:,} of {self.total:,} {self.unit}")

    def say(self, text: str) -> None:
        (print if self.bar is None else self.bar.write)(text)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def settled() -> int:
    return Document.objects.count() + index_letters.count()


def paths(rows: QuerySet[Job] | QuerySet[DeadLetter]) -> set[str]:
    """The files that jobs are about: the first argument of their task."""
    return set(rows.values_list("payload__args__0", flat=True))


def problems(lost: set[str]) -> Iterable[str]:
    """Whatever is not as this demo promises."""
    if lost:
        yield f"{len(lost)} files are neither indexed nor dead letters: {sorted(lost)[:3]}"
    if (dead := sorted(paths(index_letters))) != BROKEN:
        yield f"The dead letters should be the three broken files, but are {dead}"
    if Digest.objects.count() != 1:
        yield f"There should be one digest, but there are {Digest.objects.count()}"


def summarise(killed_pid: int, held: list[object], lost: set[str]) -> None:
    done = index_jobs.filter(state="SUCCESSFUL")
    again = done.filter(pk__in=held, attempts__gt=1)
    print()
    fact("indexed", f"{Document.objects.count():,} files, {jobs_per_second(done):,.0f} jobs/s")
    fact("worker killed", f"process {killed_pid}, by SIGKILL; jobs it was running: {len(held)}")
    fact("run again after it", f"{again.count()}")
    fact("upload", overtaking(done.get(priority=100)))
    for written in Digest.objects.all():
        fact("digest", f"{written}; scheduled, written at {written.written_at:%H:%M:%S} UTC")
    fact("dead letters", f"{index_letters.count()}")
    for letter in index_letters.order_by("died_at"):
        file = os.path.relpath(letter.args[0], HERE)
        print(f"    {file}: {letter.exception_class}: {letter.message}")
    fact("lost", f"{len(lost)}")
    fact("search", f'"{QUERY}"')
    for hit in find(QUERY, limit=2):
        print(f"    {hit}")


def jobs_per_second(done: QuerySet[Job]) -> float:
    span = done.aggregate(start=Min("started_at"), end=Max("finished_at"))
    return done.count() / (span["end"] - span["start"]).total_seconds()


def overtaking(urgent: Job) -> str:
    """Tell how soon a job was done, and how many it passed: enqueued before it, started after it."""
    milliseconds = (urgent.finished_at - urgent.enqueued_at).total_seconds() * 1000
    passed = index_jobs.filter(enqueued_at__lt=urgent.enqueued_at, started_at__gt=urgent.started_at)
    return f"indexed after {milliseconds:.0f} ms, ahead of {passed.count():,} files enqueued before it"


def fact(name: str, value: str) -> None:
    print(f"{name:<20}{value}")


def report(wrong: Iterable[str]) -> int:
    """Say how to open the site, or what is wrong; return the exit code."""
    if wrong := list(wrong):
        print("\nNOT AS PROMISED", *wrong, sep="\n    ")
        return 1
    python = os.path.relpath(sys.executable, HERE)
    print(f"""
Open the site, with a worker in a second terminal:
    cd {os.path.relpath(HERE)}
    {python} manage.py runserver    http://127.0.0.1:8000/ and http://127.0.0.1:8000/admin/ (admin, password admin)
    {python} manage.py vtworker""")
    return 0


if __name__ == "__main__":
    sys.exit(main())
