"""The worker: a control loop that owns every claim, renewal and settlement, and threads that own only user code."""
