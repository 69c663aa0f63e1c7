"""``vtqueue leases``: who is the leader of what."""

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from ...backend import VTQueueBackend
from ...core.humanize import duration
from ...core.names import LEASE
from ...engines import engine_for
from ...inspection.held import Holding, holdings
from ..output import add_json, ago, as_json, iso, table

HELP = "Lists leases: who is the leader, with which token, since when, and when its lease ends if it is not renewed."


def add_arguments(parser: ArgumentParser) -> None:
    add_json(parser)


def run(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Show a line for each lease, or a JSON list."""
    now, found = engine_for(backend.database).now(), holdings(backend.database, LEASE)
    if options["json"]:
        yield as_json([described(each) for each in found])
    elif found:
        yield from table([("lease", "holder", "token", "since", "lease ends"), *(row(each, now) for each in found)])
    else:
        yield "No lease was acquired in this database yet."


def row(each: Holding, now: int) -> list[Any]:
    """Return the columns of a lease."""
    if each.until is None:
        return [each.name, "(free)", each.token, "", ""]
    ends = f"in {duration(each.until - now)}" if each.until > now else ago(each.until, now)
    return [each.name, each.holder, each.token, ago(each.since or now, now), ends]


def described(each: Holding) -> dict[str, Any]:
    """Return what a program reads of a lease."""
    return {
        "lease": each.name,
        "holder": each.holder or None,
        "token": each.token,
        "since": iso(each.since),
        "until": iso(each.until),
        "ttl": each.job.lease_us / 1_000_000,
        "id": str(each.job.pk),
    }
