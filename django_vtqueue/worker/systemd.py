"""Messages to systemd, where it asks (``Type=notify``, ``WatchdogSec=``): sd_notify(3), in the ten lines it needs."""

import os
import socket
from contextlib import suppress

READY = "READY=1"
STOPPING = "STOPPING=1"
WATCHDOG = "WATCHDOG=1"


def notify(state: str) -> None:
    """Tell the service manager, if there is one; it never waits, and a failure changes nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # the abstract namespace
        address = f"\0{address[1:]}"
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.sendto(state.encode(), socket.MSG_DONTWAIT, address)
