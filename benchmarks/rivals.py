"""Other queues on PostgreSQL, each measured by its own means: ``python benchmarks/rivals.py NAME DSN JOBS``.

It is run by the Python of an environment that has them (``benchmarks/postgresql.py`` makes it), on an empty database,
and prints as JSON the milliseconds of an enqueue, and how many jobs a second are enqueued at once and worked off. The
task does nothing, results are kept as the queue does by itself, and workers have what their documentation suggests for
speed: pgqueuer and procrastinate run jobs as coroutines, ten at a time or more; django-absurd claims a hundred at once.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any

ONE_BY_ONE = 300  # enqueues that are timed
SLICE = 1000  # jobs that are enqueued at once


def timed(enqueue: Callable[[], object]) -> float:
    """Return the median of the milliseconds of a call."""
    times = []
    for _ in range(ONE_BY_ONE):
        began = time.perf_counter()
        enqueue()
        times.append((time.perf_counter() - began) * 1000)
    return median(times)


def rate(jobs: int, act: Callable[[], object]) -> float:
    """Return how many jobs a second a call stands for."""
    began = time.perf_counter()
    act()
    return jobs / (time.perf_counter() - began)


def procrastinate(dsn: str, jobs: int) -> dict[str, float]:
    import procrastinate

    app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=dsn))

    @app.task
    async def noop() -> None:
        pass

    with app.open():
        app.schema_manager.apply_schema()
        one = timed(noop.defer)
        many = rate(jobs, lambda: [noop.batch_defer(*[{}] * SLICE) for _ in range(jobs // SLICE)])

    async def drain() -> None:
        with app.replace_connector(procrastinate.PsycopgConnector(conninfo=dsn)) as drained:
            async with drained.open_async():
                await drained.run_worker_async(wait=False, concurrency=10, install_signal_handlers=False)

    return {"one": one, "many": many, "drain": rate(jobs + ONE_BY_ONE, lambda: asyncio.run(drain()))}


def procrastinate_by_django(dsn: str, jobs: int) -> dict[str, float]:
    """Measure what a project calls whose app is ``procrastinate.contrib.django``: it uses Django's connection."""
    django(["procrastinate.contrib.django"])
    from procrastinate.contrib.django import app

    @app.task
    def noop() -> None:
        pass

    return {"one": timed(noop.defer)}


def pgqueuer(dsn: str, jobs: int) -> dict[str, float]:
    import psycopg
    from pgqueuer import PgQueuer
    from pgqueuer.db import PsycopgDriver
    from pgqueuer.queries import Queries
    from pgqueuer.types import QueueExecutionMode

    async def measure() -> dict[str, float]:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            driver = PsycopgDriver(connection)
            queries = Queries(driver)
            await queries.install()
            times = []
            for _ in range(ONE_BY_ONE):
                began = time.perf_counter()
                await queries.enqueue("noop", None)
                times.append((time.perf_counter() - began) * 1000)
            began = time.perf_counter()
            for _ in range(jobs // SLICE):
                await queries.enqueue(["noop"] * SLICE, [None] * SLICE, [0] * SLICE)
            many = jobs / (time.perf_counter() - began)
            queue = PgQueuer(driver)

            @queue.entrypoint("noop")
            async def noop(job: Any) -> None:
                pass

            began = time.perf_counter()
            await queue.qm.run(batch_size=100, mode=QueueExecutionMode.drain)
            drained = (jobs + ONE_BY_ONE) / (time.perf_counter() - began)
            return {"one": median(times), "many": many, "drain": drained}

    return asyncio.run(measure())


def django(apps: list[str], **settings: Any) -> None:
    """Set Django up with the database that VTQUEUE_BENCH_DATABASE has, and make the tables."""
    from django.conf import settings as configured
    from django.core.management import call_command

    databases = {"default": json.loads(os.environ["VTQUEUE_BENCH_DATABASE"])}
    configured.configure(SECRET_KEY="not secret", USE_TZ=True, INSTALLED_APPS=apps, DATABASES=databases, **settings)
    import django as framework

    framework.setup()
    call_command("migrate", verbosity=0)


def noop() -> None:
    """Do nothing; what django-tasks-db and django-qraft store is the path of this function."""


async def anoop() -> None:
    """Do nothing; what django-absurd stores is the path of this function."""


def django_tasks_db(dsn: str, jobs: int) -> dict[str, float]:
    django(["django_tasks_db"], TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}})
    import rivals  # this file, by the name under which the worker finds the task
    from django.core.management import call_command
    from django.tasks import task

    rivals.noop = task(rivals.noop)
    one = timed(rivals.noop.enqueue)
    for _ in range(jobs - ONE_BY_ONE):
        rivals.noop.enqueue()
    drain = lambda: call_command("db_worker", "--batch", "--no-startup-delay", verbosity=0)  # noqa: E731
    return {"one": one, "drain": rate(jobs, drain)}


