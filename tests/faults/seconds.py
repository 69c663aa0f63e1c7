"""How long the troubles of these tests last: seconds, or a minute each when ``VTQUEUE_FAULT_MINUTES`` is set."""

import os

HELD = 60.0 if os.environ.get("VTQUEUE_FAULT_MINUTES") else 1.0
