"""The limits of the overview: those of a queue in words, and the keys for which jobs are parked."""

import json
from typing import NamedTuple
from urllib.parse import urlencode

from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ..conf import Policy
from ..inspection.parked_keys import ParkedKey, parked_keys
from ..queue.arguments import MAX_PRIORITY
from ..tasks.limits import limits_for
from . import display
from .changelists import AFTER
from .links import Pages

SHOWN, MOST_COUNTED = 10, 1000  # keys, and their parked jobs that are counted


class KeyRow(NamedTuple):
    """A key as people read it; ``url``: where its parked jobs are listed."""

    key: str
    task: SafeString | str
    held: str
    parked: str
    url: str | None


def of_queue(policy: Policy) -> str:
    """Return the limits of a queue; "" for none."""
    found = [_("%(most)s at once") % {"most": display.number(policy.concurrency)}] if policy.concurrency else []
    return ", ".join([*found, *([policy.rate] if policy.rate else [])])


def key_rows(database: str, pages: Pages) -> tuple[list[KeyRow], int]:
    """Return the keys with the most parked jobs, and how many others there are."""
    found, left = parked_keys(database, SHOWN, MOST_COUNTED + 1)
    return [key_row(each, database, pages) for each in found], left


def key_row(each: ParkedKey, database: str, pages: Pages) -> KeyRow:
    limits, held = limits_for(each.queue_name, database), display.number(each.held)
    if limits.known(each.task_path):
        limit = limits.of_key(each.queue_name, each.task_path)
        text = _("%(held)s of %(most)s, in order") if limit.ordered else _("%(held)s of %(most)s")
        held = text % {"held": held, "most": "∞" if limit.most is None else display.number(limit.most)}
    begin = json.dumps([each.key, "", MAX_PRIORITY, 0, 0])  # where the jobs of this key begin in the list
    return KeyRow(
        key=display.cut(each.key),
        task=display.task_name(each.task_path) if each.task_path else each.queue_name,
        held=held,
        parked=display.number(min(each.parked, MOST_COUNTED), more=each.parked > MOST_COUNTED),
        url=pages.jobs and f"{pages.jobs}?{urlencode({'state': 'parked', AFTER: begin})}",
    )
