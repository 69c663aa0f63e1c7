"""PostgreSQL: enqueueing, starting, draining and claiming, beside raw statements and beside other queues.

It starts a server of its own, with the settings of a new one, in a folder below ``/tmp``: the path of a socket is
short. The other queues are installed into an environment that goes with it; some of them need Python 3.12.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import postgresql

from . import rivals
from .figures import arguments, heading, show

NAME, RIVAL = "postgres", "rival"  # databases: of the queue, and of another one
# Of Django's options: none, and those by which statements are prepared, as psycopg does by itself for other queues.
WAYS: dict[str, dict[str, Any]] = {"": {}, ", prepared": {"server_side_binding": True, "prepare_threshold": 5}}


def main() -> None:
    given = arguments(
        __doc__,
        **{"jobs": (20_000, 5_000), "repeats": (3, 1), "spaced": (1000, 100)},
        **{"others": (1_000_000, 50_000), "crowd": (200_000, 0), "rivals": (3_000, 0)},
    )
    if not postgresql.binaries():
        print("\n12. PostgreSQL is not installed (apt-get install postgresql): nothing is measured", flush=True)
        return
    with postgresql.running() as server:
        settings = server.settings(NAME)
        os.environ["VTQUEUE_BENCH_DATABASE"] = json.dumps(settings)  # before Django is set up
        from django.core.management import call_command
        from django.db import connections

        from . import on_postgresql
        from .tools import FOLDER

        call_command("migrate", verbosity=0)
        with on_postgresql.raw() as connection:
            heading(f"12. PostgreSQL {connection.info.server_version // 10000}: synchronous_commit on, and off")
            python = environment(FOLDER / "rivals") if given.rivals else ""
            for durable in ("on", "off"):
                connection.execute(f"ALTER DATABASE {NAME} SET synchronous_commit = {durable}")
                found = {}
                for way, options in WAYS.items():
                    on_postgresql.connect_with(options)
                    found[durable + way] = on_postgresql.ours(given.jobs, given.repeats, durable + way)
                    on_postgresql.latency(given.spaced, durable + way)
                for name in rivals.RIVALS if given.rivals else ():
                    connection.execute(f"DROP DATABASE IF EXISTS {RIVAL} WITH (FORCE)")
                    connection.execute(f"CREATE DATABASE {RIVAL}")
                    connection.execute(f"ALTER DATABASE {RIVAL} SET synchronous_commit = {durable}")
                    theirs = rivals.measure(python, name, {**settings, "NAME": RIVAL}, given.rivals)
                    for how, own in found.items():
                        compare(name, own, theirs, how)
        on_postgresql.connect_with({})
        on_postgresql.others(given.others)
        if given.crowd:
            on_postgresql.crowd(given.crowd)
        connections.close_all()


def environment(folder: Path) -> str:
    """Make an environment that has the rivals; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = str(folder / "bin/python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", *rivals.PACKAGES], check=True)
    return python


def compare(name: str, found: dict[str, float], theirs: dict[str, float], how: str) -> None:
    """Show what the queue is to a rival."""
    show(f"{how}: enqueue, p50 (raw: {name})", found["one"], "ms", theirs["one"])
    if "many" in theirs:
        show(f"{how}: many at once (raw: {name})", found["many"], "/s", theirs["many"])
    if "drain" in theirs:
        show(f"{how}: drain (raw: {name})", found["drain"], "/s", theirs["drain"])


if __name__ == "__main__":
    main()
