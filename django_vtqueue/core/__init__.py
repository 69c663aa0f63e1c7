"""Plain values and arithmetic: a job, its states and settlements, time, chance, texts. No database, no settings.

``timeouts.py`` and ``forks.py`` are neither: they work on threads, signals and processes.
"""
