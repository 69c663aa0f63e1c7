"""How long the faults of these tests last: seconds here, a minute and more on request."""

import environ

HELD: float = environ.Env().float("VTQUEUE_TEST_FAULT_SECONDS", default=1.0)
