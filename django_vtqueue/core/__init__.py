"""Plain values and arithmetic: a job, its states and settlements, time, chance, texts. No database, and no
settings but USE_TZ (``clock.py``).

``timeouts.py`` and ``forks.py`` are neither: they work on threads, signals and processes.
"""
