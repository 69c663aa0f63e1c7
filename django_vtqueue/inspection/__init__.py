"""What pages and commands read of the queue, by the ORM, on every database; no worker needs it.

None of it may hold up the queue: each function finds its rows by an index, and looks at no more of them than a limit.
"""
