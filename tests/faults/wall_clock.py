"""A wall clock that a test sets, for the processes it starts; their other clocks go on.

Debian's libfaketime 0.9.10 cannot do that for Python 3.11 and newer: it breaks ``time.sleep``
(https://github.com/wolfcw/libfaketime/issues/426).
"""

import struct
import subprocess
import time
from pathlib import Path

SOURCE = Path(__file__).with_name("wall_clock.c")


class WallClock:
    """``variables``: the environment of the processes whose wall clock it is."""

    def __init__(self, folder: Path) -> None:
        library = folder / "wall_clock.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, SOURCE], check=True)
        self._offset = 0
        self._file = folder / "wall_clock"
        self._file.write_bytes(bytes(16))
        self.variables = {"LD_PRELOAD": str(library), "VTQUEUE_WALL_CLOCK": str(self._file)}

    def set(self, offset: float) -> None:
        """Step the clock to so many seconds ahead of the right time, or behind it."""
        self._offset = round(offset * 1_000_000)
        self._write(self._offset, 0)

    def stand_still(self) -> None:
        """Have the clock show this moment until it is set."""
        self._write(self._offset, self.now())

    def _write(self, *numbers: int) -> None:
        with self._file.open("r+b", buffering=0) as file:  # in place: they have mapped it
            file.write(struct.pack("=qq", *numbers))

    def now(self) -> int:
        """Return the time by this clock, in microseconds."""
        return time.time_ns() // 1000 + self._offset
