"""``vtqueue leases``: who is the leader of what."""

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError

from ...backend import VTQueueBackend
from ...core.names import LEASE
from ...engines import engine_for
from ...inspection.holdings import Holding, holdings
from ..output import add_json, ago, as_json, table
from .slots import ends, holding

HELP = "Lists leases: who is the leader, with which token, since when, and when its lease ends if it is not renewed."


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a lease (default: all)")
    add_json(parser)


def run(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Show a line for each lease, or a JSON list."""
    with engine_for(backend.database).snapshot() as now:
        found = {each.name: each for each in holdings(backend.database, now, LEASE)}
    if unknown := [name for name in options["names"] if name not in found]:
        raise CommandError(f"There is no lease {', '.join(unknown)}. Leases: {', '.join(found) or 'none'}.")
    chosen = [found[name] for name in options["names"] or found]
    if options["json"]:
        yield as_json([described(each) for each in chosen])
    elif chosen:
        titles = ("lease", "holder", "token", "since", "lease ends", "")
        yield from table([titles, *(row(each, now) for each in chosen)])
    else:
        yield "No lease was acquired in this database yet."


def row(each: Holding, now: int) -> list[Any]:
    """Return the columns of a lease."""
    since = "" if each.since is None else ago(each.since, now)
    return [each.name, each.holder or "(free)", each.token, since, ends(each, now), each.remark]


def described(each: Holding) -> dict[str, Any]:
    """Return what a program reads of a lease."""
    return {"lease": each.name, "ttl": each.job.lease_us / 1_000_000, **holding(each)}
