"""What the queue does in a second and in a moment, each figure beside what plain ``sqlite3`` does in the same run.

``make bench`` runs them all in short versions; ``python -m benchmarks.enqueue`` one of them. None is a test: a figure
belongs to the machine and the minute in which it was measured.
"""
