"""One job to its outcome: the task is called, its exceptions are caught, and what comes of it is a value."""
