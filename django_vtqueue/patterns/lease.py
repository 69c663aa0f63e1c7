"""Leader election: of many instances one holds the lease of a name, and another takes it over when that one is gone."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from types import TracebackType

from asgiref.sync import sync_to_async
from django.db import DatabaseError

from ..queue.publishing import checked_queue_name
from .holder import LOOK, Holder
from .reserved import LEASE


class Lease:
    """The leadership of a name: of all ``Lease`` objects with that name, in all processes, one at a time holds it.

    ``ttl``: seconds (or a timedelta) after which another instance takes it from one that does not renew it; while it is
    held, a thread renews it every third of that (``renewing=False``: call ``renew`` yourself). ``using``: a database
    alias. ``on_lost``: called once, from that thread, when the lease is lost. Raise ValueError for what is not allowed.
    """

    def __init__(
        self,
        name: str,
        ttl: float | timedelta = 30,
        using: str | None = None,
        renewing: bool = True,
        on_lost: Callable[[], object] | None = None,
    ) -> None:
        self.name = name
        self._queue_name = checked_queue_name(f"{LEASE}{name}" if isinstance(name, str) and name else "")
        self._holder = Holder(
            f"lease {name!r}", self._queue_name, ["leader"], ttl, using, renewing=renewing, on_lost=on_lost
        )
        self.ttl = self._holder.ttl

    def __repr__(self) -> str:
        return f"<Lease {self.name!r}, {'held' if self.held else 'not held'}>"

    @property
    def held(self) -> bool:
        """Whether this instance is the leader; False a tenth of the ttl (1 s at the most) before another can be it.

        It is decided by this process's boot clock, which goes on while the process is stopped or the machine suspended.
        """
        return self._holder.held

    @property
    def token(self) -> int | None:
        """The fencing token: a number that grows with each acquisition by any instance; None while it is not held.

        Give it to the systems that the leader writes to, so that they refuse an older one.
        """
        job = self._holder.job
        return job.claims if job and self.held else None

    def remaining(self) -> float:
        """Return the seconds for which ``held`` stays True if the lease is not renewed."""
        return self._holder.remaining()

    def acquire(self, blocking: bool = True, timeout: float | timedelta | None = None) -> bool:
        """Become the leader; return whether this instance is it now.

        ``blocking``: wait until it is, for ``timeout`` seconds at the most (None: for ever). Raise RuntimeError inside
        a transaction.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        return self._holder.acquire(blocking, seconds)

    def release(self) -> None:
        """Give the leadership up, so that an instance that waits has it at once; do nothing if it is not held."""
        self._holder.release()

    def renew(self) -> None:
        """Keep the leadership for one more ttl, from now on; raise LeaseLost if it is lost."""
        self._holder.renew()

    def check(self) -> None:
        """Raise LeaseLost if this instance is not the leader."""
        self._holder.check()

    def __enter__(self) -> "Lease":
        """Wait until this instance is the leader."""
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(DatabaseError):  # it ends by itself
            self.release()

    async def __aenter__(self) -> "Lease":
        """Wait until this instance is the leader, without a thread that waits."""
        while not await self._acquired():
            await asyncio.sleep(LOOK)
        return self

    async def __aexit__(self, *error: object) -> None:
        await sync_to_async(self.__exit__)(None, None, None)

    async def _acquired(self) -> bool:
        """Try to become the leader; one that is cancelled meanwhile is not."""
        trying = asyncio.ensure_future(sync_to_async(self.acquire)(blocking=False))
        try:
            return await asyncio.shield(trying)
        except asyncio.CancelledError:
            if await trying:
                await sync_to_async(self.release)()
            raise
