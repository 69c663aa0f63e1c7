"""Which setting to change, by what was measured: plain values in, sentences out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from django_vtqueue.database_checks import BLOCK, Pragmas, faults

from .measures import FULL, NORMAL, SYNCHRONOUS, Setting

SLOW_DISK = 0.02  # seconds to store a block for good; those of today need a tenth of that
WORTH_SAYING = 1.2  # times as many commits a second: less may be chance
NETWORK = {"9p", "afs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "glusterfs", "lustre", "nfs", "nfs4", "smb3"}


@dataclass(frozen=True)
class Found:
    """What holds on a database, and what was measured.

    ``mode``: its ``transaction_mode``. ``commits``: INSERTs with their COMMIT a second under each setting. ``fsync``:
    the seconds that the disk needs to store a block for good, at the median.
    """

    alias: str
    pragmas: Pragmas
    mode: str | None
    file_system: str
    commits: Mapping[Setting, float]
    fsync: float

    @property
    def present(self) -> Setting:
        return Setting(self.pragmas.journal, self.pragmas.synchronous)

    def gain(self, setting: Setting) -> float:
        """Return how many times as many commits a second another setting allows."""
        return self.commits[setting] / self.commits[self.present]


def advice(found: Found) -> Iterator[str]:
    """Yield what to change, or that nothing is, and what the choice between NORMAL and FULL costs here."""
    changes = [*places(found), *settings(found)]
    yield from changes or ["Nothing to change."]
    if found.present == NORMAL and found.gain(FULL) * WORTH_SAYING < 1:
        yield (
            "synchronous=NORMAL may lose the last commits in a power loss; FULL would lose none, at "
            f"{found.gain(FULL):.2g} of the commits a second."
        )


def places(found: Found) -> Iterator[str]:
    """Yield what is wrong with where the file lies."""
    if found.file_system in NETWORK:
        yield (
            f"The file lies on a network file system ({found.file_system}), whose locks SQLite cannot rely on. Move it "
            "to a disk of this machine."
        )
    if found.fsync > SLOW_DISK:
        yield (
            f"The disk takes {found.fsync * 1000:.0f} ms to store a block for good. No setting makes it faster; "
            "with WAL and NORMAL the fewest commits wait for it."
        )


def settings(found: Found) -> Iterator[str]:
    """Yield which settings to change, what each brings, and last how they are written."""
    wrong = list(faults(found.pragmas, found.mode))
    for number, text in wrong:
        yield f"{text[0].upper()}{text[1:]} {measured(found, number)}".strip() + f" (vtqueue.{number})"
    if wrong:
        yield f"So in DATABASES[{found.alias!r}], add these OPTIONS:\n{BLOCK.rstrip()}"
    if found.present.journal == "wal" and found.present.synchronous >= FULL.synchronous:
        yield from choice(found)


def measured(found: Found, fault: str) -> str:
    """Return what the cure of a fault brings in speed, or costs; "" if it changes none."""
    if fault == "W001":
        return (
            f"In WAL there were {times(found.gain(NORMAL))} as many commits a second with synchronous=NORMAL, and "
            f"{times(found.gain(FULL))} with FULL."
        )
    if fault == "W005":
        return f"In WAL there were {times(found.gain(NORMAL))} as many commits a second with NORMAL."
    return ""


def choice(found: Found) -> Iterator[str]:
    """Yield what the other choice of ``synchronous`` would bring, where each commit waits for the disk."""
    if found.gain(NORMAL) < WORTH_SAYING:
        return
    yield (
        f"synchronous is {SYNCHRONOUS[found.present.synchronous]}: each commit waits for the disk, and a power loss "
        f"takes none back. With NORMAL there were {times(found.gain(NORMAL))} as many a second; then a power loss may "
        "take back the last ones: jobs just enqueued may be gone, jobs just done may run again. If that may be, write "
        f"PRAGMA synchronous=NORMAL into the init_command of DATABASES[{found.alias!r}]; if not, change nothing."
    )


def times(ratio: float) -> str:
    """Return a ratio in words that fit before "as many"."""
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.2g} times"
