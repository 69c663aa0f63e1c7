"""The worker: a control loop that claims, renews and settles; threads that run user code; a supervisor of several."""
