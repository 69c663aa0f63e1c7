"""``vtqueue locktest``: whether several hosts may share a SQLite file in a folder."""

import os
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError
from django.db import connections

from ...backend import VTQueueBackend
from ...engines.sqlite.file_checks import file_of
from ...engines.sqlite.hosts import Failed, Hosts
from ...engines.sqlite.mounts import mount_of, store_result

HELP = (
    "Tests whether several hosts may share a SQLite file in a folder: locks, caches, journals, clocks. Start it on all "
    "of them at once. The project's own database is not touched."
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("target", metavar="PATH|ALIAS", help="the folder, or the alias of the database in it")
    parser.add_argument("--hosts", type=int, default=2, metavar="N", help="how many hosts take part (default: 2)")
    parser.add_argument(
        "--wait", type=float, default=300.0, metavar="S", help="wait so long for the others (default: 300)"
    )


def run(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Test the folder together with the other hosts; yield a line for each test that has passed."""
    from ...engines.sqlite import locktest  # Unix only

    folder, count = folder_of(options["target"]), options["hosts"]
    if count < 2:
        raise CommandError(f"--hosts is {count}, but must be 2 or more: there is nothing to test between fewer.")
    yield f"{folder} on {mount_of(folder) or 'an unknown file system'}; waiting for {count} hosts, this one included"
    try:
        hosts = Hosts(folder)
        try:
            try:
                hosts.meet(count, options["wait"])
            except Failed as error:
                raise CommandError(f"{error}. Nothing was tested.") from error
            yield f"hosts: {', '.join(hosts.names.values())}"
            yield from locktest.run(hosts)
            hosts.step(
                hosts.id == min(hosts.names), lambda: store_result(folder, [*hosts.names.values()], hosts.places)
            )
        finally:
            hosts.leave()
    except (Failed, OSError) as error:
        raise CommandError(f"{error}\nHosts must not share a SQLite file in {folder}.") from error
    yield "passed: SQLite's locks hold between these hosts, as the folder is mounted on them now"


def folder_of(target: str) -> str:
    """Return the folder that is meant; raise CommandError if there is none."""
    path = os.path.dirname(os.path.realpath(file_of(target))) if target in connections else os.path.realpath(target)
    if not os.path.isdir(path):
        raise CommandError(f"{target} is neither the alias of a SQLite file nor a folder. Give one of them.")
    return path
