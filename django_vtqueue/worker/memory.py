"""The memory that a process takes."""

import resource
from pathlib import Path


def resident(process: int | str) -> int:
    """Return the resident bytes of a process id, or of ``self``; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0
