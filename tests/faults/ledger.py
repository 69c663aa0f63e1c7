"""What the database itself saw happen to each job: triggers write it down in the transaction that does it."""

from collections import Counter
from typing import NamedTuple

from ..processes.database import Database

LEDGER = "CREATE TABLE ledger (event TEXT, job TEXT, claims INTEGER, worker TEXT, at INTEGER)"
CLAIMED = """
CREATE TRIGGER ledger_claimed AFTER UPDATE ON vtqueue_job WHEN NEW.claims != OLD.claims
BEGIN INSERT INTO ledger VALUES ('claimed', NEW.id, NEW.claims, NEW.worker_id, NEW.lease_until - NEW.lease_us); END"""
ACKNOWLEDGED = """
CREATE TRIGGER ledger_acknowledged AFTER UPDATE ON vtqueue_job WHEN NEW.state = 'SUCCESSFUL'
BEGIN INSERT INTO ledger VALUES ('acknowledged', NEW.id, NEW.claims, NEW.worker_id, NEW.finished_at); END"""
BURIED = """
CREATE TRIGGER ledger_buried AFTER INSERT ON vtqueue_deadletter
BEGIN INSERT INTO ledger VALUES ('buried', NEW.id, NEW.claims, NEW.worker_id, NEW.died_at); END"""


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
        for statement in (LEDGER, CLAIMED, ACKNOWLEDGED, BURIED):
            database.write(statement)

    def events(self, event: str) -> list[Event]:
        return [Event(*row) for row in self.database.rows("SELECT * FROM ledger WHERE event = ?", event)]

    def acknowledged(self) -> Counter[str]:
        """Return how many times each job was acknowledged."""
        return Counter(event.job for event in self.events("acknowledged"))

    def buried(self) -> Counter[str]:
        """Return how many times each job became a dead letter."""
        return Counter(event.job for event in self.events("buried"))
