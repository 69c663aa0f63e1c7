"""What the database itself saw happen to each job: triggers write it down in the transaction that does it."""

from collections import Counter
from typing import NamedTuple

from ..processes.database import Database
from .inside import MOVES

LEDGER = "CREATE TABLE ledger (event TEXT, job TEXT, claims INTEGER, worker TEXT, at BIGINT)"
NOTE = "INSERT INTO ledger VALUES ('{event}', replace(CAST(NEW.id AS TEXT), '-', ''), NEW.claims, {worker}, {at})"
NOTED = {  # event: upon what, under which condition, and when that was
    "claimed": ("UPDATE ON vtqueue_job", "NEW.claims <> OLD.claims", "NEW.lease_until - NEW.lease_us"),
    "acknowledged": ("UPDATE ON vtqueue_job", "NEW.state = 'SUCCESSFUL'", "NEW.finished_at"),
    "buried": ("INSERT ON vtqueue_deadletter", "NEW.id IS NOT NULL", "NEW.died_at"),
}
KNOWN = ", ".join(f"'{state} {after}'" for state in MOVES if state for after in MOVES[state] if after)
FIRST = ", ".join(f"'{state}'" for state in MOVES[None])
STRAYED = {  # event: upon what, under which condition, and the words for the change of state
    "became": (
        "UPDATE ON vtqueue_job",
        f"NEW.state <> OLD.state AND OLD.state || ' ' || NEW.state NOT IN ({KNOWN})",
        "OLD.state || ' ' || NEW.state",
    ),
    "began": ("INSERT ON vtqueue_job", f"NEW.state NOT IN ({FIRST})", "NEW.state"),
}


class Event(NamedTuple):
    """A job was claimed, acknowledged or buried; ``at`` in microseconds."""

    event: str
    job: str
    claims: int
    worker: str
    at: int


class Ledger:
    """The ledger of one database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        database.write(LEDGER)
        for event, (upon, condition, at) in NOTED.items():
            database.on(f"ledger_{event}", upon, condition, NOTE.format(event=event, at=at, worker="NEW.worker_id"))
        for event, (upon, condition, change) in STRAYED.items():
            database.on(f"ledger_{event}", upon, condition, NOTE.format(event=event, at=0, worker=change))

    def events(self, event: str) -> list[Event]:
        return [Event(**row) for row in self.database.rows("SELECT * FROM ledger WHERE event = ?", event)]

    def acknowledged(self) -> Counter[str]:
        """Return how many times each job was acknowledged."""
        return Counter(event.job for event in self.events("acknowledged"))

    def buried(self) -> Counter[str]:
        """Return how many times each job became a dead letter."""
        return Counter(event.job for event in self.events("buried"))

    def strayed(self) -> Counter[str]:
        """Return how often a job was in a state, or came from one to another, as the queue says that none does."""
        return Counter(f"{event.event} {event.worker}" for kind in STRAYED for event in self.events(kind))
