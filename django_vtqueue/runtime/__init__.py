"""What Python runs: time limits inside a thread, async code and its loops, processes that a task forks. No database."""
