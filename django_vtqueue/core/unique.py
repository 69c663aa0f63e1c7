"""Unique keys: until when a job has its key to itself, and what becomes of another one that is published with it."""

DONE = "done"  # while it waits or runs
START = "start"  # while it waits: another one may be published when it has started
STARTED = "started"  # as stored: it was unique until its start
