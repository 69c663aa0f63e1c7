"""An app whose code hinders whoever calls it: receivers of signals, log handlers, and tasks that leave threads behind.

VTQUEUE_TEST_RECEIVERS says what receivers do: ``{"task_enqueued": "raise"}``, or another function of ``tasks.DEEDS``.
"""
