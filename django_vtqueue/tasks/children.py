"""Children: jobs that another job has enqueued, and whose end it waits for."""

KEPT_FOR_PARENT = 90 * 86_400_000_000  # microseconds: a child that has succeeded, until its parent has read the result