def django_absurd(dsn: str, jobs: int) -> dict[str, float]:
    quiet = {"version": 1, "loggers": {"django_absurd": {"level": "WARNING"}}}  # not some lines for each job
    django(["django_absurd"], TASKS={"default": {"BACKEND": "django_absurd.backends.AbsurdBackend"}}, LOGGING=quiet)
    import rivals  # see above
    from django.core.management import call_command
    from django.db import connection
    from django.tasks import task

    rivals.anoop = task(rivals.anoop)
    one = timed(rivals.anoop.enqueue)
    for _ in range(jobs - ONE_BY_ONE):
        rivals.anoop.enqueue()

    def end_when_done() -> None:
        with connection.cursor() as cursor:
            while cursor.execute("SELECT 1 FROM absurd.t_default WHERE state <> 'completed' LIMIT 1").fetchone():
                time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    def drain() -> None:
        threading.Thread(target=end_when_done).start()
        call_command("absurd_worker", batch_size=100, verbosity=0)

    return {"one": one, "drain": rate(jobs, drain)}


Q_CLUSTER = {"name": "bench", "orm": "default", "workers": 2, "poll": 0.05, "timeout": 60, "retry": 120, "bulk": 10}


def drained(cluster: Any, jobs: int, left: Any) -> float:
    """Return how many jobs a second a cluster of Django-Q2's kind works off, until no rows are left."""
    from django.db import connections

    def drain() -> None:
        cluster.start()
        while left.exists():
            time.sleep(0.05)

    connections.close_all()
    try:
        return rate(jobs, drain)
    finally:
        cluster.stop()


def django_q2(dsn: str, jobs: int) -> dict[str, float]:
    django(["django.contrib.contenttypes", "django_q"], Q_CLUSTER=Q_CLUSTER)
    from django_q.cluster import Cluster
    from django_q.models import OrmQ
    from django_q.tasks import async_task

    one = timed(lambda: async_task("math.sqrt", 1))
    for _ in range(jobs - ONE_BY_ONE):
        async_task("math.sqrt", 1)
    return {"one": one, "drain": drained(Cluster(), jobs, OrmQ.objects.all())}


def django_qraft(dsn: str, jobs: int) -> dict[str, float]:
    cluster = {**Q_CLUSTER, "broker_class": "qraft.brokers.QraftOrmBroker"}
    django(["django.contrib.contenttypes", "django_q", "qraft"], Q_CLUSTER=cluster)
    from qraft.cluster import QraftCluster
    from qraft.iter import QraftIter
    from qraft.models import QraftTask
    from qraft.tasks import async_task

    one = timed(lambda: async_task("rivals.noop"))
    for _ in range(jobs - ONE_BY_ONE):
        async_task("rivals.noop")
    pace = drained(QraftCluster(), jobs, QraftTask.objects.exclude(status="succeeded"))
    at_once = QraftIter("rivals.noop")
    for _ in range(jobs):
        at_once.append()
    return {"one": one, "many": rate(jobs, at_once.run), "drain": pace}


RIVALS: dict[str, Callable[[str, int], dict[str, float]]] = {
    "procrastinate": procrastinate,
    "procrastinate, by Django's connection": procrastinate_by_django,
    "pgqueuer": pgqueuer,
    "django-tasks-db": django_tasks_db,
    "django-absurd": django_absurd,
    "django-q2": django_q2,
    "django-qraft": django_qraft,
}
# Of the jobs: by how fast they are.
SHARES = {"pgqueuer": 4, "django-tasks-db": 1 / 3, "django-q2": 1 / 6, "django-qraft": 1 / 6}
PACKAGES = ["procrastinate[django]>=3.10,<4", "pgqueuer[psycopg]>=1.6,<2", "django-tasks-db==0.13.*"]
PACKAGES += ["django-absurd==1.0.*", "django-q2==1.11.*", "django-qraft==1.4.*", "psycopg[binary]>=3.2"]


def measure(python: str, name: str, database: dict[str, Any], jobs: int) -> dict[str, float]:
    """Measure one of them in a process of that Python; raise RuntimeError with what it said if it failed."""
    dsn = f"host={database['HOST']} user={database['USER']} dbname={database['NAME']}"
    env = {**os.environ, "VTQUEUE_BENCH_DATABASE": json.dumps(database)}
    env.pop("DJANGO_SETTINGS_MODULE", None)
    jobs = round(jobs * SHARES.get(name, 1))
    done = subprocess.run([python, __file__, name, dsn, str(jobs)], env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    print(json.dumps(RIVALS[sys.argv[1]](sys.argv[2], int(sys.argv[3]))))
