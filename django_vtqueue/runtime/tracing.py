"""Tracing by OpenTelemetry, in a project that has it."""

import sys
from contextlib import AbstractContextManager, nullcontext


def untraced() -> AbstractContextManager[object]:
    """Have what this thread does in the block make no spans: a control loop's looks are many, and part of no trace."""
    utils = sys.modules.get("opentelemetry.instrumentation.utils")
    return utils.suppress_instrumentation() if utils else nullcontext()
