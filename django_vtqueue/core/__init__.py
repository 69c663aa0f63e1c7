"""Plain values and arithmetic: a job, its states and settlements, time, jitter, texts. No database, and no
settings but USE_TZ (``clock.py``).
"""
