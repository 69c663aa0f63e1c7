"""What pages and commands read of the queue, by the ORM, on every database; no worker needs it.

None of it may hold the queue up, so each function finds its rows by an index, and looks at no more than it is told.
"""
