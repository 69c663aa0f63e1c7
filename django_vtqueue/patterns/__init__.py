"""Coordination by the same row: leaders and time slots are jobs of reserved queues that are held and never done."""
