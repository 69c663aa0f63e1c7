"""Leader election: of many instances one holds the lease of a name, and another takes it over when that one is gone."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any
from weakref import finalize

from django.db import DatabaseError

from ..core.clock import NEVER
from ..core.names import LEASE, reserved_name
from ..core.text import shown
from ..engines import database_for
from ..queue.doorbell import LOOK
from ..runtime.event_loops import in_thread, to_its_end
from .holder import Holder
from .reserved import ReservedRows

A_MOMENT = 0.05  # seconds for which the one thread for synchronous code waits for a lock: all sync views need it


def leader(name: str, ttl: float | timedelta, using: str | None, **options: Any) -> Holder:
    """Return an instance that can hold the lease of a name; for the arguments see Lease, and Holder for ``options``."""
    rows = ReservedRows(reserved_name(LEASE, name), database_for(using), ["leader"])
    return Holder(f"lease {name!r}", rows, ttl, **options)


class Lease:
    """The leadership of a name: of all ``Lease`` objects with that name, in all processes, one at a time holds it.

    ``ttl``: seconds (or a timedelta) after which another instance takes it from one that does not renew it; while it is
    held, a thread renews it every third of that (``renewing=False``: call ``renew`` yourself). ``using``: a database
    alias. ``on_lost``: called once, from that thread, when the lease is lost. Raise ValueError for what is not allowed.

    The rule, a lease counted by each process's own clock, and a number against late writes, is that of "How to do
    distributed locking" (Kleppmann, 2016) and of the leader election of Kubernetes' client-go.
    """

    def __init__(
        self,
        name: str,
        ttl: float | timedelta = 30,
        using: str | None = None,
        renewing: bool = True,
        on_lost: Callable[[], object] | None = None,
    ) -> None:
        if on_lost is not None and not callable(on_lost):
            raise ValueError(f"on_lost is {shown(on_lost)}, but must be a function without arguments.")
        self.name = name
        self._holder = leader(name, ttl, using, renewing=renewing, on_lost=on_lost)
        self.ttl = self._holder.ttl
        finalize(self, self._holder.dropped).atexit = False

    def __repr__(self) -> str:
        return f"<Lease {self.name!r}, {'held' if self.held else 'not held'}>"

    @property
    def held(self) -> bool:
        """Whether this instance is the leader; False a tenth of the ttl (at most 1 s) before another can be it.

        It is decided by this process's boot clock, which goes on while the process is stopped or the machine suspended.
        """
        return self._holder.held

    @property
    def token(self) -> int | None:
        """The fencing token: a number that grows with each acquisition by any instance; None while it is not held.

        Give it to the systems that the leader writes to, so that they refuse an older one.
        """
        return self._holder.token

    def remaining(self) -> float:
        """Return the seconds for which ``held`` stays True if the lease is not renewed."""
        return self._holder.remaining()

    def acquire(self, blocking: bool = True, timeout: float | timedelta | None = None) -> bool:
        """Become the leader; return whether this instance is it now.

        ``blocking``: wait until it is, for ``timeout`` seconds (or a timedelta) at most, None: for ever; also while
        the database is locked or gone. Without it a database that is locked gives False, one that is gone raises its
        error. Raise RuntimeError inside a transaction, ValueError for a timeout that is not allowed.
        """
        return self._holder.acquire(blocking, timeout)

    def release(self) -> None:
        """Give the leadership up, so that an instance that waits has it at once; do nothing if it is not held."""
        self._holder.release()

    def renew(self) -> None:
        """Keep the leadership for one more ttl, from now on.

        Raise LeaseLost if it is lost, RuntimeError inside a transaction. After another error (the database is locked)
        it is held as it was before.
        """
        self._holder.renew()

    def check(self) -> None:
        """Raise LeaseLost if this instance is not the leader."""
        self._holder.check()

    def __enter__(self) -> "Lease":
        """Wait until this instance is the leader; raise RuntimeError inside another block of this object."""
        self._enter()
        try:
            self.acquire()
        except BaseException:
            self._holder.in_block = False
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._leave()

    def _leave(self, wait: float = NEVER) -> None:
        self._holder.in_block = False
        with suppress(DatabaseError):  # it ends by itself
            self._holder.release(wait)

    def _enter(self) -> None:
        """Refuse a block inside another one: the end of the inner one would give the leadership up."""
        if self._holder.in_block:
            raise RuntimeError(
                f"This object is in a with block already, and is one instance of {self._holder.name}. Use it in that "
                "block, or make another Lease object, which is another instance."
            )
        self._holder.in_block = True

    async def __aenter__(self) -> "Lease":
        """Wait until this instance is the leader, without a thread that waits; see ``__enter__``."""
        self._enter()
        taken: bool | None = False
        try:
            while not (taken := await self._attempt(taken is None)):
                await asyncio.sleep(LOOK)
        except BaseException:
            self._holder.in_block = False
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        self._holder.let_end()  # whatever keeps what follows from being run: the end of the loop, say
        try:
            await to_its_end(in_thread(self._leave, A_MOMENT))
        finally:
            self._holder.in_block = False

    async def _attempt(self, troubled: bool) -> bool | None:
        """Try to become the leader; one that is cancelled meanwhile is not."""
        abandoned = threading.Event()

        def attempt() -> bool | None:
            taken = self._holder.attempt(A_MOMENT, troubled)
            if taken and abandoned.is_set():
                self._leave(A_MOMENT)
                return False
            return taken

        trying = asyncio.ensure_future(in_thread(attempt))
        try:
            return await asyncio.shield(trying)
        except asyncio.CancelledError:
            abandoned.set()
            self._holder.let_end()
            await to_its_end(self._undo(trying))
            raise

    async def _undo(self, trying: "asyncio.Future[bool | None]") -> None:
        await asyncio.wait([trying])
        if not trying.cancelled() and not trying.exception() and trying.result():
            await in_thread(self._leave, A_MOMENT)
