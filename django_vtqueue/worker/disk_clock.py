"""The clock of a disk that several hosts share: the leases of one host are ended by the clock of another."""

import logging
import os

from ..engines import Engine, shares_disk
from ..engines.sqlite.mounts import MOST_SKEW, clock_offset

logger = logging.getLogger("django_vtqueue")


class DiskClock:
    """Compares this host's clock with the one that stamps files, which is the same for all hosts.

    ``off``: they differ too much. As long as they do, this worker claims nothing: it would end leases of the living.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine, self.off = engine, False
        self._shared = shares_disk(engine.alias)

    def look(self) -> None:
        """Compare them, where hosts share a disk; say so when they begin to differ, and when they agree again."""
        if not self._shared:
            return
        offset = clock_offset(os.path.dirname(self.engine.path()))
        before, self.off = self.off, abs(offset) > MOST_SKEW
        if self.off and not before:
            where = "ahead of" if offset > 0 else "behind"
            logger.error(
                "the clock of this host is %.0f s %s that of the disk; until it is set right (NTP), this worker claims "
                "nothing",
                abs(offset),
                where,
            )
        elif before and not self.off:
            logger.warning("the clock of this host agrees with that of the disk again; this worker goes on")
