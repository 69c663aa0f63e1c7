"""Which errors say that something is wrong with the database, and what: told by SQLSTATE."""

from django.db.utils import InterfaceError, OperationalError

from ..trouble import Trouble

# The first two, three, or all five letters of SQLSTATE; see PostgreSQL's appendix A.
RIGHTS = "42501"
TROUBLES = {
    "40": Trouble.BUSY,  # a deadlock, or what REPEATABLE READ refuses
    "55P03": Trouble.BUSY,  # lock_timeout
    "57014": Trouble.BUSY,  # statement_timeout, which a lock may take; or people have it cancelled
    "53100": Trouble.DISK,
    "53": Trouble.GONE,  # no connection, no memory, or no room for a lock is free
    "25006": Trouble.DISK,  # read-only
    "58": Trouble.DISK,
    "42P01": Trouble.SCHEMA,
    "42703": Trouble.SCHEMA,
    RIGHTS: Trouble.RIGHTS,
    "42P10": Trouble.SCHEMA,  # no index for ON CONFLICT
    "XX001": Trouble.DAMAGED,
    "XX002": Trouble.DAMAGED,
    "08": Trouble.GONE,
    "57P": Trouble.GONE,  # the server stops, or starts
    "25P03": Trouble.GONE,  # idle_in_transaction_session_timeout
    "25P04": Trouble.GONE,  # transaction_timeout
    "3D000": Trouble.GONE,
}


def trouble(error: BaseException) -> Trouble | None:
    """Return what is wrong with the database if that is the cause of this error, else None."""
    if isinstance(error, MemoryError):
        return Trouble.MEMORY
    cause = next((each for each in (error, error.__cause__) if getattr(each, "sqlstate", None)), None)
    state = getattr(cause, "sqlstate", None)
    if state == RIGHTS and not str(cause.diag.source_function).startswith("aclcheck"):  # type: ignore[union-attr]
        return None  # a trigger, or the security of rows: it refuses this row, and not each one
    if state is None:
        return Trouble.GONE if isinstance(error, OperationalError | InterfaceError) else None
    return next((TROUBLES[key] for key in (state, state[:3], state[:2]) if key in TROUBLES), None)
