"""The leases and time slots of the overview: who holds them. A row's own page has the history of its holders."""

from typing import NamedTuple
from uuid import UUID

from django.utils.safestring import SafeString

from ..core import clock
from ..core.humanize import duration
from ..core.names import LEASE
from ..inspection.holdings import Holding, holdings
from . import display
from .links import Pages, address

SHOWN = 100


class LeaseRow(NamedTuple):
    """A row as people read it; ``remark``: see Holding."""

    pk: UUID
    name: str
    url: str | None
    holder: str
    remark: str
    token: str
    since: SafeString | str
    left: str


def lease_rows(database: str, now: int, pages: Pages) -> tuple[list[LeaseRow], int]:
    """Return the rows to be shown, and how many are left out."""
    found = holdings(database, now)
    return [lease_row(each, now, pages) for each in found[:SHOWN]], max(len(found) - SHOWN, 0)


def lease_row(each: Holding, now: int, pages: Pages) -> LeaseRow:
    return LeaseRow(
        pk=each.job.pk,
        name=each.job.queue_name if each.kind == LEASE else f"{each.job.queue_name} {each.key}",
        url=address(pages.site, "job_change", each.job.pk),
        holder=each.holder,
        remark=each.remark,
        token=display.number(each.token),
        since="" if each.since is None else display.moment(clock.from_instant(each.since), duration(now - each.since)),
        left="" if each.until is None else duration(each.until - now),
    )
