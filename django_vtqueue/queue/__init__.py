"""The queue's own mechanics on top of an engine: publish, claim, settle, pause, wake, and who is alive."""
