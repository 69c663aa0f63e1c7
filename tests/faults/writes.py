"""What a disk may hold after the machine has crashed at any moment, from the log of all writes and syncs (writes.c)."""

import os
import random
import struct
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("writes.c")
RECORD = struct.Struct("<ccIq")
WRITE, TRUNCATE, BEGIN, END, PROMISE = b"W", b"T", b"B", b"E", b"P"
SECTOR = 512


class Event(NamedTuple):
    """A write of ``data`` to ``file`` at ``where``; its truncation to ``where``; a sync, or a promise, by ``where``."""

    kind: bytes
    file: bytes
    where: int
    data: bytes


def compile_shim(folder: Path) -> Path:
    """Compile writes.c."""
    library = folder / "writes.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE)], check=True)
    return library


def promise(log: int, text: str) -> None:
    """Note, in the order of the writes, that this process relies on ``text`` from now on; ``log``: a descriptor."""
    os.write(log, RECORD.pack(PROMISE, b"-", len(text), os.getpid()) + text.encode())


def events(log: Path) -> Iterator[Event]:
    """Yield what the log says, in its order."""
    text = memoryview(log.read_bytes())
    position = 0
    while position < len(text):
        kind, file, length, where = RECORD.unpack_from(text, position)
        position += RECORD.size + length
        yield Event(kind, file, where, bytes(text[position - length : position]))


class File:
    """One file on the disk: what is durable, and what was written since and may be lost."""

    def __init__(self, content: bytes) -> None:
        self.durable = bytearray(content)
        self.pending: list[Event] = []
        self._written = 0  # writes in all
        self._begun: dict[int, int] = {}  # by whom a sync was begun, and how many writes it covers

    def take(self, event: Event) -> None:
        """Take note of what happened next to this file."""
        if event.kind == BEGIN:
            self._begun[event.where] = self._written
        elif event.kind == END:
            self._settle(self._begun.pop(event.where))
        else:
            self.pending.append(event)
            self._written += 1

    def _settle(self, covered: int) -> None:
        count = max(covered - (self._written - len(self.pending)), 0)
        for event in self.pending[:count]:
            put(self.durable, event)
        del self.pending[:count]

    def after_crash(self, kept: Callable[[Event], Event | None]) -> bytes:
        """Return the content if of each write that was not synced there is what ``kept`` returns."""
        content = bytearray(self.durable)
        for event in filter(None, map(kept, self.pending)):
            put(content, event)
        return bytes(content)


class Disk:
    """The database file and its WAL, event after event; ``promised``: what each process relies on by now."""

    def __init__(self, database: bytes) -> None:
        self.files = {b"D": File(database), b"W": File(b"")}
        self.promised: dict[int, list[str]] = defaultdict(list)
        self.syncs: Counter[bytes] = Counter()

    def take(self, event: Event) -> None:
        if event.kind == PROMISE:
            self.promised[event.where].append(event.data.decode())
        else:
            self.files[event.file].take(event)
            self.syncs[event.file] += event.kind == END

    def crash(self, folder: Path, kept: Callable[[Event], Event | None]) -> Path:
        """Write the files as they may be after a crash now; return the path of the database."""
        folder.mkdir()
        path = folder / "db.sqlite3"
        path.write_bytes(self.files[b"D"].after_crash(kept))
        Path(f"{path}-wal").write_bytes(self.files[b"W"].after_crash(kept))
        return path


def put(content: bytearray, event: Event) -> None:
    """Do to ``content`` what the event did to its file."""
    if event.kind == TRUNCATE:
        del content[event.where :]
        return
    content.extend(bytes(max(event.where - len(content), 0)))
    content[event.where : event.where + len(event.data)] = event.data


def everything(event: Event) -> Event | None:
    """The processes ended, the machine did not; or its cache had been written."""
    return event


def nothing(event: Event) -> Event | None:
    """The files are as they were synced."""
    return None


def some(chance: random.Random) -> Callable[[Event], Event | None]:
    """Return a choice: each write has reached the disk, or not, or in part, whatever their order was."""

    def kept(event: Event) -> Event | None:
        sectors = chance.randint(0, len(event.data) // SECTOR)
        return chance.choice([event, None, event._replace(data=event.data[: sectors * SECTOR])])

    return kept
